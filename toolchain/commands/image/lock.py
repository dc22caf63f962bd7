"""`tk image lock`: write down what an image is built from."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compiler import HostError, UsageError
from toolchain import console, options
from toolchain.commands.image import common, target

if TYPE_CHECKING:
    from toolchain.engine.client import Engine
    from toolchain.images.lock import LockedImage
    from toolchain.images.locking import Change
    from toolchain.images.plan import Pins, Plan
    from toolchain.site import SiteConfig

_IMAGE = re.compile(r"(?P<reference>[A-Za-z0-9][A-Za-z0-9./:_-]*)@(?P<digest>sha256:[0-9a-f]{64})")
Image = Annotated[
    str | None,
    typer.Option(
        "--image",
        metavar="REFERENCE@sha256:...",
        help="The built image that everybody gets, as `push` printed it; it is pulled and checked.",
    ),
]
Update = Annotated[
    bool, typer.Option("--update", help="Ask for everything anew; otherwise pins that still exist are kept.")
]
Repair = Annotated[
    bool,
    typer.Option(
        "--repair",
        help="First mend a tk.lock that is broken or half merged; then NAME may be left out.",
    ),
]
MirrorList = Annotated[
    bool, typer.Option("--mirror-list", help="Print what a mirror must hold so that the lock lasts.")
]


def lock_command(
    name: common.NameOrNone = None,
    update: Update = False,
    repair: Repair = False,
    image: Image = None,
    mirror_list: MirrorList = False,
    arch: common.Archs = None,
    allow: common.Allow = None,
    with_apt: common.WithApt = None,
    with_pip: common.WithPip = None,
    with_file: common.WithFile = None,
    base: common.Base = None,
    site: options.Site = None,
    docker_host: options.DockerHost = None,
    engine_name: options.EngineName = None,
    json: options.Json = False,
) -> None:
    """Resolve what an image's recipe leaves open and write it into the project's tk.lock.

    The base's digest, the versions of all packages (asked of apt and pip inside the base), commits and the
    sha256 of downloads. Nothing is asked when the section is up to date, unless --update is given. The built
    image that it names stays when it was built from the same plan.
    """
    from toolchain.images.lock import lock_path
    from toolchain.images.named import plan_named

    if repair:
        _repair(lock_path(), json=json and name is None)
    if name is None:
        if repair:
            return
        raise UsageError("no image is named", hint="`tk image list` shows what can be named")
    chosen = _image(image)
    named = plan_named(
        name, site_file=site, archs=arch or (), allow=allow or (), base=base, lock=None,
        additions=common.additions(with_apt, with_pip, with_file),
    )  # fmt: skip
    for warning in named.warnings:
        console.warn(warning)
    work = _Work(named.plan, named.site, base, lock_path())
    before = work.section()
    if before is None or update or not work.is_fresh():
        work.resolve(target.connect(docker_host, engine_name), update=update)
    work.drop_stale_build()
    if chosen is not None:
        work.take_build(target.connect(docker_host, engine_name), *chosen)
    work.tell(before, json=json, mirror_list=mirror_list)


def _repair(path: Path, *, json: bool) -> None:
    """Put a broken lock in order, and say what became of it."""
    from toolchain.images.lock_mend import repair_lock

    done = repair_lock(path)
    if json:
        console.data_json({"lock": path, "repaired": done})
    if done is None:
        console.talk(f"{path} is in order" if path.exists() else f"there is no {path}")
        return
    console.talk(f"{path}: kept {', '.join(done.kept) or 'nothing'}; what stood there is in {done.backup}")
    for one in done.lost:
        console.talk(f"{one} could not be kept: `tk image lock {one}` resolves it anew")


def _image(text: str | None) -> tuple[str, str] | None:
    """Reference and digest of `--image`."""
    if text is None:
        return None
    found = _IMAGE.fullmatch(text)
    if found is None:
        raise UsageError(
            f"`{text}` is no image with its digest",
            where="--image",
            hint="REFERENCE@sha256: and 64 hex digits",
        )
    return found["reference"], found["digest"]


@dataclass(frozen=True, slots=True)
class _Work:
    """One section of the lock at `path`; `plan` was made without it, on the stand-in `base` or none."""

    plan: Plan
    site: SiteConfig
    base: str | None
    path: Path

    def section(self) -> LockedImage | None:
        """The section as it is now."""
        from toolchain.images.lock import Lock, read_lock

        return (read_lock(self.path) or Lock()).images.get(self.plan.section)

    def is_fresh(self) -> bool:
        """Whether its pins count."""
        from toolchain.images.lock import consult, read_lock

        return consult(self.plan, read_lock(self.path)).pins is not None

    def planned(self, pins: Pins) -> Plan:
        """The plan with pins."""
        from toolchain.images.planner import plan_image

        assert self.plan.resolution is not None  # it was named
        return plan_image(self.plan.resolution, site=self.site, base=self.base, lock=pins)

    def write(self, section: LockedImage) -> None:
        """Put it into the lock, which others may have changed meanwhile."""
        from toolchain.images.lock import Lock, read_lock, write_lock

        write_lock(self.path, (read_lock(self.path) or Lock()).with_image(self.plan.section, section))

    def resolve(self, engine: Engine, *, update: bool) -> None:
        """Ask for everything; the image that was named stays in the section for now."""
        from toolchain.engine.build import check_base
        from toolchain.images.locking import lock_plan

        old = self.section()
        check_base(engine, self.plan)
        new = lock_plan(
            engine,
            self.plan,
            self.site,
            self.planned,
            keep=None if update or old is None else old.pins,
            before=None if old is None else old.pins,
            say=lambda text: console.talk(f"resolving {text}"),
        )
        self.write(replace(new, built=None if old is None else old.built))

    def drop_stale_build(self) -> None:
        """Take an image of another plan out of the section."""
        from toolchain.images.lock import stale_build

        section = self.section()
        if section is None or section.built is None:
            return
        if why := stale_build(self.planned(section.pins), section.built):
            self.write(replace(section, built=None))
            console.talk(f"the lock names no image any more: {why}")

    def take_build(self, engine: Engine, reference: str, digest: str) -> None:
        """Pull an image, and name it in the section when it was built from that."""
        from toolchain.engine.store import pull_reference
        from toolchain.images.lock import record_build

        section = self.section()
        assert section is not None  # resolved before
        plan = self.planned(section.pins)
        with console.progress(f"pulling {reference}@{digest}"):
            found = pull_reference(engine, plan, reference, digest)
        if found is None:
            raise HostError(
                f"the registry has no {reference}@{digest}", hint="`tk image push` prints what it has"
            )
        record_build(self.path, plan, reference, digest)

    def tell(self, before: LockedImage | None, *, json: bool, mirror_list: bool) -> None:
        """Say what has changed since `before`, or what a mirror must hold."""
        from toolchain.images.locking import changes

        after = self.section()
        assert after is not None  # resolved before
        if mirror_list:
            _tell_mirror(self.planned(after.pins), after.pins, path_text=str(self.path), json=json)
            return
        found = changes(before.pins if before else None, after.pins)
        _tell(found, after, path_text=str(self.path), json=json, written=after != before)


def _tell_mirror(plan: Plan, pins: Pins, *, path_text: str, json: bool) -> None:
    from toolchain.images.mirror_list import mirror_list

    held = mirror_list(plan, pins)
    if json:
        console.data_json({"lock": path_text, "mirror": held})
        return
    console.data(
        console.table(("what", "name", "digest"), [(one.kind, one.name, one.digest) for one in held])
    )


def _tell(
    found: tuple[Change, ...], section: LockedImage, *, path_text: str, json: bool, written: bool
) -> None:
    if json:
        facts = {"lock": path_text, "written": written, "changes": found, "image": section.built}
        console.data_json(facts)
        return
    rows = [(one.what, one.name, one.before or "-", one.after or "-") for one in found]
    if rows:
        console.data(console.table(("what", "name", "before", "after"), rows))
    if section.built is not None:
        console.talk(f"image: {section.built.reference}@{section.built.digest}")
    console.talk(f"{path_text}: {len(rows)} changes" if written else f"{path_text} is up to date")
