"""Where runtimes of vendors lie on this machine: Intel's SYCL and OpenCL runtime, and how processes reach it.

PyPI's `dpcpp-cpp-rt` (the extra `sycl`) puts everything below the prefix of its Python: lib/libsycl.so.N,
lib/libintelocl.so, lib/libOpenCL.so.1, include/sycl. oneAPI has the same layout below compiler/<version>.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from compiler.core.diagnostics import HostError
from compiler.core.settings import Settings, child_environment, export, library_folders

INSTALL = "install it with `pip install dpcpp-cpp-rt` (the extra `sycl`), or name its folder by TK_SYCL_ROOT"
ROOT_VARIABLE = "TK_SYCL_ROOT"
DRIVERS_VARIABLE = "OCL_ICD_FILENAMES"
"""Drivers that the Khronos loader opens besides the installed ones (its README, "Registering ICDs")."""

_ONEAPI = Path("/opt/intel/oneapi/compiler/latest/lib")
_SYCL = re.compile(r"libsycl\.so\.(\d+)")


@dataclass(frozen=True, slots=True)
class IntelRuntime:
    """Intel's runtime as found: `libraries` is the folder of its shared objects.

    sycl: libsycl.so.N. opencl: libintelocl.so, the OpenCL driver for processors. headers: folder that has
    sycl/sycl.hpp. Each is None where that part is not there. source: who named the folder.
    """

    libraries: Path
    sycl: Path | None
    opencl: Path | None
    headers: Path | None
    source: str

    @property
    def identity(self) -> str:
        """Changes whenever the runtime does, for cache keys: resolved names carry versions."""
        parts = (self.sycl, self.opencl)
        return " ".join(f"{path.resolve().name} {path.stat().st_size}" for path in parts if path)

    def changes(self) -> dict[str, str]:
        """Environment variables of a child process that shall reach this runtime, beside inherited ones."""
        inherited = child_environment()
        wanted = {"LD_LIBRARY_PATH": str(self.libraries), ROOT_VARIABLE: str(self.libraries.parent)}
        if self.opencl is not None:
            wanted[DRIVERS_VARIABLE] = str(self.opencl)
        joined = ("LD_LIBRARY_PATH", DRIVERS_VARIABLE)
        return {
            name: _joined(value, inherited.get(name, "")) if name in joined else value
            for name, value in wanted.items()
        }


def find_intel_runtime(settings: Settings) -> IntelRuntime | None:
    """The first folder that has SYCL's or OpenCL's runtime of Intel, or None.

    Asked in this order: TK_SYCL_ROOT, packages of the running Python, oneAPI's variables, LD_LIBRARY_PATH,
    oneAPI's usual folder. Raises HostError when TK_SYCL_ROOT names a folder without it.
    """
    if settings.sycl_root is not None:
        for folder in (settings.sycl_root / "lib", settings.sycl_root):
            if found := _at(folder, f"{ROOT_VARIABLE}={settings.sycl_root}"):
                return found
        raise HostError(
            "there is no SYCL runtime where it should be",
            where=f"{ROOT_VARIABLE}={settings.sycl_root}",
            why="the folder has neither lib/libsycl.so.N nor lib/libintelocl.so",
            hint=f"correct {ROOT_VARIABLE}, or unset it and install one with `pip install dpcpp-cpp-rt`",
        )
    return next((found for folder, source in _places() if (found := _at(folder, source))), None)


def need_sycl(settings: Settings) -> IntelRuntime:
    """Intel's runtime with libsycl; raises HostError that says what to install."""
    found = find_intel_runtime(settings)
    if found is None or found.sycl is None:
        raise HostError("no SYCL runtime was found", why="libsycl.so is nowhere to be found", hint=INSTALL)
    return found


def runtime_environment(settings: Settings, **changes: str) -> dict[str, str]:
    """This process's environment for a child that loads model libraries: vendors' runtimes within reach."""
    found = find_intel_runtime(settings)
    return child_environment(**({} if found is None else found.changes()), **changes)


def reach_runtimes(settings: Settings) -> None:
    """Let model libraries that this process loads find vendors' runtimes, as `runtime_environment` does.

    The dynamic linker has read LD_LIBRARY_PATH already; libraries of ours open libsycl by its full path.
    """
    found = find_intel_runtime(settings)
    if found is not None:
        changes = found.changes()
        changes.pop("LD_LIBRARY_PATH")
        export(changes)


def _at(folder: Path, source: str) -> IntelRuntime | None:
    """The runtime in a folder of libraries; headers lie beside it."""
    versions = [(int(found[1]), path) for path in _names(folder) if (found := _SYCL.fullmatch(path.name))]
    sycl = max(versions)[1] if versions else None
    opencl = folder / "libintelocl.so"
    if sycl is None and not opencl.is_file():
        return None
    headers = folder.parent / "include"
    return IntelRuntime(
        libraries=folder,
        sycl=sycl,
        opencl=opencl if opencl.is_file() else None,
        headers=headers if (headers / "sycl" / "sycl.hpp").is_file() else None,
        source=source,
    )


def _names(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("libsycl.so.*"))
    except OSError:
        return []


def _places() -> Iterator[tuple[Path, str]]:
    yield from ((folder, "the running Python's packages") for folder in _package_libraries())
    yield from ((folder, "the environment") for folder in library_folders())
    yield _ONEAPI, "oneAPI's folder"


def _package_libraries() -> list[Path]:
    """Folders where Intel's packages of the running Python have their shared objects.

    By where packages lie (prefix/lib/pythonX.Y/site-packages, or all in one folder: `pip install --target`),
    not by their records: importing what reads those takes 34 ms, part of the first load of each process.
    """
    places = [Path(place).absolute() for place in sys.path if place]
    owners = [place for place in places if any(place.glob("intel_*_rt-*.dist-info"))]
    return [prefix / "lib" for owner in owners for prefix in (*owner.parents[2:3], owner)]


def _joined(first: str, rest: str) -> str:
    parts = [part for part in rest.split(":") if part and part != first]
    return ":".join((first, *parts))
