"""The list of the subcommands of `tk image`."""

from __future__ import annotations

import typer

from toolchain.commands.image import (
    build,
    bundle,
    check,
    diff,
    lint,
    lock,
    ls,
    prune,
    publish,
    pull,
    push,
    render,
    rm,
    run,
    sbom,
    shell,
    show,
    why,
)
from toolchain.commands.image import list as list_images
from toolchain.options import spread

app = typer.Typer(help="Images of vendor stacks with the right LLVM and SYCL.", no_args_is_help=True)


@app.callback()
def image_group() -> None:
    """Images of vendor stacks with the right LLVM and SYCL."""


# One line for each subcommand, in the order of `tk image --help`.
app.command("list")(spread(list_images.list_command))
app.command("show")(spread(show.show_command))
app.command("why")(spread(why.why_command))
app.command("lint")(spread(lint.lint_command))
app.command("render")(spread(render.render_command))
app.command("diff")(spread(diff.diff_command))
app.command("lock")(spread(lock.lock_command))
app.command("build")(spread(build.build_command))
app.command("check")(spread(check.check_command))
app.command("ls")(spread(ls.ls_command))
app.command("pull")(spread(pull.pull_command))
app.command("push")(spread(push.push_command))
app.command("publish")(spread(publish.publish_command))
app.command("rm")(spread(rm.rm_command))
app.command("prune")(spread(prune.prune_command))
app.command("sbom")(spread(sbom.sbom_command))
app.command("run")(run.running_a_program(spread(run.image_run_command)))
app.command("shell")(run.running_a_program(spread(shell.shell_command)))
app.add_typer(bundle.app, name="bundle")
