"""CUDA compilers on this machine: NVRTC, the library, where it is found, and nvcc, the program."""

from __future__ import annotations

import ctypes
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from compiler.core.cache import content_key
from compiler.core.files import private_directory, write_atomic
from compiler.core.process import check_host, run
from compiler.core.settings import Settings, child_environment, search_path
from compiler.targets.device import Image, Resource
from compiler.targets.gpu import Built, Tool, refused
from compiler.targets.nvrtc import Nvrtc

CUBIN = "cubin"
PTX = "ptx"

_PACKAGES = (
    "nvidia-cuda-nvrtc-cu12",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-nvrtc-cu13",
    "nvidia-cuda-nvrtc-cu11",
)
DISASSEMBLER_PACKAGE = "nvidia-cuda-nvdisasm"
_SONAMES = ("libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so.11.2")
_TOOLKIT = Path("/usr/local/cuda")
_LIBRARY = re.compile(r"libnvrtc\.so(\.\d+)*")
_OPTIONS = ("--std=c++17", "--ptxas-options=-v")
_LIMIT_SECONDS = 1800.0
_PROBE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CudaTool:
    """A compiler with the architectures that it knows."""

    tool: Tool
    archs: tuple[str, ...]


def cuda_tools(settings: Settings) -> tuple[CudaTool, ...]:
    """The compilers that are found, NVRTC first: it needs no host compiler and no headers."""
    return _cuda_tools(settings.cuda_root)


@lru_cache(maxsize=4)
def _cuda_tools(home: Path | None) -> tuple[CudaTool, ...]:
    found: dict[str, CudaTool] = {}
    for path in _libraries(home):
        if (tool := _nvrtc(path)) is not None:
            found.setdefault(tool.tool.description, tool)
    if (tool := _nvcc(home)) is not None:
        found.setdefault(tool.tool.description, tool)
    return tuple(found.values())


# ---------------------------------------------------------------- NVRTC


def _libraries(home: Path | None) -> Iterator[str]:
    """Where NVRTC may lie: TK_CUDA_ROOT, the running Python's packages, the linker's folders, the toolkit."""
    if home is not None:
        yield from _in_folder(home / "lib64")
    for name in _PACKAGES:
        try:
            root = Path(str(distribution(name).locate_file("nvidia")))
        except PackageNotFoundError:
            continue
        for folder in (root / "cuda_nvrtc" / "lib", root / "cu13" / "lib"):
            yield from _in_folder(folder)
    yield from _SONAMES
    yield from _in_folder(_TOOLKIT / "lib64")


def _in_folder(folder: Path) -> Iterator[str]:
    """The library in a folder, by its shortest name: others are links or variants."""
    names = [path for path in folder.glob("libnvrtc.so*") if _LIBRARY.fullmatch(path.name)]
    yield from (str(path) for path in sorted(names, key=lambda path: (len(path.name), path.name))[:1])


def _nvrtc(path: str) -> CudaTool | None:
    try:
        compiler = Nvrtc(ctypes.CDLL(path))
        version, archs = compiler.version(), compiler.supported()
        compiler.library.nvrtcGetCUBIN  # noqa: B018 - CUDA before 11.1 made PTX only
    except (OSError, AttributeError):
        return None
    # The version names no patch release: the size of the file tells them apart.
    size = Path(path).resolve().stat().st_size if Path(path).is_file() else 0
    identity = content_key("nvrtc", str(version), str(size), *_OPTIONS)
    tool = Tool(f"NVRTC {version}", identity, partial(_compile_nvrtc, compiler))
    return CudaTool(tool, tuple(f"sm_{number}" for number in archs))


def _compile_nvrtc(compiler: Nvrtc, text: str, arch: str, with_ptx: bool) -> Built:  # noqa: FBT001 - a Tool's
    outputs = {"CUBIN": CUBIN, "PTX": PTX} if with_ptx else {"CUBIN": CUBIN}
    log, made = compiler.compile(text, (f"--gpu-architecture={arch}", *_OPTIONS), tuple(outputs))
    images = (Image(kind, arch, data) for kind, data in zip(outputs.values(), made, strict=True))
    return Built(tuple(images), ptxas_resources(log, arch))


# ---------------------------------------------------------------- nvcc


def _nvcc(home: Path | None) -> CudaTool | None:
    places = (str(home / "bin" / "nvcc") if home else None, "nvcc", str(_TOOLKIT / "bin" / "nvcc"))
    path = next(
        (found for place in places if place and (found := shutil.which(place, path=search_path()))), None
    )
    if path is None:
        return None
    banner = run([path, "--version"], env=child_environment(), timeout=_PROBE_SECONDS)
    listed = run([path, "--list-gpu-code"], env=child_environment(), timeout=_PROBE_SECONDS)
    version = re.search(r"release [\d.]+, V([\d.]+)", banner.stdout)
    if banner.returncode != 0 or version is None:
        return None
    identity = content_key("nvcc", version[1], *_OPTIONS)
    tool = Tool(f"nvcc {version[1]}", identity, partial(_compile_nvcc, path))
    return CudaTool(tool, tuple(dict.fromkeys(re.findall(r"sm_\d+\b", listed.stdout))))


def _compile_nvcc(path: str, text: str, arch: str, with_ptx: bool) -> Built:  # noqa: FBT001 - a Tool's
    with private_directory("tk-cuda") as directory:
        write_atomic(directory / "model.cu", text)
        log = _run_nvcc(path, ["-cubin", f"-arch={arch}"], CUBIN, directory)
        images = [Image(CUBIN, arch, (directory / CUBIN).read_bytes())]
        if with_ptx:
            _run_nvcc(path, ["-ptx", f"-arch={arch.replace('sm_', 'compute_')}"], PTX, directory)
            text_of_ptx = (directory / PTX).read_bytes() + b"\0"  # the driver reads a C string
            images.append(Image(PTX, arch, text_of_ptx))
        return Built(tuple(images), ptxas_resources(log, arch))


def _run_nvcc(path: str, flags: list[str], output: str, directory: Path) -> str:
    argv = [path, *flags, *_OPTIONS, "model.cu", "-o", output]
    env = child_environment(TMPDIR=str(directory))
    done = run(argv, cwd=directory, env=env, timeout=_LIMIT_SECONDS, merged=True)
    if done.returncode != 0:
        check_host(done)
        raise refused(" ".join(argv), done.stdout)
    return done.stdout


# ---------------------------------------------------------------- nvdisasm


def find_nvdisasm(settings: Settings) -> str | None:
    """NVIDIA's disassembler: of TK_CUDA_ROOT, the running Python's packages, the PATH, the toolkit."""
    home = settings.cuda_root
    places = (
        str(home / "bin" / "nvdisasm") if home else None,
        _packaged("nvdisasm"),
        "nvdisasm",
        str(_TOOLKIT / "bin" / "nvdisasm"),
    )
    return next((path for one in places if one and (path := shutil.which(one, path=search_path()))), None)


def _packaged(program: str) -> str | None:
    try:
        files = distribution(DISASSEMBLER_PACKAGE).files or ()
    except PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in files if file.name == program), None)


# ---------------------------------------------------------------- resources

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_PROPERTIES = re.compile(r"Function properties for (\w+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def ptxas_resources(log: str, arch: str) -> tuple[Resource, ...]:
    """Registers, bytes of spills, shared and private bytes of each kernel, from what `ptxas -v` writes."""
    entry, function = "", ""
    stacks: dict[str, tuple[int, int]] = {}
    rows: list[Resource] = []
    for line in log.splitlines():
        if found := _ENTRY.search(line):
            entry = found[1]
        elif found := _PROPERTIES.search(line):
            function = found[1]
        elif found := _STACK.search(line):
            stacks[function] = int(found[1]), int(found[2])
        elif (found := _USED.search(line)) and entry:
            private, spills = stacks.get(entry, (0, 0))
            rows.append(Resource(entry, arch, int(found[1]), spills, int(found[2] or 0), private))
            entry = ""
    return tuple(sorted(rows, key=lambda row: row.kernel))
