"""From a name as typed to a plan: recipes, site, waivers and lock, the same way for every command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolchain.images.lock.file import LockedBuild
from toolchain.images.lock.pins import LockMode, lock_path, locked_additions, pins_for, publish
from toolchain.images.plan import Pins, Plan
from toolchain.images.planner import plan_image
from toolchain.recipes.additions import NOTHING, Additions, check_digits, split_name, with_additions
from toolchain.recipes.book import RecipeBook, load_book
from toolchain.recipes.resolve import Resolution, resolve
from toolchain.site import SiteConfig, load_site


@dataclass(frozen=True, slots=True)
class Named:
    """The plan of a named image, the site that it was made for, and what the rules and the lock warn about.

    `pins` are those of `lock_file` that the plan was made with, or None; `unlocked` is the plan without them,
    `stale` says why those of a lock do not count.
    """

    plan: Plan
    site: SiteConfig
    warnings: tuple[str, ...]
    unlocked: Plan
    pins: Pins | None = None
    lock_file: Path | None = None
    stale: tuple[str, ...] = ()


def plan_named(
    name: str,
    *,
    site_file: Path | None = None,
    archs: Sequence[str] = (),
    allow: Sequence[str] = (),
    base: str | None = None,
    lock: LockMode | None = "auto",
    ready: bool = True,
    additions: Additions = NOTHING,
    locks: bool = False,
) -> Named:
    """The plan of the image that `name` stands for, with a user's `additions`.

    `site_file` is that of `--site`, by default the usual ones; `allow` are waived rules on top of the site's;
    `base` is a local stand-in for the recipe's base; `lock` says how the project's `tk.lock` counts, None
    that it does not; `ready` whether the image that it names counts, too; `locks` that the caller brings a
    lock up to date, so that nobody need be told. A name with `+with-DIGITS` and no additions stands for those
    that the lock has in its section. Raises UsageError for an unknown name, BadInputError when a rule refuses
    it or the lock does not fit.
    """
    site = load_site(site_file)
    book = load_book(site.recipe_folders)
    resolution = resolve_named(name, book, archs=archs, allow=(*site.allow, *allow), additions=additions)
    warnings = tuple(
        f"{one.because} ({one.rule}; {one.source})" for one in resolution.findings if one.verdict == "warn"
    )
    plan = plan_image(resolution, site=site, base=base)
    if lock is None:
        return Named(plan, site, warnings, plan)
    locked = pins_for(plan, lock)
    if locked.stale and not locks:
        again = f"`tk image lock {plan.section}` brings it up to date"
        warnings = (*warnings, f"tk.lock does not count: {'; '.join(locked.stale)}; {again}")
    named = Named(plan, site, warnings, plan, stale=locked.stale)
    return with_pins(named, locked.pins, locked.path, locked.built if ready else None, lock)


def resolve_named(
    name: str, book: RecipeBook, *, archs: Sequence[str], allow: Sequence[str], additions: Additions = NOTHING
) -> Resolution:
    """What a name stands for, with additions: those given, or for `+with-DIGITS` those of a lock."""
    plain, digits = split_name(name)
    if digits:
        additions = additions or locked_additions(name)
        check_digits(name, digits, additions, str(lock_path()))
    return with_additions(resolve(plain, book, archs=archs, allow=allow), additions)


def with_pins(
    named: Named,
    pins: Pins | None,
    lock_file: Path | None,
    built: LockedBuild | None,
    lock: LockMode = "auto",
) -> Named:
    """The same image planned with the pins of a lock, and pulled as the lock says where it names one."""
    plan, warnings = named.unlocked, named.warnings
    if pins is not None:
        assert plan.resolution is not None  # it was named
        base = plan.base.reference if plan.base.stand_in else None
        plan = plan_image(plan.resolution, site=named.site, base=base, lock=pins)
    plan, stale = publish(plan, _at(named.site, built), lock, where=str(lock_file or lock_path()))
    if stale:
        warnings = (*warnings, f"the image in tk.lock does not count: {stale}")
    return replace(named, plan=plan, warnings=warnings, pins=pins, lock_file=lock_file)


def _at(site: SiteConfig, built: LockedBuild | None) -> LockedBuild | None:
    """The image that a lock names, where this site gets it."""
    mirror = site.mirrored_image(built.reference) if built is not None else ""
    return replace(built, reference=mirror) if built is not None and mirror else built
