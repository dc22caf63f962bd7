"""`tk image lock`: write down what an image is built from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from compiler import UsageError, counted
from toolchain import console, options
from toolchain.commands.image import common, target
from toolchain.progress import progress_bar

if TYPE_CHECKING:
    from toolchain.engine.client import Engine
    from toolchain.images.lock.file import LockedImage
    from toolchain.images.plan import Pins, Plan
    from toolchain.provision.section import Section

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
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change; write nothing.")]
MirrorList = Annotated[
    bool, typer.Option("--mirror-list", help="Print what a mirror must hold so that the lock lasts.")
]


def lock_command(
    name: common.NameOrNone = None,
    update: Update = False,
    repair: Repair = False,
    trust_on_first_use: options.TrustOnFirstUse = False,
    image: Image = None,
    dry_run: DryRun = False,
    mirror_list: MirrorList = False,
    selection: common.SelectedUnlocked = common.NO_SELECTION,
    engine: common.Engine = common.ANY_ENGINE,
    json: options.Json = False,
) -> None:
    """Resolve what an image's recipe leaves open and write it into the project's tk.lock.

    The base's digest, the versions of all packages (asked of apt and pip inside the base), commits and the
    sha256 of downloads. Nothing is asked when the section is up to date, unless --update is given. The built
    image that it names stays when it was built from the same plan.
    """
    from toolchain.images.lock.pins import lock_path
    from toolchain.provision.obtain import trusting
    from toolchain.provision.section import Section

    if dry_run and (repair or image):
        other = "--repair" if repair else "--image"
        raise UsageError(f"--dry-run and {other} exclude each other", hint=f"{other} is there to write")
    if repair:
        _repair(json=json and name is None)
    if name is None:
        if repair:
            return
        raise UsageError("no image is named", hint="`tk image list` shows what can be named")
    chosen = _image(image)
    named = target.planned(name, replace(selection, lock=None))
    section = Section(named, lock_path())
    before = after = section.read()
    if before is None or update or not section.is_fresh():
        made = section.resolve(
            target.connect(engine),
            before=None if before is None else before.pins,
            update=update,
            trust=trusting(given=trust_on_first_use),
            say=lambda text: console.talk(f"resolving {text}"),
        )
        after = replace(made, built=None if before is None else before.built)
        if not dry_run:
            section.write(after)
    assert after is not None  # resolved above
    if not dry_run:
        after = _with_build(section, after, chosen, lambda: target.connect(engine))
    if mirror_list:
        _tell_mirror(named.planned(after.pins), after.pins, path_text=str(section.path), json=json)
        return
    _tell(before, after, path_text=str(section.path), json=json, dry_run=dry_run)


def _with_build(
    section: Section, after: LockedImage, chosen: tuple[str, str] | None, connect: Callable[[], Engine]
) -> LockedImage:
    """The section as it was written, without an image of another plan, or with the one that is `chosen`."""
    if why := section.drop_stale_build():
        console.talk(f"the lock names no image any more: {why}")
    if chosen is not None:
        with progress_bar(f"pulling {chosen[0]}@{chosen[1]}"):
            section.take_build(connect(), *chosen)
    return section.read() or after


def _repair(*, json: bool) -> None:
    """Put broken locks in order, the project's and the user's own, and say what became of them."""
    from toolchain.images.lock.pins import lock_path, user_lock
    from toolchain.images.lock.repair import repair_lock

    done = {path: repair_lock(path) for path in (lock_path(), user_lock()) if path.exists()}
    if json:
        console.data_json({"locks": [{"lock": path, "repaired": one} for path, one in done.items()]})
    if not done:
        console.talk(f"there is no {lock_path()}")
    for path, one in done.items():
        if one is None:
            console.talk(f"{path} is in order")
            continue
        console.talk(f"{path}: kept {', '.join(one.kept) or 'nothing'}; what stood there is in {one.backup}")
        for lost in one.lost:
            console.talk(f"{lost} could not be kept: `tk image lock {lost}` resolves it anew")


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


def _tell_mirror(plan: Plan, pins: Pins, *, path_text: str, json: bool) -> None:
    from toolchain.images.lock.mirror_list import mirror_list

    held = mirror_list(plan, pins)
    if json:
        console.data_json({"lock": path_text, "mirror": held})
        return
    console.data(
        console.table(("what", "name", "digest"), [(one.kind, one.name, one.digest) for one in held])
    )


def _tell(
    before: LockedImage | None, after: LockedImage, *, path_text: str, json: bool, dry_run: bool
) -> None:
    """Say what has changed, or what would change."""
    from toolchain.provision.locking import changes

    found = changes(before.pins if before else None, after.pins)
    differs = after != before
    if json:
        written = differs and not dry_run
        console.data_json({"lock": path_text, "written": written, "changes": found, "image": after.built})
        return
    rows = [(one.what, one.name, one.before or "-", one.after or "-") for one in found]
    if rows:
        console.data(console.table(("what", "name", "before", "after"), rows))
    if after.built is not None and not dry_run:
        console.talk(f"image: {after.built.reference}@{after.built.digest}")
    if not differs:
        console.talk(f"{path_text} is up to date")
        return
    console.talk(f"{path_text}: {counted(len(rows), 'change')}{', not written' if dry_run else ''}")
