"""Making a section of `tk.lock`: everything that a plan leaves open is asked for once and written down."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from compiler import BadInputError
from toolchain.engine import store
from toolchain.images.lock.apt import snapshot_at
from toolchain.images.lock.file import LockedImage
from toolchain.images.lock.pins import added_to, component_of, recipe_of
from toolchain.images.plan import UNRESOLVED, WHOLE_COMMIT, Pins, Plan
from toolchain.provision import origins
from toolchain.provision.base_choice import choose_base
from toolchain.provision.resolving import Packages, resolve_packages

if TYPE_CHECKING:
    from toolchain.engine.client import Engine
    from toolchain.recipes.schema import Archive
    from toolchain.site import SiteConfig

Replan = Callable[[Pins], Plan]
"""Makes the plan again, with pins."""
Say = Callable[[str], None]
Trust = Callable[[Sequence[str]], bool]
"""Whether what is listed may be taken as its server gives it now, although nobody else vouches for it."""


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
    trust: Trust = lambda _parts: False,
    say: Say = lambda _text: None,
) -> LockedImage:
    """Resolve everything that `plan`, made without a lock, leaves open.

    replan: makes the same plan with pins, so that later steps see what earlier ones found. keep: pins of an
    earlier lock, which are kept where they still exist. before: those that are replaced, kept or not; while
    packages have their versions, their snapshot stays. trust: is asked once for keys and commits that no
    source names. Raises HostError when something cannot be asked, BuildError when it does not exist, and
    BadInputError when it is not trusted.
    """
    old, last = keep or Pins(), before or keep or Pins()
    _ask(plan, unvouched(plan, old), trust)
    say(f"base {plan.base.reference}")
    digest, reference = choose_base(engine, plan, site, old, say)
    if reference:
        plan = replan(Pins(base_digest=digest, base_reference=reference))
    needs: dict[str, Pins] = {}
    for need in plan.needs:
        kind = component_of(need)
        needs[kind] = _sources(need, site, old.needs.get(kind, Pins()), trust, say)
    pins = _sources(plan, site, old, trust, say)
    pins = dataclasses.replace(pins, base_digest=digest, base_reference=reference, needs=needs)
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
    flat |= {(f"{prefix}trusted on first use", url): "yes" for url in pins.first_use}
    for name, one in pins.needs.items():
        flat |= _flat(one, name)
    return flat


def unvouched(plan: Plan, old: Pins) -> tuple[str, ...]:
    """Keys and commits that neither a recipe nor the pins of an earlier lock name, in words.

    As in a lock, components that others are built with stand beside these.
    """
    found = _unvouched(plan, old)
    for need in plan.needs:
        found += _unvouched(need, old.needs.get(component_of(need), Pins()))
    return tuple(dict.fromkeys(found))


def _unvouched(plan: Plan, old: Pins) -> list[str]:
    found = [
        f"the keys in {one.url}"
        for one in plan.downloads
        if one.is_key and not one.is_pinned and one.url not in old.downloads
    ]
    found += [
        f"the commit of {one.ref} in {one.url}"
        for one in plan.git
        if one.commit == UNRESOLVED and one.url not in old.git
    ]
    return found


def _ask(plan: Plan, parts: Sequence[str], trust: Trust) -> None:
    if parts and not trust(parts):
        raise BadInputError(
            f"{plan.name} has parts that nobody but the server they come from vouches for",
            why="\n".join(parts),
            hint="--trust-on-first-use takes what is there now and notes it in the lock; or name the key's"
            " fingerprint or the commit in a recipe of your site",
        )


def _sources(plan: Plan, site: SiteConfig, old: Pins, trust: Trust, say: Say) -> Pins:
    """Commits and checksums that the recipes leave open."""
    commits: dict[str, str] = {}
    checksums: dict[str, str] = {}
    first_use = []
    for tree in plan.git:
        if len(tree.commit) == WHOLE_COMMIT:
            continue
        say(f"commit of {tree.ref} in {tree.url}")
        commits[tree.url] = old.git.get(tree.url) or origins.resolve_commit(tree, site)
        if not commits[tree.url].startswith(tree.commit):
            first_use.append(tree.url)
            if tree.commit != UNRESOLVED and tree.url not in old.first_use:
                found = f"{tree.ref} in {tree.url} is at {commits[tree.url]}, the recipe says {tree.commit}"
                _ask(plan, (found,), trust)
    for file in plan.downloads:
        if not file.is_pinned:
            say(f"sha256 of {file.url}")
            checksums[file.url] = old.downloads.get(file.url) or origins.download(file.url, site)
            first_use += [file.url] if file.is_key else []
    return Pins(git=commits, downloads=checksums, first_use=tuple(sorted(first_use)))


def _pull_base(engine: Engine, plan: Plan, site: SiteConfig) -> None:
    """Get the base by its digest, from the site's mirror where there is one."""
    if not plan.base.stand_in and engine.image(plan.base.pinned) is None:
        store.pull_base(engine, site.mirrored_image(plan.base.pinned) or plan.base.pinned)
