"""`tk image why`: each choice and each rule, with its source."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from compiler import ExitCode
from toolchain import console, options
from toolchain.commands.image import common

if TYPE_CHECKING:
    from toolchain.images.plan import Plan
    from toolchain.recipes.resolve import Examination


def why_command(
    name: common.Name,
    selection: common.SelectedRecipe = common.NO_SELECTION,
    json: options.Json = False,
) -> None:
    """Explain what a name stands for: each choice, each rule and its source; exit 3 if a rule refuses."""
    from toolchain.images.named import plan_named
    from toolchain.recipes.additions import split_name
    from toolchain.recipes.describe import why_json, why_text
    from toolchain.recipes.resolve import examine

    catalog, config = common.open_recipes(selection.site)
    allow = (*config.allow, *selection.allow)
    found = examine(split_name(name)[0], catalog, archs=selection.archs, allow=allow)
    if found.combination.base.fallbacks and not found.refusing:
        named = plan_named(name, selection)
        found = _with_locked_base(found, named.plan)
    if json:
        console.data_json(why_json(found))
    else:
        console.data(why_text(found))
    if found.refusing:
        raise typer.Exit(ExitCode.BAD_INPUT)


def _with_locked_base(found: Examination, plan: Plan) -> Examination:
    """The examination with the fallback that a lock has taken for the base, if it has."""
    base = found.combination.base.reference
    if plan.base.reference == base:
        return found
    why = f"taken when tk.lock was made, as the registry no longer had {base}"
    return replace(found, choices=(*found.choices, (plan.base.reference, why)))
