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


EMULATOR = "emulator"
UNCHECKED_EMULATOR = "emulator-unchecked"
"""The same without a look at accesses: only the numbers, in a third of the time."""
EMULATORS = (EMULATOR, UNCHECKED_EMULATOR)
"""Values of `--device` with which kernels for a GPU run on the host's cores."""

KNOBS: tuple[Knob, ...] = (
    Knob("TK_CACHE_DIR", "directory of everything that is cached by content", "the user's cache directory"),
    Knob("TK_CACHE_SIZE", "bytes that the cache may hold, as `20 GB` or `500M`; see `tk cache`", "10 GB"),
    Knob(
        "TK_TUNING_DB",
        "database of what `tk tune` measured; see docs/tuning.md",
        "tk/tuning.db in the user's data directory",
    ),
    Knob(
        "TK_CXX", "C++ compiler that builds model libraries", "the first of g++, c++, clang++ that is found"
    ),
    Knob(
        "TK_DPCXX",
        "DPC++ compiler that builds SYCL kernels ahead of time",
        "clang++ or icpx that knows -fsycl",
    ),
    Knob(
        "TK_SYCL_ROOT",
        "folder of the SYCL and OpenCL runtime of Intel: has lib/libsycl.so and include/sycl",
        "the running Python's packages, then oneAPI's folder, then LD_LIBRARY_PATH",
    ),
    Knob(
        "TK_CUDA_ROOT",
        "folder of the CUDA toolkit: has bin/nvcc or lib64/libnvrtc.so",
        "CUDA_HOME, then the running Python's packages, then nvcc on the PATH",
    ),
    Knob(
        "TK_ROCM_ROOT",
        "folder of ROCm, or of Hygon's DTK: has bin/hipcc",
        "ROCM_PATH, then hipcc on the PATH, then /opt/rocm, /opt/dtk",
    ),
    Knob(
        "TK_DEVICE",
        "device of libraries for one, as `--device` names it; read by the libraries themselves",
        "the first that fits",
    ),
    Knob(
        "TK_JOBS",
        "compilations, and processes that make kernels, at the same time",
        "the processors this process may use",
    ),
    Knob(
        "TK_THREADS",
        "threads a loaded model uses when none are asked for",
        "the processors this process may use",
    ),
    Knob("TK_DEBUG", "1 shows tracebacks and verifies the program after every pass", "0"),
)


# GCC's manual, "Environment Variables Affecting GCC"; LD_RUN_PATH: ld(1); CCC_*: clang's driver
_HEADERS = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES",
)  # fmt: skip
_COMPILERS = (
    "COMPILER_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH", "LD_RUN_PATH", "CCC_OVERRIDE_OPTIONS", "LDEMULATION",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of all knobs; what nothing was asked for is None.

    any_order: whether the emulator records launches, and replays them in any order that is allowed.
    """

    cache_dir: Path
    cache_bytes: int
    cxx: str | None
    jobs: int
    threads: int | None
    debug: bool
    dpcxx: str | None = None
    sycl_root: Path | None = None
    cuda_root: Path | None = None
    rocm_root: Path | None = None
    device: str | None = None
    tuning_db: Path | None = None
    any_order: bool = False


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
        dpcxx=source.get("TK_DPCXX") or None,
        sycl_root=_folder(source, "TK_SYCL_ROOT"),
        cuda_root=_folder(source, "TK_CUDA_ROOT") or _folder(source, "CUDA_HOME"),
        rocm_root=_folder(source, "TK_ROCM_ROOT") or _folder(source, "ROCM_PATH"),
        device=source.get("TK_DEVICE") or None,
        tuning_db=_tuning_db(source),
        any_order=bool(source.get("TK_EMULATOR_ORDER")),
    )


def usable_processors() -> int:
    """Processors that this process may use, at least one (the affinity mask, not the machine's size)."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except (AttributeError, OSError):
        return max(1, os.cpu_count() or 1)


def compiler_environment(**changes: str) -> dict[str, str]:
    """That of a compiler or linker: no variable adds folders of headers or files that it writes."""
    return {name: text for name, text in child_environment(**changes).items() if name not in _HEADERS}


def compiler_variables() -> tuple[str, ...]:
    """What else in the environment may change what compilers and linkers make, as `NAME=value`."""
    return tuple(f"{name}={os.environ[name]}" for name in _COMPILERS if name in os.environ)


def child_environment(**changes: str) -> dict[str, str]:
    """This process's environment for a child: messages in plain English, always a PATH, `changes` on top."""
    return {"PATH": search_path(), **os.environ, "LC_ALL": "C.UTF-8", **changes}


def inherited_environment() -> dict[str, str]:
    """This process's environment as it is."""
    return dict(os.environ)


def export(changes: Mapping[str, str]) -> None:
    """Set variables of this process, for libraries in it too (os.environ calls putenv) and for children."""
    os.environ.update(changes)


def search_path(env: Mapping[str, str] | None = None) -> str:
    """The PATH that programs are looked up in."""
    source = os.environ if env is None else env
    return source.get("PATH", os.defpath)


def library_folders(env: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Folders that the dynamic linker is told to search, and those of oneAPI (its setvars.sh names them)."""
    source = os.environ if env is None else env
    roots = [(source.get("CMPLR_ROOT"), "lib"), (source.get("ONEAPI_ROOT"), "compiler/latest/lib")]
    linker = source.get("LD_LIBRARY_PATH", "").split(":")
    return (
        *(Path(root) / inside for root, inside in roots if root),
        *(Path(part) for part in linker if part),
    )


def temporary_folders(env: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Where temporary files may lie, the best first; the same as of Python's `tempfile`.

    That looks which of them takes a file by one that it makes, and a process that is killed then leaves it.
    """
    source = os.environ if env is None else env
    named = (source.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    usual = ("/tmp", "/var/tmp", "/usr/tmp", os.curdir)  # noqa: S108 - each is tried with a private folder
    return tuple(Path(one) for one in dict.fromkeys((*filter(None, named), *usual)))


def _folder(source: Mapping[str, str], name: str) -> Path | None:
    given = source.get(name)
    return Path(given).expanduser().absolute() if given else None


def _cache_dir(source: Mapping[str, str]) -> Path:
    if given := source.get("TK_CACHE_DIR"):
        return Path(given).expanduser().absolute()
    if base := source.get("XDG_CACHE_HOME"):
        return Path(base).expanduser().absolute() / "tk"
    home = source.get("HOME")
    return (Path(home) if home else Path.home()) / ".cache" / "tk"


def _tuning_db(source: Mapping[str, str]) -> Path:
    if given := source.get("TK_TUNING_DB"):
        return Path(given).expanduser().absolute()
    if base := source.get("XDG_DATA_HOME"):
        return Path(base).expanduser().absolute() / "tk" / "tuning.db"
    home = source.get("HOME")
    return (Path(home) if home else Path.home()) / ".local" / "share" / "tk" / "tuning.db"


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
