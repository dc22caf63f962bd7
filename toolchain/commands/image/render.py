"""`tk image render`: what would be built, as text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import compiler
from toolchain import console


def render_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An image, for example `rocm-5.4`.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Write the whole build context into this folder."),
    ] = None,
) -> None:
    """Show the Dockerfile of an image, or write everything that a build reads."""
    from toolchain.images.planner import plan_image
    from toolchain.images.render import context, dockerfile
    from toolchain.recipes.book import load_book
    from toolchain.recipes.resolve import resolve
    from toolchain.site import load_site

    site = load_site()
    plan = plan_image(resolve(name, load_book(site.recipe_folders), allow=site.allow), site=site)
    if output is None:
        console.data(dockerfile(plan).rstrip("\n"))
        return
    for file in context(plan):
        compiler.write_atomic(output / file.path, file.data, mode=file.mode)
