"""Making a section of `tk.lock`: everything that a plan leaves open is asked for once and written down."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from compiler import HostError
from toolchain.images import origins
from toolchain.images.apt_lock import snapshot_at
from toolchain.images.lock import LockedImage, added_to, component_of, recipe_of
from toolchain.images.plan import UNRESOLVED, Pins, Plan
from toolchain.images.resolving import Packages, resolve_packages

if TYPE_CHECKING:
    from toolchain.engine.client import Engine
    from toolchain.recipes.schema import Archive
    from toolchain.site import SiteConfig

Replan = Callable[[Pins], Plan]
"""Makes the plan again, with pins."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Change:
    """One pin that is new, another, or gone: empty texts stand for nothing."""

    what: str
    name: str
    before: str
    after: str


def lock_plan(
    engine: Engine,
    plan: Plan,
    site: SiteConfig,
    replan: Replan,
    *,
    keep: Pins | None = None,
    before: Pins | None = None,
    say: Say = lambda _text: None,
) -> LockedImage:
    """Resolve everything that `plan`, made without a lock, leaves open.

    replan: makes the same plan with pins, so that later steps see what earlier ones found. keep: pins of an
    earlier lock, which are kept where they still exist. before: those that are replaced, kept or not; while
    packages have their versions, their snapshot stays. Raises HostError when something cannot be asked and
    BuildError when it does not exist.
    """
    old, last = keep or Pins(), before or keep or Pins()
    say(f"base {plan.base.reference}")
    digest = _base_digest(engine, plan, site, old)
    needs: dict[str, Pins] = {}
    for need in plan.needs:
        kind = component_of(need)
        needs[kind] = _sources(need, site, old.needs.get(kind, Pins()), say)
    pins = dataclasses.replace(_sources(plan, site, old, say), base_digest=digest, needs=needs)
    known = replan(pins)
    _pull_base(engine, known, site)
    say(f"packages of {known.name}")
    archives = plan.resolution.system.archives if plan.resolution else ()
    found = resolve_packages(engine, known, site, archives=archives, keep=keep)
    for need in known.needs:
        say(f"packages of {need.name}")
        kind = component_of(need)
        part = resolve_packages(engine, need, site, archives=archives, keep=old.needs.get(kind))
        needs[kind] = _with_packages(needs[kind], part, last.needs.get(kind, Pins()), archives)
    pins = dataclasses.replace(_with_packages(pins, found, last, archives), needs=needs)
    return LockedImage(recipe_of(plan), plan.base.reference, pins, plan.base.stand_in, added=added_to(plan))


def _with_packages(pins: Pins, found: Packages, last: Pins, archives: Sequence[Archive]) -> Pins:
    """The pins with packages, and when the system's archives had them; the same versions keep their time."""
    same = last.snapshot if last.apt == found.apt else ""
    snapshot = (same or snapshot_at(datetime.now(UTC))) if archives and found.apt else ""
    return dataclasses.replace(pins, apt=found.apt, debs=found.debs, pip=found.pip, snapshot=snapshot)


def changes(before: Pins | None, after: Pins, where: str = "") -> tuple[Change, ...]:
    """What is different between two locks of one image, components included; sorted."""
    old, new = _flat(before or Pins(), where), _flat(after, where)
    return tuple(
        Change(what, name, old.get((what, name), ""), new.get((what, name), ""))
        for what, name in sorted({*old, *new})
        if old.get((what, name)) != new.get((what, name))
    )


def _flat(pins: Pins, where: str) -> dict[tuple[str, str], str]:
    prefix = f"{where}: " if where else ""
    flat = {(f"{prefix}base", "digest"): pins.base_digest} if pins.base_digest else {}
    flat |= {(f"{prefix}base", "taken"): pins.base_reference} if pins.base_reference else {}
    flat |= {(f"{prefix}snapshot", "apt"): pins.snapshot} if pins.snapshot else {}
    flat |= {(f"{prefix}apt", name): version for name, version in pins.apt.items()}
    flat |= {(f"{prefix}deb", name): one.sha256 for name, one in pins.debs.items()}
    flat |= {(f"{prefix}pip", name): version for name, (version, _) in pins.pip.items()}
    flat |= {(f"{prefix}git", url): commit for url, commit in pins.git.items()}
    flat |= {(f"{prefix}download", url): digest for url, digest in pins.downloads.items()}
    for name, one in pins.needs.items():
        flat |= _flat(one, name)
    return flat


def _sources(plan: Plan, site: SiteConfig, old: Pins, say: Say) -> Pins:
    """Commits and checksums that the recipes leave open."""
    commits, checksums = {}, {}
    for tree in plan.git:
        if tree.commit == UNRESOLVED:
            say(f"commit of {tree.ref} in {tree.url}")
            commits[tree.url] = old.git.get(tree.url) or origins.resolve_commit(tree, site)
    for file in plan.downloads:
        if file.sha256 == UNRESOLVED:
            say(f"sha256 of {file.url}")
            checksums[file.url] = old.downloads.get(file.url) or origins.download(file.url, site)
    return Pins(git=commits, downloads=checksums)


def _base_digest(engine: Engine, plan: Plan, site: SiteConfig, old: Pins) -> str:
    """The digest of the base; empty for a stand-in, which no registry has, and where the recipe has one."""
    if plan.base.stand_in or plan.base.digest != UNRESOLVED:
        return ""
    if old.base_digest:
        return old.base_digest
    reference = site.mirrored_image(plan.base.reference) or plan.base.reference
    with engine.guard(f"ask the registry for the digest of {reference}"):
        digest = origins.registry_digest(engine.api, reference)
    if not digest:
        raise HostError(
            f"no registry says the digest of {reference}",
            hint="check the network, `docker login`, or name a mirror in site.yaml (`mirrors.registry`)",
        )
    return digest


def _pull_base(engine: Engine, plan: Plan, site: SiteConfig) -> None:
    """Get the base by its digest, and give it the name by which the recipes know it."""
    if plan.base.stand_in or engine.image(plan.base.pinned) is not None:
        return
    reference = site.mirrored_image(plan.base.pinned) or plan.base.pinned
    with engine.guard(f"pull {reference}"):
        engine.api.pull(reference)
