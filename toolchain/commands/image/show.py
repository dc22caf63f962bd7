"""`tk image show`: what is in an image and where it comes from."""

from __future__ import annotations

from toolchain import console, options
from toolchain.commands.image import common


def show_command(
    name: common.Name,
    selection: common.SelectedRecipe = common.NO_SELECTION,
    json: options.Json = False,
) -> None:
    """Show what a name stands for: base, packages, components, settings, and the source of each."""
    from toolchain.images.named import resolve_named
    from toolchain.recipes.describe import show_json, show_text

    catalog, config = common.open_recipes(selection.site)
    allow = (*config.allow, *selection.allow)
    found = resolve_named(name, catalog, archs=selection.archs, allow=allow)
    if json:
        console.data_json(show_json(found))
    else:
        console.data(show_text(found))
