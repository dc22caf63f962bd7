"""What `tk image rm` and `prune` have in common: which locks still want an image, and the question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compiler import BadInputError, UsageError, counted
from toolchain import console

if TYPE_CHECKING:
    from toolchain.engine.store import StoredImage

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Remove it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List what would be removed.")]


def wanted_by_locks(images: Sequence[StoredImage]) -> Mapping[str, Path]:
    """Ids of images that a known lock stands for, each with one such lock; broken locks are said."""
    from toolchain.engine.store import used_by
    from toolchain.images.lock.known import known_locks
    from toolchain.images.lock.uses import uses_of

    uses = []
    for path in known_locks():
        try:
            uses.append(uses_of(path))
        except BadInputError as error:
            console.warn(f"what {path} stands for is not known: {error.why}")
    return used_by(images, uses)


def describe_images(images: Iterable[StoredImage], wanted: Mapping[str, Path]) -> list[str]:
    """A line for each image, with the lock that stands for it."""
    lines = []
    for one in images:
        name = ", ".join(one.references) or one.id
        lock = wanted.get(one.id)
        lines.append(f"{name}, which {lock} stands for" if lock is not None else name)
    return lines


def confirmed(lines: Sequence[str], *, yes: bool, command: str) -> bool:
    """Whether to go on with removing what `lines` name; raises UsageError where there is nobody to ask."""
    if yes or not lines:
        return True
    answer = _asked(lines)
    if answer is None:
        raise UsageError(
            f"nothing was removed: {counted(len(lines), 'thing')} would be, and nobody is there to be asked",
            where=f"tk image {command}",
            why="\n".join(lines),
            hint="add --yes; --dry-run lists only",
        )
    if not answer:
        console.talk("nothing was removed")
    return answer


def _asked(lines: Sequence[str]) -> bool | None:
    if not console.can_ask():
        return None
    for line in lines:
        console.talk(f"  {line}")
    return console.ask(f"remove {'this' if len(lines) == 1 else f'these {len(lines)}'}?", default=False)
