"""Which lock a plan is built from: fresh, stale or none, and what `--locked` and `--frozen` make of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from compiler import BadInputError
from toolchain.images.lock.file import (
    Lock,
    LockedAdditions,
    LockedBuild,
    LockedImage,
    read_lock,
    update_lock,
)
from toolchain.images.lock.known import remember
from toolchain.images.plan import UNRESOLVED, WHOLE_COMMIT, Pins, Plan, Published
from toolchain.images.selection import LockMode
from toolchain.recipes.additions import NOTHING, Additions, read_additions
from toolchain.site import LOCK_NAME, find_project, project_directory

Planner = Callable[[Pins | None], Plan]
"""Plans an image, with the pins of a lock or without."""


@dataclass(frozen=True, slots=True)
class LockedPins:
    """A lock's pins for a plan, or None; `stale` are the reasons why those that are there do not count.

    `built` is the image that was built from pins that count, `path` the lock that has them.
    """

    pins: Pins | None
    stale: tuple[str, ...] = ()
    built: LockedBuild | None = None
    path: Path | None = None


def lock_path(start: Path | None = None) -> Path:
    """Where the project's `tk.lock` is, or would be."""
    return project_directory(start) / LOCK_NAME


def project_lock(start: Path | None = None) -> Path | None:
    """Where the project's `tk.lock` is, or would be; None outside of any project."""
    folder = find_project(start)
    return None if folder is None else folder / LOCK_NAME


def user_lock() -> Path:
    """The user's own lock, with what was locked by itself; it counts where no project has a section."""
    from platformdirs import user_state_path

    return user_state_path("tk", appauthor=False) / LOCK_NAME


def plan_locked(
    name: str, planned: Planner, mode: LockMode = "auto", *, start: Path | None = None
) -> tuple[Plan, LockedPins]:
    """The plan by what the project's lock says in the section `name`, or else the user's own; see `consult`.

    An own one that does not count is passed over; one in place of a stale one counts for stand-in bases only.
    """
    stale: tuple[str, ...] = ()
    own = user_lock()
    for path in (lock_path(start), own):
        lock = read_lock(path)
        section = None if lock is None else lock.images.get(name)
        if section is None and mode == "auto":
            continue
        plan = planned(None if section is None else section.pins)
        found = consult(plan, lock, mode, where=str(path))
        if found.pins is not None:
            if path != own:
                remember(path)
            return plan, replace(found, path=path)
        stale = stale if path == own else found.stale
        if not plan.base.stand_in:
            break
    return planned(None), LockedPins(None, stale)


def consult(plan: Plan, lock: Lock | None, mode: LockMode = "auto", *, where: str = LOCK_NAME) -> LockedPins:
    """What `lock` says for a plan, whether or not that was made with its pins.

    Raises BadInputError in mode `locked` when there is no section or it is stale, and in mode `frozen` when
    there is none or it leaves open what the plan asks for.
    """
    section = None if lock is None else lock.images.get(plan.section)
    if section is None:
        if mode != "auto":
            raise _refused(plan, where, f"it has no section for {plan.section}", mode)
        return LockedPins(None)
    gaps = tuple(_gaps(plan, section.pins))
    reasons = gaps if mode == "frozen" else (*_changes(plan, section), *gaps)
    if not reasons:
        return LockedPins(section.pins, built=section.built)
    if mode != "auto":
        raise _refused(plan, where, "\n".join(reasons), mode)
    return LockedPins(None, reasons)


def stale_build(plan: Plan, built: LockedBuild | None) -> str:
    """Why the image that a lock names is not one of this plan; empty when it is, or when none is named."""
    if built is None or built.plan == plan.key:
        return ""
    return f"{built.reference} was built from the plan {built.plan[:12]}, today's is {plan.key[:12]}"


def publish(
    plan: Plan, built: LockedBuild | None, mode: LockMode = "auto", *, where: str = LOCK_NAME
) -> tuple[Plan, str]:
    """The plan with where its image can be pulled, by what a lock's section says, and a warning or nothing.

    An image of another plan is not used, which the warning says. Raises BadInputError for one in mode
    `locked`. In mode `frozen` no registry is asked by name.
    """
    why = stale_build(plan, built)
    if why and mode == "locked":
        raise BadInputError(
            f"the image that the lock names for {plan.name} is out of date, and --locked was given",
            where=where,
            why=why,
            hint=f"`tk image build {plan.section}` and `tk image push` name the new one,"
            f" `tk image lock {plan.section}` forgets the old one",
        )
    by_name = mode != "frozen"
    if built is None or why:
        return with_published(plan, Published(by_name=by_name)), why
    return with_published(plan, Published(built.reference, built.digest, by_name)), ""


def with_published(plan: Plan, published: Published) -> Plan:
    """The plan with where its image lies; a lock names none of its components, which may be had by name."""
    own = Published(by_name=published.by_name)
    needs = tuple(with_published(need, own) for need in plan.needs)
    return replace(plan, needs=needs, published=published)


def record_build(path: Path, plan: Plan, reference: str, digest: str) -> bool:
    """Write into the lock at `path` which image was built from a plan's section; whether that changed it.

    Raises BadInputError when the lock has no such section, HostError when it cannot be written.
    """
    lock, name = read_lock(path) or Lock(), plan.section
    if name not in lock.images:
        raise BadInputError(
            f"the lock has no section for {name}", where=str(path), hint=f"`tk image lock {name}` makes it"
        )
    section = replace(lock.images[name], built=LockedBuild(reference, digest, plan.key))
    return update_lock(path, lambda now: now.with_image(name, section))


def recipe_of(plan: Plan) -> str:
    """The hash of the recipes that a plan was made from."""
    if plan.resolution is None:
        raise ValueError("a plan without resolution has no recipe")
    return plan.resolution.recipe_hash


def component_of(need: Plan) -> str:
    """Which component a plan among `needs` builds: the name under which `Pins.needs` has its pins."""
    return need.repository.rpartition("/")[2]


def canonical(package: str) -> str:
    """The normal form of a Python package's name (packaging.python.org, name normalization)."""
    from packaging.utils import canonicalize_name

    return canonicalize_name(package)


def locked_additions(section: str) -> Additions:
    """What a lock, first the project's, says that a section has beside its recipe; nothing when none does."""
    for path in (lock_path(), user_lock()):
        found = (read_lock(path) or Lock()).images.get(section)
        if found is not None and found.added is not None:
            own = found.added
            return read_additions(own.apt, own.pip, [path.parent / one for one in own.scripts])
    return NOTHING


def added_to(plan: Plan, lock: Path | None = None) -> LockedAdditions | None:
    """What a lock, by default the project's, writes down of a plan's additions: scripts by relative paths.

    Those that are not below its folder by absolute ones.
    """
    added = NOTHING if plan.resolution is None else plan.resolution.additions
    if not added:
        return None
    folder = (lock or lock_path()).parent
    paths = (one.path.absolute() for one in added.scripts)
    shown = (one.relative_to(folder) if one.is_relative_to(folder) else one for one in paths)
    return LockedAdditions(added.apt, added.pip, tuple(one.as_posix() for one in shown))


def _changes(plan: Plan, section: LockedImage) -> Iterator[str]:
    if section.recipe != recipe_of(plan):
        yield f"the recipes of {plan.section} have changed since it was locked"
    if section.stand_in != plan.base.stand_in or (plan.base.stand_in and section.base != plan.base.reference):
        yield f"it was locked on the base {section.base}, this is {plan.base.reference}"


def _gaps(plan: Plan, pins: Pins) -> Iterator[str]:
    """What the plan and its components ask for that nothing pins; a base is pinned for all of them."""
    if not pins.base_digest and not plan.base.stand_in and plan.base.digest == UNRESOLVED:
        yield f"{plan.name}: no digest of the base {plan.base.reference}"
    if pins.base_reference and pins.base_reference not in _fallbacks(plan):
        yield f"{plan.name}: the recipe no longer has the fallback {pins.base_reference}"
    yield from _own_gaps(plan, pins)
    for need in plan.needs:
        if (kind := component_of(need)) in pins.needs:
            yield from _own_gaps(need, pins.needs[kind])
        else:
            yield f"{plan.name}: nothing on the component {kind}"


def _fallbacks(plan: Plan) -> list[str]:
    return [one.base.reference for one in plan.resolution.fallbacks] if plan.resolution else []


def _own_gaps(plan: Plan, pins: Pins) -> Iterator[str]:
    yield from _apt_gaps(plan, pins, plan.name)
    yield from _pip_gaps(plan, pins, plan.name)
    for tree in plan.git:
        if tree.url not in pins.git and len(tree.commit) < WHOLE_COMMIT:
            yield f"{plan.name}: no commit of {tree.url}"
    for file in plan.downloads:
        if not file.is_pinned and file.url not in pins.downloads:
            yield f"{plan.name}: no sha256 of {file.url}"


def _apt_gaps(plan: Plan, pins: Pins, name: str) -> Iterator[str]:
    for asked in plan.apt:
        package, _, version = asked.partition("=")
        found = pins.apt.get(package) or pins.apt.get(package.partition(":")[0])
        if found is None:
            yield f"{name}: no version of the apt package {package}"
        elif version and version != found:
            yield f"{name}: apt package {package} is asked for in version {version}, locked in {found}"


def _pip_gaps(plan: Plan, pins: Pins, name: str) -> Iterator[str]:
    from packaging.requirements import Requirement

    for asked in plan.pip:
        requirement = Requirement(asked)
        found = pins.pip.get(canonical(requirement.name))
        if found is None:
            yield f"{name}: no version of the Python package {requirement.name}"
        elif not requirement.specifier.contains(found[0], prereleases=True):
            yield f"{name}: Python package {asked} is locked in version {found[0]}"


def _refused(plan: Plan, where: str, why: str, mode: LockMode) -> BadInputError:
    how = "--locked" if mode == "locked" else "--frozen"
    return BadInputError(
        f"the lock does not fit {plan.name}, and {how} was given",
        where=where,
        why=why,
        hint=f"`tk image lock {plan.typed}` brings it up to date; review and commit the difference",
    )
