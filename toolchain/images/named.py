"""From a name as typed to a plan: recipes, the site and its waivers, the same way for every command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from toolchain.images.plan import Plan
from toolchain.images.planner import plan_image
from toolchain.recipes.book import load_book
from toolchain.recipes.resolve import resolve
from toolchain.site import SiteConfig, load_site


@dataclass(frozen=True, slots=True)
class Named:
    """The plan of a named image, the site that it was made for, and what the rules warn about."""

    plan: Plan
    site: SiteConfig
    warnings: tuple[str, ...]


def plan_named(
    name: str,
    *,
    site_file: Path | None = None,
    archs: Sequence[str] = (),
    allow: Sequence[str] = (),
    base: str | None = None,
) -> Named:
    """The plan of the image that `name` stands for.

    `site_file` is that of `--site`, by default the usual ones; `allow` are waived rules on top of the site's;
    `base` is a local stand-in for the recipe's base. Raises UsageError for an unknown name, BadInputError
    when a rule refuses it.
    """
    site = load_site(site_file)
    book = load_book(site.recipe_folders)
    resolution = resolve(name, book, archs=archs, allow=(*site.allow, *allow))
    warnings = tuple(
        f"{one.because} ({one.rule}; {one.source})" for one in resolution.findings if one.verdict == "warn"
    )
    return Named(plan_image(resolution, site=site, base=base), site, warnings)
