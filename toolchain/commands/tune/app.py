"""The list of the subcommands of `tk tune`."""

from __future__ import annotations

import typer

from toolchain.commands.tune import cluster, exchange, search, show, stats, upkeep
from toolchain.commands.tune.group import TuneGroup
from toolchain.options import spread

HELP = "Search for faster kernels (`tk tune MODEL`), and the database of what was found."
app = typer.Typer(cls=TuneGroup, help=HELP, no_args_is_help=True)


@app.callback()
def tune_group() -> None:
    """Search for faster kernels (`tk tune MODEL`), and the database of what was found."""


# One line for each subcommand, in the order of `tk tune --help`.
app.command("search")(spread(search.search_command))
app.command("stats")(spread(stats.tuning_stats_command))
app.command("show")(spread(show.show_tuned_command))
app.command("export")(spread(exchange.export_tuned_command))
app.command("import")(spread(exchange.import_tuned_command))
app.command("merge")(spread(exchange.merge_tuned_command))
app.command("prune")(spread(upkeep.prune_tuned_command))
app.command("migrate")(spread(upkeep.migrate_tuned_command))
app.command("worker")(spread(cluster.worker_command))
app.command("scheduler")(spread(cluster.scheduler_command))
