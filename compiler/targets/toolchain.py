"""The C++ compiler: which one, is it new enough, and its identity for cache keys."""

from __future__ import annotations

import platform
import re
import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from compiler.core.cache import content_key
from compiler.core.diagnostics import HostError
from compiler.core.files import sha256_file
from compiler.core.process import run
from compiler.core.settings import Settings, compiler_environment, compiler_variables, search_path

CANDIDATES = ("g++", "c++", "clang++")
CROSS = "{machine}-linux-gnu-g++"
"""The compiler for another machine, as Debian and Fedora call theirs."""

OLDEST = {"gcc": 9, "clang": 11}
_INSTALL = "install g++ >= 9 or clang++ >= 11 (Debian, Ubuntu: apt install g++), or set TK_CXX to one"
_PROBE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Cxx:
    """A C++ compiler that was asked who it is; `identity` changes whenever its output might."""

    path: str
    family: str  # "gcc" | "clang"
    version: tuple[int, int, int]
    machine: str
    identity: str

    @property
    def description(self) -> str:
        """`g++ 12.2.0`, for people."""
        name = "g++" if self.family == "gcc" else "clang++"
        return f"{name} {'.'.join(str(part) for part in self.version)}"


def find_cxx(settings: Settings, machine: str = "") -> Cxx:
    """The compiler that the settings name, else the first of g++, c++, clang++ that is found.

    For another `machine` than this one (as `uname -m` says it) the one that the settings name if it makes
    code for that, else the cross compiler with its name. Raises HostError when there is none, when it does
    not run, or when it is too old.
    """
    is_foreign = machine not in ("", platform.machine())
    if settings.cxx is not None:
        named = _named_cxx(settings.cxx)
        if not is_foreign or named.machine == machine:
            return named
    for name in (CROSS.format(machine=machine),) if is_foreign else CANDIDATES:
        if path := shutil.which(name, path=search_path()):
            return probe_cxx(path)
    if is_foreign:
        package = f"g++-{machine.replace('_', '-')}-linux-gnu"
        raise HostError(
            f"no C++ compiler for {machine} was found",
            why=f"{CROSS.format(machine=machine)} is not on the PATH",
            hint=f"install it (Debian, Ubuntu: apt install {package}), or set TK_CXX to one",
        )
    raise HostError(
        "no C++ compiler was found",
        why=f"none of {', '.join(CANDIDATES)} is on the PATH",
        hint=_INSTALL,
    )


def _named_cxx(name: str) -> Cxx:
    path = shutil.which(name, path=search_path())
    if path is None:
        raise HostError(
            f"the C++ compiler `{name}` was not found",
            where="TK_CXX",
            hint="set TK_CXX to a program on the PATH or to a full path, or unset it",
        )
    return probe_cxx(path)


@lru_cache(maxsize=16)
def probe_cxx(path: str) -> Cxx:
    """Ask the compiler at `path` for its family and version; raises HostError when it will not do."""
    macros = run(
        [path, "-x", "c++", "-E", "-dM", "-"], input=b"", env=compiler_environment(), timeout=_PROBE_SECONDS
    )
    if macros.returncode != 0:
        raise HostError(
            f"`{path}` cannot compile C++",
            where=path,
            why=macros.stderr.strip().splitlines()[-1] if macros.stderr.strip() else "",
            hint=_INSTALL,
        )
    defined = dict(re.findall(r"^#define (\w+) (.*)$", macros.stdout, re.MULTILINE))
    banner = run([path, "--version"], env=compiler_environment(), timeout=_PROBE_SECONDS).stdout
    found = _read(path, defined, banner)
    if found.version[0] < OLDEST[found.family]:
        raise HostError(
            f"the C++ compiler is too old: {found.description}",
            where=path,
            why=f"needed is {found.family} {OLDEST[found.family]} or newer",
            hint=_INSTALL,
        )
    return found


def _read(path: str, defined: dict[str, str], banner: str) -> Cxx:
    clang = "__clang__" in defined
    keys = (
        ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
        if clang
        else ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    )
    if any(not defined.get(key, "").isdigit() for key in keys):
        raise HostError(f"`{path}` is neither g++ nor clang++", where=path, hint=_INSTALL)
    major, minor, patch = (int(defined[key]) for key in keys)
    machine = "x86_64" if "__x86_64__" in defined else "aarch64" if "__aarch64__" in defined else "other"
    macros = "\n".join(f"{name} {value}" for name, value in sorted(defined.items()))
    # Of a wrapper its own text, as what it adds to a compile need not show in the macros.
    program = sha256_file(Path(path))
    identity = content_key("cxx", banner.partition("\n")[0], macros, program, *compiler_variables())
    return Cxx(path, "clang" if clang else "gcc", (major, minor, patch), machine, identity)
