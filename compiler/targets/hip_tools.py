"""The HIP compiler on this machine: hipcc, of ROCm, Debian or Hygon's DTK.

The library hiprtc is no second one: asked for an architecture that it does not know, it ends the process.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from compiler.core.cache import content_key
from compiler.core.files import private_directory, write_atomic
from compiler.core.process import Completed, check_host, run
from compiler.core.settings import Settings, child_environment, search_path
from compiler.targets.code_object import resources, unbundled
from compiler.targets.device import Image
from compiler.targets.gpu import Built, Tool, refused

HSACO = "hsaco"

_ROOTS = (Path("/opt/rocm"), Path("/opt/dtk"))
_OPTIONS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-Wno-pass-failed")
_LIMIT_SECONDS = 1800.0
_PROBE_SECONDS = 60.0
_NOTHING = 'extern "C" __global__ void nothing() {}\n'


@dataclass(frozen=True, slots=True)
class HipTool:
    """A compiler; `knows` says whether it can compile for an architecture."""

    tool: Tool
    knows: Callable[[str], bool]


def find_hipcc(settings: Settings) -> HipTool | None:
    """The first hipcc that is found and runs."""
    return _find_hipcc(settings.rocm_root)


@lru_cache(maxsize=4)
def _find_hipcc(root: Path | None) -> HipTool | None:
    return next((tool for path in _programs(root) if (tool := _hipcc(path)) is not None), None)


def _programs(root: Path | None) -> Iterator[str]:
    roots = (root,) if root is not None else (None, *_ROOTS)
    for folder in roots:
        name = "hipcc" if folder is None else str(folder / "bin" / "hipcc")
        if path := shutil.which(name, path=search_path()):
            yield path


def llvm_folders(settings: Settings) -> tuple[Path, ...]:
    """Where the LLVM lies that ROCm or DTK bring along, if they are here."""
    roots = (settings.rocm_root,) if settings.rocm_root is not None else _ROOTS
    return tuple(root / "llvm" / "bin" for root in roots)


def _hipcc(path: str) -> HipTool | None:
    done = run([path, "--version"], env=_environment(None), timeout=_PROBE_SECONDS)
    version = re.search(r"HIP version: ([\w.-]+)", done.stdout)
    if done.returncode != 0 or version is None:
        return None
    identity = content_key("hipcc", done.stdout, *_OPTIONS)
    tool = Tool(f"hipcc {version[1]}", identity, partial(_compile_hipcc, path))
    return HipTool(tool, lru_cache(partial(_hipcc_knows, path)))


def _environment(directory: Path | None) -> dict[str, str]:
    """With nvcc on the PATH, hipcc would become nvcc."""
    temporary = {} if directory is None else {"TMPDIR": str(directory)}
    return child_environment(HIP_PLATFORM="amd", **temporary)


def _hipcc_knows(path: str, arch: str) -> bool:
    """Whether it would begin to compile: the processor is known and there is a device library for it."""
    with private_directory("tk-hip") as directory:
        write_atomic(directory / "model.hip", _NOTHING)
        done = _run_hipcc(path, ("-###",), arch, directory)
        return done.returncode == 0 and " error: " not in done.stderr  # a dry run ends well also with errors


def _compile_hipcc(path: str, text: str, arch: str, _intermediate: bool) -> Built:  # noqa: FBT001 - a Tool's
    with private_directory("tk-hip") as directory:
        write_atomic(directory / "model.hip", text)
        done = _run_hipcc(path, (), arch, directory)
        if done.returncode != 0:
            check_host(done)
            raise refused(" ".join(done.argv), done.stderr)
        data = unbundled((directory / HSACO).read_bytes(), arch)
        return Built((Image(HSACO, arch, data),), resources(data, arch))


def _run_hipcc(path: str, flags: tuple[str, ...], arch: str, directory: Path) -> Completed:
    argv = [path, "--genco", *flags, f"--offload-arch={arch}", *_OPTIONS, "model.hip", "-o", HSACO]
    return run(argv, cwd=directory, env=_environment(directory), timeout=_LIMIT_SECONDS)
