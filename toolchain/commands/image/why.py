"""`tk image why`: each choice and each rule, with its source."""

from __future__ import annotations

import typer

from compiler import ExitCode
from toolchain import console, options
from toolchain.commands.image import common


def why_command(
    name: common.Name,
    arch: common.Archs = None,
    allow: common.Allow = None,
    site: options.Site = None,
    json: options.Json = False,
) -> None:
    """Explain what a name stands for: each choice, each rule and its source; exit 3 if a rule refuses."""
    from toolchain.recipes.describe import why_json, why_text
    from toolchain.recipes.resolve import examine

    book, config = common.open_recipes(site)
    found = examine(name, book, archs=arch or (), allow=(*config.allow, *(allow or ())))
    if json:
        console.data_json(why_json(found))
    else:
        console.data(why_text(found))
    if found.refusing:
        raise typer.Exit(ExitCode.BAD_INPUT)
