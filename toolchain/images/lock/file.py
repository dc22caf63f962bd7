"""`tk.lock`: strict TOML, sorted, the same bytes for the same content.

Why TOML: see docs/decisions/008-lock.md. Reading refuses duplicate keys and what is left of a merge with the
line; every value has a grammar, as it ends up in a Dockerfile.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from compiler import BadInputError, write_atomic
from toolchain.exclusive import exclusively
from toolchain.images.lock.known import remember
from toolchain.images.plan import Deb, Pins

FORMAT = 1
_MOST_BYTES = 8 << 20
_HEAD = "# Made by `tk image lock` and `tk image push`: commit it, and let only these change it.\n"

SECTION = r"^[0-9A-Za-z][0-9A-Za-z.+_-]*(@[0-9A-Za-z._-]+(,[0-9A-Za-z._-]+)*)?$"
"""The name of a section: an image's canonical name, and its archs where something in it is built for them."""

_Hex40 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
_Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Digest = Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64})?$")]
_Name = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+_-]*$", max_length=200)]
_SectionName = Annotated[str, StringConstraints(pattern=SECTION, max_length=300)]
_FullDigest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
_Snapshot = Annotated[str, StringConstraints(pattern=r"^[0-9]{8}T[0-9]{6}Z$")]
_Reference = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9./:@_-]*$", max_length=300)]
_AptName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?$", max_length=120)]
_AptVersion = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+:~_-]*$", max_length=120)]
_PipName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=120)]
_PipVersion = Annotated[str, StringConstraints(pattern=r"^[0-9][0-9A-Za-z.+!]*$", max_length=120)]
_Url = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9._~/%+@=,:-]+$", max_length=400)]
_DebUrl = Annotated[
    str,
    StringConstraints(pattern=r"^https?://[A-Za-z0-9._~/%+@=,:-]+\.deb#sha256=[0-9a-f]{64}$", max_length=480),
]
_HASH = "#sha256="  # as in the links of a Python index


_Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=400)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class _PipPin(_Model):
    version: _PipVersion
    sha256: list[_Hex64] = []


class _Pins(_Model):
    base_digest: _Digest = ""
    base_reference: _Reference | None = None
    snapshot: _Snapshot | None = None
    apt: dict[_AptName, _AptVersion] = {}
    debs: dict[_AptName, _DebUrl] = {}
    pip: dict[_PipName, _PipPin] = {}
    git: dict[_Url, _Hex40] = {}
    downloads: dict[_Url, _Hex64] = {}
    trusted_on_first_use: list[_Url] = []
    needs: dict[_Name, _Pins] = {}

    def pins(self) -> Pins:
        return Pins(
            base_digest=self.base_digest,
            base_reference=self.base_reference or "",
            snapshot=self.snapshot or "",
            apt=self.apt,
            debs={name: Deb(*one.split(_HASH)) for name, one in self.debs.items()},
            pip={name: (one.version, tuple(one.sha256)) for name, one in self.pip.items()},
            git=self.git,
            downloads=self.downloads,
            first_use=tuple(self.trusted_on_first_use),
            needs={name: one.pins() for name, one in self.needs.items()},
        )


class _Built(_Model):
    reference: _Reference
    digest: _FullDigest
    plan: _Hex64


class _With(_Model):
    apt: list[_Text] = []
    pip: list[_Text] = []
    scripts: list[_Text] = []


class _Image(_Pins):
    recipe: _Hex64
    base: _Reference
    stand_in: bool = False
    added: Annotated[_With | None, Field(alias="with")] = None
    built: _Built | None = None


class _File(_Model):
    format: Literal[1]
    image: dict[_SectionName, _Image] = {}


@dataclass(frozen=True, slots=True)
class LockedBuild:
    """An image that was pushed: its reference (`registry/name:tag`), its digest, and the key of its plan."""

    reference: str
    digest: str
    plan: str


@dataclass(frozen=True, slots=True)
class LockedAdditions:
    """What a user adds to an image beside its recipe; paths of scripts are relative to the lock's folder."""

    apt: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LockedImage:
    """What one plan was resolved to: the hash of its recipe, its base, and the pins.

    `stand_in`: the base stood in for the recipe's, so has no digest. `built`: the image that everybody gets,
    once it was pushed. `added`: what a `+with-DIGITS` in the section's name stands for.
    """

    recipe: str
    base: str
    pins: Pins
    stand_in: bool = False
    built: LockedBuild | None = None
    added: LockedAdditions | None = None


@dataclass(frozen=True, slots=True)
class Lock:
    """A whole lock: name of a section (`Plan.section`) -> what the image was resolved to."""

    images: Mapping[str, LockedImage] = field(default_factory=dict)

    def with_image(self, name: str, image: LockedImage) -> Lock:
        """The same with one more or another section."""
        return Lock({**self.images, name: image})


def read_lock(path: Path) -> Lock | None:
    """The lock at `path`, or None when there is none. Raises BadInputError with file:line."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInputError("cannot read the lock", where=str(path), why=error.strerror or "") from error
    return parse_lock(data, str(path))


def parse_lock(data: bytes, where: str) -> Lock:
    """Read a lock's bytes; `where` is how errors name it."""
    if len(data) > _MOST_BYTES:
        raise _broken(where, f"it has {len(data):,} bytes; the limit is {_MOST_BYTES:,}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _broken(f"{where}:{line}", "it is not UTF-8 text") from error
    if conflict := re.search(r"^(<{7}|\|{7}|={7}|>{7})( |$)", text, re.MULTILINE):
        line = text[: conflict.start()].count("\n") + 1
        raise _broken(f"{where}:{line}", f"it holds a merge that was not finished (`{conflict[1]}`)")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = _line_said(str(error), text)
        raise _broken(f"{where}:{line}", str(error)) from error
    except RecursionError as error:
        raise _broken(where, "it is nested too deeply") from error
    if (known := document.get("format")) != FORMAT:
        at, why = _line_of(text, ("format",)), f"its format is {known!r}, this tk reads format {FORMAT}"
        raise _broken(f"{where}:{at}", why, newer=isinstance(known, int) and known > FORMAT)
    try:
        record = _File.model_validate(document)
    except ValidationError as error:
        raise _problems(error, text, where) from error
    return Lock({name: _locked(one) for name, one in record.image.items()})


def lock_text(lock: Lock) -> str:
    """The lock as text: sections and entries sorted, one entry a line, no machine in it."""
    import tomli_w

    images = {name: _image_table(lock.images[name]) for name in sorted(lock.images)}
    return _HEAD + tomli_w.dumps({"format": FORMAT, "image": images})


def update_lock(path: Path, change: Callable[[Lock], Lock]) -> bool:
    """Change the lock at `path`, which other processes may change, too; whether that changed anything.

    Raises HostError when it cannot be written and BadInputError when it cannot be read.
    """
    with exclusively("lock", str(path.absolute())):
        return write_lock(path, change(read_lock(path) or Lock()))


def write_lock(path: Path, lock: Lock) -> bool:
    """Write the lock; whether that changed anything. Raises HostError."""
    text = lock_text(lock)
    remember(path)
    if path.is_file() and path.read_bytes() == text.encode():
        return False
    write_atomic(path, text)
    return True


def _locked(record: _Image) -> LockedImage:
    built = None if record.built is None else LockedBuild(**record.built.model_dump())
    own = record.added
    added = None if own is None else LockedAdditions(tuple(own.apt), tuple(own.pip), tuple(own.scripts))
    return LockedImage(record.recipe, record.base, record.pins(), record.stand_in, built, added)


def _image_table(image: LockedImage) -> dict[str, Any]:
    head: dict[str, Any] = {"recipe": image.recipe, "base": image.base}
    built = {} if image.built is None else {"built": dataclasses.asdict(image.built)}
    added = {} if image.added is None else {"with": _with_table(image.added)}
    return head | ({"stand_in": True} if image.stand_in else {}) | _pins_table(image.pins) | added | built


def _with_table(added: LockedAdditions) -> dict[str, list[str]]:
    asked = {"apt": added.apt, "pip": added.pip, "scripts": added.scripts}
    return {kind: list(names) for kind, names in asked.items() if names}


def _pins_table(pins: Pins) -> dict[str, Any]:
    """Only what is there; scalars before tables, as TOML wants."""
    tables = {
        "base_digest": pins.base_digest,
        "base_reference": pins.base_reference,
        "snapshot": pins.snapshot,
        "trusted_on_first_use": sorted(pins.first_use),
        "apt": dict(sorted(pins.apt.items())),
        "debs": {name: f"{one.url}{_HASH}{one.sha256}" for name, one in sorted(pins.debs.items())},
        "git": dict(sorted(pins.git.items())),
        "downloads": dict(sorted(pins.downloads.items())),
        "pip": {
            name: {"version": version, "sha256": sorted(digests)}
            for name, (version, digests) in sorted(pins.pip.items())
        },
        "needs": {name: _pins_table(one) for name, one in sorted(pins.needs.items())},
    }
    return {name: value for name, value in tables.items() if value}


def _broken(where: str, why: str, *, newer: bool = False) -> BadInputError:
    mend = "`tk image lock --repair` keeps every section that can be read, and the broken file beside it"
    hint = "it was written by a newer tk: use that one" if newer else mend
    return BadInputError("the lock cannot be read", where=where, why=why, hint=hint)


def _problems(error: ValidationError, text: str, where: str) -> BadInputError:
    lines = []
    for one in error.errors(include_url=False, include_input=False):
        path = tuple(str(part) for part in one["loc"] if part != "[key]")
        lines.append((_line_of(text, path), f"`{'.'.join(path)}`: {_said(one)}"))
    lines.sort()
    shown = "\n".join(f"{where}:{line}: {what}" for line, what in lines[:20])
    return _broken(f"{where}:{lines[0][0]}", shown if len(lines) > 1 else lines[0][1])


def _said(error: Any) -> str:
    if error["type"] == "string_pattern_mismatch":
        return f"the value does not have the form {error['ctx']['pattern']}"
    return {"extra_forbidden": "unknown key", "missing": "is missing"}.get(error["type"], str(error["msg"]))


def _line_said(message: str, text: str) -> int:
    found = re.search(r"line (\d+)", message)
    return int(found[1]) if found else text.count("\n") + 1


def _line_of(text: str, path: tuple[str, ...]) -> int:
    """The line that defines the last part of `path` that is there; 1 when none is."""
    best, longest = 1, 0
    for number, here in _paths(text):
        same = next(
            (i for i, (a, b) in enumerate(zip(here, path, strict=False)) if a != b), min(len(here), len(path))
        )
        if same == len(here) and same > longest:
            best, longest = number, same
    return best


def _paths(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(line, dotted path) of each table header and of each key."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.fullmatch(r"\s*\[([^\[\]]+)\]\s*", line):
            table = _keys(header[1])
            yield number, table
        elif key := re.match(r"\s*((?:\"[^\"]*\"|'[^']*'|[\w.-]+)+)\s*=", line):
            yield number, (*table, *_keys(key[1]))


def _keys(text: str) -> tuple[str, ...]:
    found = re.findall(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)", text)
    return tuple(next(one for one in parts if one) if any(parts) else "" for parts in found)
