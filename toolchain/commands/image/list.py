"""`tk image list`: what can be named, and what was shown to work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from compiler import TkError
from toolchain import console, options
from toolchain.commands.image import common

if TYPE_CHECKING:
    from toolchain.recipes.book import RecipeBook
    from toolchain.recipes.describe import Listed
    from toolchain.site import SiteConfig


def list_command(site: options.Site = None, json: options.Json = False) -> None:
    """List the images that can be named, their components, and what was shown to work.

    rendered: tried now, and read back. The others: yes with evidence of this very recipe, unknown with
    evidence of an earlier one, no without. Evidence is shipped, or lies beside the project's tk.lock in
    evidence.json, which `tk image publish` writes.
    """
    from toolchain.recipes.describe import list_components, list_images
    from toolchain.recipes.evidence import FILE, STATES, load_evidence
    from toolchain.site import project_directory

    book, config = common.open_recipes(site)
    records = (*load_evidence(), *load_evidence(project_directory() / FILE))
    images = [_rendered(one, book, config) for one in list_images(book, records)]
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
    bases = [base for stack in book.stacks.values() for one in stack.rows for base in one.row.bases]
    systems = ", ".join(f"+{one}" for one in sorted({base.system for base in bases}))
    console.data(f"another base where one is listed: {systems}")


def _rendered(image: Listed, book: RecipeBook, site: SiteConfig) -> Listed:
    """The same with what rendering it and reading it back shows."""
    from toolchain.images.parse_back import check
    from toolchain.images.planner import plan_image
    from toolchain.images.render import dockerfile
    from toolchain.recipes.resolve import resolve

    try:
        plan = plan_image(resolve(image.name, book, allow=site.allow), site=site)
        check(plan, dockerfile(plan))
    except TkError:
        return replace(image, states={**image.states, "rendered": "no"})
    return replace(image, states={**image.states, "rendered": "yes"})
