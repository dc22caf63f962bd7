"""What a mirror must hold so that a lock lasts: all that is fetched and that nobody else promises to keep.

Not among it: packages of archives that have snapshots, and Python packages, which their index keeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from toolchain.images.lock.pins import component_of
from toolchain.images.plan import UNRESOLVED, Pins, Plan

HeldKind = Literal["image", "deb", "download", "git"]


@dataclass(frozen=True, slots=True)
class Held:
    """One thing: an image's reference or a URL, and what it must be: digest, sha256, commit, key."""

    kind: HeldKind
    name: str
    digest: str


def mirror_list(plan: Plan, pins: Pins) -> tuple[Held, ...]:
    """What building `plan`, made with `pins`, fetches; components included, sorted, each once."""
    return tuple(sorted(set(_held(plan, pins)), key=lambda one: (one.kind, one.name)))


def _held(plan: Plan, pins: Pins) -> Iterator[Held]:
    if not plan.base.stand_in and plan.base.digest != UNRESOLVED:
        yield Held("image", plan.base.reference, plan.base.digest)
    yield from (Held("deb", one.url, one.sha256) for one in pins.debs.values())
    yield from (Held("download", one.url, one.fingerprint or one.sha256) for one in plan.downloads)
    yield from (Held("git", one.url, one.commit) for one in plan.git)
    for need in plan.needs:
        yield from _held(need, pins.needs.get(component_of(need), Pins()))
