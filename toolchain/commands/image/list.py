"""`tk image list`: what can be named, and what was shown to work."""

from __future__ import annotations

from toolchain import console, options
from toolchain.commands.image import common


def list_command(site: common.Site = None, json: options.Json = False) -> None:
    """List the images that can be named, their components, and what was shown to work.

    yes: proved of this very recipe; unknown: proved before the recipe changed; no: not shown.
    """
    from toolchain.recipes.describe import list_components, list_images
    from toolchain.recipes.evidence import STATES, load_evidence

    book, _ = common.open_recipes(site)
    images = list_images(book, load_evidence())
    components = list_components(book)
    if json:
        console.data_json({"images": images, "components": components})
        return
    rows = [
        (one.name, one.stands_for if one.kind == "environment" else one.base, *one.states.values())
        for one in images
    ]
    console.data(console.table(("image", "base or combination", *STATES), rows))
    console.data("")
    parts = [
        (f"+{one['name']}", ", ".join(one["releases"]), one["title"])
        for one in components
        if not one["automatic"]
    ]
    console.data(console.table(("component", "releases", "what"), parts))
    console.data("")
    systems = sorted(
        {base.system for stack in book.stacks.values() for one in stack.rows for base in one.row.bases}
    )
    console.data(f"another base where one is listed: {', '.join(f'+{one}' for one in systems)}")
