"""Which images a lock stands for, whichever project it is of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compiler import TkError
from toolchain.images.formats.bake import every_need
from toolchain.images.lock.file import Lock, LockedImage, read_lock
from toolchain.images.planner import plan_image
from toolchain.recipes.additions import NOTHING, read_additions, split_name, with_additions
from toolchain.recipes.catalog import load_catalog
from toolchain.recipes.resolve import resolve
from toolchain.site import load_site


@dataclass(frozen=True, slots=True)
class LockUse:
    """A lock, the keys of its images' and their components' plans, and the hashes of its recipes."""

    path: Path
    plans: frozenset[str]
    recipes: frozenset[str]


def uses_of(path: Path) -> LockUse:
    """What the lock at `path` stands for; raises BadInputError when it cannot be read.

    A section whose recipe is not to be had from here (a site's own, that of another release of tk) has the
    hash of its recipe alone.
    """
    images = (read_lock(path) or Lock()).images
    plans: set[str] = {one.built.plan for one in images.values() if one.built is not None}
    for name, section in images.items():
        plans |= _plans(name, section, path.parent)
    return LockUse(path, frozenset(plans), frozenset(one.recipe for one in images.values()))


def _plans(name: str, section: LockedImage, folder: Path) -> set[str]:
    plain, _ = split_name(name)
    own = section.added
    try:
        site = load_site(start=folder)
        catalog = load_catalog(site.recipe_folders)
        scripts = [] if own is None else [folder / one for one in own.scripts]
        added = NOTHING if own is None else read_additions(own.apt, own.pip, scripts)
        resolution = with_additions(resolve(plain, catalog, allow=tuple(catalog.rules)), added)
        base = section.base if section.stand_in else None
        plan = plan_image(resolution, site=site, base=base, lock=section.pins)
    except TkError:
        return set()
    return {plan.key, *(one.key for one in every_need(plan))}
