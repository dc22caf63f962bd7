"""What a user adds to an image on the command line: packages, Python packages and scripts of their own.

They are one more layer on top of the recipe's. The image is called `NAME+with-DIGITS`: the digits stand for
what was asked for, and what scripts say counts in the hash of the recipe, so that an edited script is a newer
image of the same name. A lock has the list in the image's section, so that the name alone says it all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import BadInputError, UsageError, did_you_mean

if TYPE_CHECKING:
    from toolchain.recipes.resolve import Resolution

_NAMED = re.compile(r"\+with-([0-9a-f]{8})(?=@|$)")
_MOST_SCRIPT_BYTES = 1 << 20
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Script:
    """A program that the build runs as root at its end; `path` is where it was read."""

    path: Path
    data: bytes

    @property
    def name(self) -> str:
        """The file's own name with what a Dockerfile takes for text alone."""
        return _UNSAFE.sub("-", self.path.name).strip("-.") or "script"


@dataclass(frozen=True, slots=True)
class Additions:
    """Packages of the system and of Python, and scripts, as asked for; without doubles."""

    apt: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    scripts: tuple[Script, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.apt or self.pip or self.scripts)

    @property
    def digits(self) -> str:
        """Eight hex digits of what was asked for; a script counts by its name."""
        asked = [sorted(self.apt), sorted(self.pip), [one.name for one in self.scripts]]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:8]

    @property
    def label(self) -> str:
        """All of it in one line, for people."""
        asked = (("apt", self.apt), ("pip", self.pip), ("script", [one.name for one in self.scripts]))
        return " ".join(f"{kind}:{one}" for kind, names in asked for one in names)

    @property
    def words(self) -> tuple[str, ...]:
        """All of it as options of a command line."""
        asked = (("--with-apt", self.apt), ("--with-pip", self.pip))
        words = [f"{option}={one}" for option, names in asked for one in names]
        return (*words, *(f"--with={one.path}" for one in self.scripts))


NOTHING = Additions()


def read_additions(apt: Sequence[str], pip: Sequence[str], files: Sequence[Path]) -> Additions:
    """What `--with-apt`, `--with-pip` and `--with` name, or a lock's section; the files are read.

    Raises UsageError for texts that are no package, all of them at once, and BadInputError for a file that
    cannot be read or is no script.
    """
    _check(apt, pip)
    scripts = tuple(_read(path) for path in dict.fromkeys(files))
    return Additions(tuple(dict.fromkeys(apt)), tuple(dict.fromkeys(pip)), scripts)


def _check(apt: Sequence[str], pip: Sequence[str]) -> None:
    from pydantic import TypeAdapter, ValidationError

    from toolchain.recipes.grammar import AptPackage, PipPackage

    wrong = []
    for option, kind, texts in (("--with-apt", AptPackage, apt), ("--with-pip", PipPackage, pip)):
        adapter: TypeAdapter[str] = TypeAdapter(kind)
        for text in texts:
            try:
                adapter.validate_python(text)
            except ValidationError:
                wrong.append((option, text))
    if wrong:
        raise UsageError(
            f"`{wrong[0][1]}` is no package",
            where=wrong[0][0],
            why="\n".join(f"{option} {text!r}" for option, text in wrong) if len(wrong) > 1 else "",
            hint="--with-apt htop or htop=3.2.2-2, --with-pip numpy or numpy==1.26.4",
        )


def _read(path: Path) -> Script:
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST_SCRIPT_BYTES + 1)
    except OSError as error:
        raise BadInputError(
            "cannot read a script for the image", where=f"--with {path}", why=error.strerror or str(error),
            hint="--with names a script that the build runs as root at its end",
        ) from error  # fmt: skip
    if not data.startswith(b"#!"):
        raise BadInputError(
            "this is no script", where=f"--with {path}", why="its first line does not begin with `#!`",
            hint="begin it with `#!/bin/sh`; packages go with --with-apt and --with-pip",
        )  # fmt: skip
    if len(data) > _MOST_SCRIPT_BYTES:
        raise BadInputError(
            "the script is too large", where=f"--with {path}",
            why=f"the limit is {_MOST_SCRIPT_BYTES:,} bytes", hint="let it fetch what it needs",
        )  # fmt: skip
    return Script(path, data)


def split_name(name: str) -> tuple[str, str]:
    """A typed name without `+with-DIGITS`, and the digits; empty when it has none."""
    found = _NAMED.search(name)
    return (name, "") if found is None else (_NAMED.sub("", name), found[1])


def check_digits(name: str, digits: str, found: Additions, where: str) -> None:
    """Raise UsageError unless `found` is what the digits of a typed name stand for."""
    if found and found.digits == digits:
        return
    hint = did_you_mean(digits, [found.digits]) if found else ""
    raise UsageError(
        f"nothing says what `+with-{digits}` adds to the image",
        where=name,
        why=f"what is given makes +with-{found.digits}" if found else f"{where} has no section {name}",
        hint=hint or "name it again: --with-apt, --with-pip, --with; `tk image lock` writes it down",
    )


def with_additions(resolution: Resolution, added: Additions) -> Resolution:
    """The resolution with one more layer: another name, another hash of what decides the image.

    Raises BadInputError for packages of apt on a system that has other ones.
    """
    if not added:
        return resolution
    system = resolution.system
    if added.apt and system.family != "debian":
        raise BadInputError(
            f"{resolution.name} has no apt",
            where="--with-apt",
            why=f"its base is {system.system}-{system.version}",
            hint="write a script that calls the system's own package manager: --with FILE",
        )
    content = [
        resolution.recipe_hash,
        sorted(added.apt),
        sorted(added.pip),
        [[one.name, hashlib.sha256(one.data).hexdigest()] for one in added.scripts],
    ]
    return dataclasses.replace(
        resolution,
        name=f"{resolution.name}+with-{added.digits}",
        recipe_hash=hashlib.sha256(json.dumps(content).encode()).hexdigest(),
        additions=added,
    )
