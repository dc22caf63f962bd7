"""`tk image shell`: a shell in an image, in the current folder."""

from __future__ import annotations

from toolchain import options
from toolchain.commands.image import common, run

SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")


def shell_command(
    name: common.Name,
    container: run.Container = run.BARE,
    explain: run.Explain = False,
    dry_run: run.DryRun = False,
    engine: common.Engine = common.ANY_ENGINE,
    json: options.Json = False,
) -> None:
    """Open a shell in an image, as you, with the current folder at /work; its last status is tk's own."""
    run.image_run_command(name, list(SHELL), container, explain, dry_run, engine, json)
