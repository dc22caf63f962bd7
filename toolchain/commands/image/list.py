"""`tk image list`: what can be named, and what was shown to work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from compiler import HostError, TkError
from toolchain import console, options
from toolchain.commands.image import common
from toolchain.engine.choice import EngineChoice

if TYPE_CHECKING:
    from toolchain.recipes.catalog import RecipeCatalog
    from toolchain.recipes.describe import Listed
    from toolchain.site import SiteConfig

_SECONDS = 2.0
"""How long a list waits for an engine that it does not need."""


def list_command(
    site: options.Site = None,
    engine: common.Engine = common.ANY_ENGINE,
    json: options.Json = False,
) -> None:
    """List the images that can be named, their components, and what was shown to work.

    rendered: tried now, and read back. The others: yes with evidence of this very recipe, unknown with
    evidence of an earlier one, no without. Evidence is shipped, or lies beside the project's tk.lock in
    evidence.json, which `tk image publish` writes. built: `here` where the engine has one of that name.
    """
    from toolchain.recipes.describe import list_components, list_recipes
    from toolchain.recipes.evidence import FILE, STATES, load_evidence
    from toolchain.site import project_directory

    catalog, config = common.open_recipes(site)
    records = (*load_evidence(), *load_evidence(project_directory() / FILE))
    images = [_rendered(one, catalog, config) for one in list_recipes(catalog, records)]
    components = list_components(catalog)
    here = _here(engine)
    if json:
        found = [{**console.jsonable(one), "here": here.get(one.stands_for, [])} for one in images]
        console.data_json({"images": found, "components": components})
        return
    rows = [
        (
            one.name,
            one.stands_for if one.kind == "environment" else one.base,
            *_states(one, here.get(one.stands_for, [])),
        )
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
    bases = [base for stack in catalog.stacks.values() for one in stack.rows for base in one.row.bases]
    systems = ", ".join(f"+{one}" for one in sorted({base.system for base in bases}))
    console.data(f"another base where one is listed: {systems}")


def _here(engine: EngineChoice) -> dict[str, list[dict[str, str]]]:
    """Images that an engine has, by the names of their recipes; none where no engine answers at once."""
    from toolchain.engine.client import open_chosen
    from toolchain.engine.store import list_images

    found: dict[str, list[dict[str, str]]] = {}
    try:
        for one in list_images(open_chosen(engine, seconds=_SECONDS)):
            found.setdefault(one.name, []).append({"reference": one.references[0], "state": one.state})
    except HostError:
        if engine != common.ANY_ENGINE:  # it was asked for
            raise
    return found


def _states(image: Listed, here: list[dict[str, str]]) -> list[str]:
    """What was shown of an image, and whether it is here: on its own base, or on a stand-in."""
    own = any(one["state"] == "built" for one in here)
    built = {"built": "here" if own else "here, on a stand-in"} if here else {}
    return list({**image.states, **built}.values())


def _rendered(image: Listed, catalog: RecipeCatalog, site: SiteConfig) -> Listed:
    """The same with what rendering it and reading it back shows."""
    from toolchain.images.planner import plan_image
    from toolchain.images.render import dockerfile
    from toolchain.recipes.resolve import resolve

    try:
        dockerfile(plan_image(resolve(image.name, catalog, allow=site.allow), site=site))  # and reads it back
    except TkError:
        return replace(image, states={**image.states, "rendered": "no"})
    return replace(image, states={**image.states, "rendered": "yes"})
