"""`tk image diff`: what makes two images different."""

from __future__ import annotations

from typing import Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.image import common
from toolchain.images.selection import Selection


def diff_command(
    first: Annotated[str, typer.Argument(metavar="A", help="An image, for example `rocm-5.2`.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another, for example `rocm-5.4`.")],
    allow: common.Allow = None,
    site: options.Site = None,
    json: options.Json = False,
) -> None:
    """Show what differs between two images; exit code 1 when something does."""
    from toolchain.images.diff import diff_plans
    from toolchain.images.named import plan_named

    plans = [plan_named(name, Selection(site, allow=tuple(allow or ()))).plan for name in (first, second)]
    found = diff_plans(*plans)
    if json:
        console.data_json(
            {
                "first": {"name": plans[0].name, "reference": plans[0].reference},
                "second": {"name": plans[1].name, "reference": plans[1].reference},
                "differences": [{"change": one.change, **console.jsonable(one)} for one in found],
            }
        )
    elif not found:
        console.data(f"{plans[0].name} and {plans[1].name} are the same image, {plans[0].reference}")
    else:
        rows = [
            (one.change, one.image, one.kind, one.name, one.before, one.after)
            for one in found
            if not one.lines
        ]
        console.data(console.table(("", "image", "what", "name", plans[0].name, plans[1].name), rows))
        for one in found:
            if one.lines:
                console.data(f"\n{one.image}: {one.name}\n" + "\n".join(one.lines))
    if found:
        raise typer.Exit(compiler.ExitCode.DIFFERENCES)
