"""Options that the subcommands of `tk image` share, and the recipes that a site sees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolchain import options
from toolchain.engine.choice import ANY_ENGINE as ANY_ENGINE
from toolchain.engine.choice import EngineChoice
from toolchain.images.selection import NO_SELECTION as NO_SELECTION
from toolchain.images.selection import Selection, lock_mode

if TYPE_CHECKING:
    from toolchain.recipes.catalog import RecipeCatalog
    from toolchain.site import SiteConfig

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="An image, for example `rocm-5.4+dpcpp-2022-12`; see list.")
]
NameOrNone = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="An image, for example `rocm-5.4+dpcpp-2022-12`; see list."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="RULE", help="Ignore a rule that refuses; recorded; repeatable."),
]


def selection(
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="IMAGE", help="A local image that stands in for the recipe's base."),
    ] = None,
    site: options.Site = None,
    arch: Annotated[
        list[str] | None,
        typer.Option(
            "--arch", metavar="ARCH", help="An arch to compile for, for example gfx906; repeatable."
        ),
    ] = None,
    allow: Allow = None,
    with_apt: Annotated[
        list[str] | None,
        typer.Option(
            "--with-apt", metavar="PACKAGE", help="One more Debian package in the image; repeatable."
        ),
    ] = None,
    with_pip: Annotated[
        list[str] | None,
        typer.Option(
            "--with-pip", metavar="PACKAGE", help="One more Python package, as pip names it; repeatable."
        ),
    ] = None,
    with_file: Annotated[
        list[Path] | None,
        typer.Option(
            "--with", metavar="FILE", help="A script that the build runs as root at its end; repeatable."
        ),
    ] = None,
    locked: options.Locked = False,
    frozen: options.Frozen = False,
) -> Selection:
    """What the options select beside the name of an image."""
    additions = None
    if with_apt or with_pip or with_file:
        from toolchain.recipes.additions import read_additions

        additions = read_additions(with_apt or (), with_pip or (), with_file or ())
    mode = lock_mode(locked=locked, frozen=frozen)
    return Selection(site, tuple(arch or ()), tuple(allow or ()), base, additions, mode)


def engine_choice(docker_host: options.DockerHost = None, engine: options.EngineName = None) -> EngineChoice:
    """The engine that the options name."""
    return EngineChoice(docker_host, engine)


_ADDED = ("with_apt", "with_pip", "with_file")
_LOCKS = ("locked", "frozen")
Engine = Annotated[EngineChoice, options.Depends(engine_choice)]
Selected = Annotated[Selection, options.Depends(selection)]
SelectedUnlocked = Annotated[Selection, options.Depends(selection, without=_LOCKS)]
SelectedBase = Annotated[Selection, options.Depends(selection, without=(*_ADDED, *_LOCKS))]
SelectedRecipe = Annotated[Selection, options.Depends(selection, without=("base", *_ADDED, *_LOCKS))]
SelectedToRun = Annotated[Selection, options.Depends(selection, without=("base",))]
SelectedPlace = Annotated[Selection, options.Depends(selection, without=("base", "arch", "allow"))]
SelectedByName = Annotated[Selection, options.Depends(selection, without=("arch", "allow"))]


def open_recipes(site: Path | None) -> tuple[RecipeCatalog, SiteConfig]:
    """The shipped recipes with the site's own, and the site."""
    from toolchain.recipes.catalog import load_catalog
    from toolchain.site import load_site

    config = load_site(site)
    return load_catalog(config.recipe_folders), config
