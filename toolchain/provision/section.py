"""One section of a lock: resolved, written, and made by itself before a first build.

A build of an image that no lock fixes locks it first, so that the next one, here or by a colleague, is the
same. The section goes into the project's `tk.lock`; and into the user's own, which counts where there is no
project and for images on a stand-in base.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import HostError
from toolchain.engine.store import find_image, pull_reference
from toolchain.images.lock.file import Lock, LockedBuild, LockedImage, read_lock, update_lock
from toolchain.images.lock.pins import added_to, consult, project_lock, record_build, stale_build, user_lock
from toolchain.images.named import Named, with_pins
from toolchain.provision.locking import Say, Trust, lock_plan

if TYPE_CHECKING:
    from toolchain.engine.client import Engine
    from toolchain.images.plan import Pins


@dataclass(frozen=True, slots=True)
class Section:
    """The section of a named image in the lock at `path`."""

    named: Named
    path: Path

    def read(self) -> LockedImage | None:
        """The section as it is now; None when there is none."""
        return (read_lock(self.path) or Lock()).images.get(self.named.plan.section)

    def is_fresh(self) -> bool:
        """Whether its pins count."""
        return consult(self.named.plan, read_lock(self.path)).pins is not None

    def write(self, section: LockedImage) -> None:
        """Put it into the lock, which others may have changed meanwhile."""
        update_lock(self.path, lambda lock: lock.with_image(self.named.plan.section, section))

    def resolve(
        self,
        engine: Engine,
        *,
        before: Pins | None,
        trust: Trust,
        update: bool = False,
        say: Say = lambda _text: None,
    ) -> LockedImage:
        """Ask for everything that is open; unless `update`, pins of `before` are kept where they still exist.

        Raises as `lock_plan`, and when a stand-in base does not fit.
        """
        from toolchain.engine.build import check_base

        unlocked, keep = self.named.unlocked, None if update else before
        check_base(engine, unlocked)
        return lock_plan(
            engine, unlocked, self.named.site, self.named.planned,
            keep=keep, before=before, trust=trust, say=say,
        )  # fmt: skip

    def drop_stale_build(self) -> str:
        """Take an image of another plan out of the section; why, or nothing."""
        section = self.read()
        if section is None:
            return ""
        if why := stale_build(self.named.planned(section.pins), section.built):
            self.write(replace(section, built=None))
        return why

    def take_build(self, engine: Engine, reference: str, digest: str) -> None:
        """Pull an image, and name it in the section when it was built from that."""
        section = self.read()
        assert section is not None  # resolved before
        plan = self.named.planned(section.pins)
        if pull_reference(engine, plan, reference, digest) is None:
            raise HostError(
                f"the registry has no {reference}@{digest}", hint="`tk image push` prints what it has"
            )
        record_build(self.path, plan, reference, digest)


def lock_first(engine: Engine, named: Named, *, trust: Trust, say: Say) -> Named:
    """The same image with pins: those of its lock, else what is found out now and written down.

    Pins of a section that is out of date are kept where they still exist; so are those of the user's own
    lock, with which nobody wants an old version: only when the image is there does a project take them over
    as they are. Raises as `lock_plan`.
    """
    own = Section(named, user_lock())
    place = None if named.base is not None else project_lock()
    section = own if place is None else replace(own, path=place)
    if named.pins is not None and named.lock_file != own.path:
        return named
    if named.pins is not None and find_image(engine, named.plan):
        return named if place is None else _taken_over(named, own, section, say)
    old = section.read() or own.read()
    unfixed = "no lock fixes its versions yet"
    why = "; ".join(named.stale) or ("no image of what was locked before is here" if named.pins else unfixed)
    say(f"locking {named.plan.section} in {section.path}: {why}")
    made = section.resolve(engine, before=None if old is None else old.pins, trust=trust)
    if taken := made.pins.base_reference:
        say(f"its base is {taken}: no registry has {named.resolution.base.reference} any more")
    for path in dict.fromkeys((section.path, own.path)):
        _keep(replace(own, path=path), made)
    return with_pins(named, made.pins, section.path, _built(section))


def _taken_over(named: Named, own: Section, section: Section, say: Say) -> Named:
    """The same with the project's lock in place of the user's."""
    found = own.read()
    assert found is not None  # its pins count
    section.write(replace(found, added=added_to(named.plan, section.path)))
    say(f"{section.path} has {named.plan.section} as it was locked before")
    return replace(named, lock_file=section.path)


def _keep(section: Section, made: LockedImage) -> None:
    """Write the section; the image that it names stays in it."""
    old = section.read()
    built = None if old is None else old.built
    section.write(replace(made, built=built, added=added_to(section.named.plan, section.path)))


def _built(section: Section) -> LockedBuild | None:
    found = section.read()
    return None if found is None else found.built
