"""`tk targets`: what can be compiled for, and what this machine can build."""

from __future__ import annotations

import compiler
from toolchain import console, options


def targets_command(json: options.Json = False) -> None:
    """List the targets that `tk compile --target` accepts."""
    targets = compiler.list_targets()
    if json:
        console.data_json(targets)
        return
    rows = [(one.name, one.language, one.device, one.arch, one.ready, one.note) for one in targets]
    console.data(console.table(("target", "language", "device", "arch", "ready", "note"), rows))
