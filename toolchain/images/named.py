"""From a name as typed to a plan: recipes, site, waivers and lock, the same way for every command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolchain.images.lock.file import LockedBuild
from toolchain.images.lock.pins import lock_path, locked_additions, plan_locked, publish
from toolchain.images.plan import Pins, Plan
from toolchain.images.planner import plan_image
from toolchain.images.selection import NO_SELECTION, LockMode, Selection
from toolchain.recipes.additions import NOTHING, Additions, check_digits, split_name, with_additions
from toolchain.recipes.catalog import RecipeCatalog, load_catalog
from toolchain.recipes.resolve import Resolution, resolve
from toolchain.site import SiteConfig, load_site


@dataclass(frozen=True, slots=True)
class Named:
    """The plan of a named image, the site that it was made for, and what the rules and the lock warn about.

    `base` is a stand-in for that of the recipe. `pins` are those of `lock_file` that the plan was made with,
    or None; `stale` says why those of a lock do not count.
    """

    plan: Plan
    site: SiteConfig
    warnings: tuple[str, ...]
    resolution: Resolution
    base: str | None = None
    pins: Pins | None = None
    lock_file: Path | None = None
    stale: tuple[str, ...] = ()

    def planned(self, pins: Pins | None = None) -> Plan:
        """The plan with other pins, or without any."""
        return plan_image(self.resolution, site=self.site, base=self.base, lock=pins)

    @property
    def unlocked(self) -> Plan:
        """The plan without a lock's pins."""
        return self.plan if self.pins is None else self.planned()


def plan_named(
    name: str,
    selection: Selection = NO_SELECTION,
    *,
    ready: bool = True,
    locks: bool = False,
) -> Named:
    """The plan of the image that `name` stands for, as the `selection` says.

    `ready` is whether the image that a lock names counts, too; `locks` that the caller brings a lock up to
    date, so that nobody need be told. A name with `+with-DIGITS` and no additions stands for those that the
    lock has in its section. Raises UsageError for an unknown name, BadInputError when a rule refuses it or
    the lock does not fit.
    """
    site = load_site(selection.site)
    catalog = load_catalog(site.recipe_folders)
    allow = (*site.allow, *selection.allow)
    resolution = resolve_named(
        name, catalog, archs=selection.archs, allow=allow, additions=selection.additions
    )
    return plan_resolved(resolution, site, selection.base, selection.lock, ready=ready, locks=locks)


def plan_resolved(
    resolution: Resolution,
    site: SiteConfig,
    base: str | None = None,
    lock: LockMode | None = "auto",
    *,
    ready: bool = True,
    locks: bool = False,
) -> Named:
    """The plan of what a name was resolved to, with a stand-in `base`; the rest as `plan_named`."""
    warnings = tuple(
        f"{one.because} ({one.rule}; {one.source})" for one in resolution.findings if one.verdict == "warn"
    )

    def planned(pins: Pins | None) -> Plan:
        return plan_image(resolution, site=site, base=base, lock=pins)

    if lock is None:
        return Named(planned(None), site, warnings, resolution, base)
    plan, locked = plan_locked(resolution.section, planned, lock)
    if locked.stale and not locks:
        again = f"`tk image lock {plan.section}` brings it up to date"
        warnings = (*warnings, f"tk.lock does not count: {'; '.join(locked.stale)}; {again}")
    named = Named(plan, site, warnings, resolution, base, locked.pins, locked.path, locked.stale)
    return _published(named, locked.built if ready else None, lock)


def resolve_named(
    name: str,
    catalog: RecipeCatalog,
    *,
    archs: Sequence[str],
    allow: Sequence[str],
    additions: Additions | None = None,
) -> Resolution:
    """What a name stands for, with additions: those given, or for `+with-DIGITS` those of a lock."""
    plain, digits = split_name(name)
    additions = additions or NOTHING
    if digits:
        additions = additions or locked_additions(name)
        check_digits(name, digits, additions, str(lock_path()))
    return with_additions(resolve(plain, catalog, archs=archs, allow=allow), additions)


def with_pins(named: Named, pins: Pins, lock_file: Path, built: LockedBuild | None) -> Named:
    """The same image planned with the pins of a lock, and pulled as the lock says where it names one."""
    return _published(replace(named, plan=named.planned(pins), pins=pins, lock_file=lock_file), built, "auto")


def _published(named: Named, built: LockedBuild | None, lock: LockMode) -> Named:
    """The same with where its image lies, and a warning where that of the lock does not count."""
    where = str(named.lock_file or lock_path())
    plan, stale = publish(named.plan, _at(named.site, built), lock, where=where)
    said = (f"the image in tk.lock does not count: {stale}",) if stale else ()
    return replace(named, plan=plan, warnings=(*named.warnings, *said))


def _at(site: SiteConfig, built: LockedBuild | None) -> LockedBuild | None:
    """The image that a lock names, where this site gets it."""
    mirror = site.mirrored_image(built.reference) if built is not None else ""
    return replace(built, reference=mirror) if built is not None and mirror else built
