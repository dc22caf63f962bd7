"""Options that the subcommands of `tk image` share, and the recipes that a site sees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from toolchain.recipes.additions import Additions
    from toolchain.recipes.book import RecipeBook
    from toolchain.site import SiteConfig

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="An image, for example `rocm-5.4+dpcpp-2022-12`; see list.")
]
NameOrNone = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="An image, for example `rocm-5.4+dpcpp-2022-12`; see list."),
]
Archs = Annotated[
    list[str] | None,
    typer.Option("--arch", metavar="ARCH", help="An arch to compile for, for example gfx906; repeatable."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="RULE", help="Ignore a rule that refuses; recorded; repeatable."),
]
Base = Annotated[
    str | None,
    typer.Option("--base", metavar="IMAGE", help="A local image that stands in for the recipe's base."),
]


WithApt = Annotated[
    list[str] | None,
    typer.Option("--with-apt", metavar="PACKAGE", help="One more Debian package in the image; repeatable."),
]
WithPip = Annotated[
    list[str] | None,
    typer.Option(
        "--with-pip", metavar="PACKAGE", help="One more Python package, as pip names it; repeatable."
    ),
]
WithFile = Annotated[
    list[Path] | None,
    typer.Option(
        "--with", metavar="FILE", help="A script that the build runs as root at its end; repeatable."
    ),
]


def additions(
    with_apt: list[str] | None, with_pip: list[str] | None, with_file: list[Path] | None
) -> Additions:
    """What `--with-apt`, `--with-pip` and `--with` add to an image."""
    from toolchain.recipes.additions import read_additions

    return read_additions(with_apt or (), with_pip or (), with_file or ())


def open_recipes(site: Path | None) -> tuple[RecipeBook, SiteConfig]:
    """The shipped recipes with the site's own, and the site."""
    from toolchain.recipes.book import load_book
    from toolchain.site import load_site

    config = load_site(site)
    return load_book(config.recipe_folders), config
