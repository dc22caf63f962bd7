"""The one place in `compiler/` that reads the environment: a typed record of every knob."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler.core.diagnostics import UsageError
from compiler.core.units import read_bytes


@dataclass(frozen=True, slots=True)
class Knob:
    """An environment variable that this package understands; the reference page is made from these."""

    name: str
    meaning: str
    default: str


KNOBS: tuple[Knob, ...] = (
    Knob("TK_CACHE_DIR", "directory of everything that is cached by content", "the user's cache directory"),
    Knob("TK_CACHE_SIZE", "bytes that the cache may hold, as `20 GB` or `500M`; see `tk cache`", "10 GB"),
    Knob(
        "TK_CXX", "C++ compiler that builds model libraries", "the first of g++, c++, clang++ that is found"
    ),
    Knob("TK_JOBS", "compilations that run at the same time", "the processors this process may use"),
    Knob(
        "TK_THREADS",
        "threads a loaded model uses when none are asked for",
        "the processors this process may use",
    ),
    Knob("TK_DEBUG", "1 shows tracebacks and verifies the program after every pass", "0"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of all knobs; `cxx` and `threads` are None when nothing was asked for."""

    cache_dir: Path
    cache_bytes: int
    cxx: str | None
    jobs: int
    threads: int | None
    debug: bool


def load_settings(env: Mapping[str, str] | None = None) -> Settings:
    """Read the knobs from `env`, by default the process's environment.

    Raises UsageError for an unreadable value, naming the variable.
    """
    source = os.environ if env is None else env
    threads = _positive(source, "TK_THREADS")
    return Settings(
        cache_dir=_cache_dir(source),
        cache_bytes=_size(source, "TK_CACHE_SIZE", 10 * 1000**3),
        cxx=source.get("TK_CXX") or None,
        jobs=_positive(source, "TK_JOBS") or usable_processors(),
        threads=threads,
        debug=_switch(source, "TK_DEBUG"),
    )


def usable_processors() -> int:
    """Processors that this process may use, at least one (the affinity mask, not the machine's size)."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        return max(1, os.cpu_count() or 1)


def child_environment(**changes: str) -> dict[str, str]:
    """This process's environment for a child: messages in plain English, always a PATH, `changes` on top."""
    return {"PATH": search_path(), **os.environ, "LC_ALL": "C.UTF-8", **changes}


def search_path(env: Mapping[str, str] | None = None) -> str:
    """The PATH that programs are looked up in."""
    source = os.environ if env is None else env
    return source.get("PATH", os.defpath)


def _cache_dir(source: Mapping[str, str]) -> Path:
    if given := source.get("TK_CACHE_DIR"):
        return Path(given).expanduser().absolute()
    if base := source.get("XDG_CACHE_HOME"):
        return Path(base).expanduser().absolute() / "tk"
    home = source.get("HOME")
    return (Path(home) if home else Path.home()) / ".cache" / "tk"


def _positive(source: Mapping[str, str], name: str) -> int | None:
    text = source.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise UsageError(
            f"{name} is not a positive whole number",
            where=f"environment variable {name}",
            why=f"it is `{text}`",
        )
    return int(text)


def _size(source: Mapping[str, str], name: str, default: int) -> int:
    text = source.get(name, "")
    try:
        return read_bytes(text) if text else default
    except ValueError as error:
        raise UsageError(
            f"{name} is no size",
            where=f"environment variable {name}",
            why=f"it is `{text}`",
            hint=f"set it as in {name}=20GB",
        ) from error


def _switch(source: Mapping[str, str], name: str) -> bool:
    text = source.get(name, "").strip().casefold()
    if text in ("", "0", "false", "no", "off"):
        return False
    if text in ("1", "true", "yes", "on"):
        return True
    raise UsageError(
        f"{name} is neither on nor off",
        where=f"environment variable {name}",
        why=f"it is `{text}`",
        hint=f"set {name}=1 or {name}=0",
    )
