"""Builds what runs a module of CUDA or HIP on this machine's processors: its text as C++, with checks.

The kernels' text is compiled as it is, with `runtime/emulator/tk_emulator.h` in front, into one library,
which the runtime loads in place of a device (`runtime/src/devices/emulator.cpp`). Every access to memory is
checked (bounds of buffers and shared arrays, shared memory that nobody wrote, races, alignment), and every
barrier.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from compiler.core.cache import ContentCache, content_key
from compiler.core.compilers import compiled
from compiler.core.diagnostics import BadInputError
from compiler.core.files import sha256_file
from compiler.core.settings import Settings
from compiler.runtime.elf import read_images
from compiler.runtime.library import SOURCES
from compiler.targets.device import SOURCE
from compiler.targets.toolchain import Cxx, find_cxx

_EMULATOR_SOURCES = Path(__file__).resolve().parent.parent / "runtime" / "emulator"

_FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-pthread",
    "-w",
)
"""Kernels see the same memory as elements of several types, and integers wrap around, as on devices."""
_CHECKED = ("-O1", "-g1", "-gdwarf-4", "-fsanitize=thread,alignment,bounds")
_UNCHECKED = ("-O2",)
_RUNTIME_FLAGS = (
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-DTK_SUBGROUP=32",
)
_LINK_FLAGS = (
    "-shared",
    "-pthread",
    "-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset",
    "-Wl,--build-id=none,-z,defs,-z,now,-z,noexecstack",
)
_SUBGROUPS = {"cuda": 32, "hip": 64}
_HIP_MARK = "#define TK_HIP 1"
_KERNEL = re.compile(
    r"^(?:// (?P<named>\w+):(?P<sizes>[^\n]*)\n)?"
    r'extern "C" __global__ [^\n]*?(?P<name>\w+)\([^)\n]*\) \{',
    re.MULTILINE,
)
_SIZE = re.compile(r"\w+\[\d+(?:\+\d+/\d+)?\]")
_CLUSTER = re.compile(r"__cluster_dims__\(([^)]*)\)")
_CLUSTER_OF_Z = re.compile(r"1, 1, ([2-8])")
_UNIT = "kernels.cpp"
"""The name of a source of kernels: the emulator looks for it among the places of a call."""
_LINES_A_FILE = 1500
_HINT = "if the text is tk's own, this is a defect of tk: please report it"
_DATA = """\
    .section .rodata
    .globl tk_emu_text, tk_emu_text_end
    .hidden tk_emu_text, tk_emu_text_end
tk_emu_text:
    .incbin "module.txt"
tk_emu_text_end:
    .byte 0
    .section .note.GNU-stack,"",@progbits
"""


@dataclass(frozen=True, slots=True)
class EmulatedKernel:
    """A kernel's part of a module: its text, from `line` on; `sizes`: its parameters with their elements.

    Where a batch is free, with how many more there are for so many further blocks along z: `b0[64+80/1]`.
    cluster: how many blocks along z share their memory, 1 where none do.
    """

    name: str
    sizes: tuple[str, ...]
    line: int
    text: str
    cluster: int = 1


@dataclass(frozen=True, slots=True)
class EmulatedModule:
    """A module taken apart: what stands in front of its kernels, and the kernels."""

    prelude: str
    kernels: tuple[EmulatedKernel, ...]
    subgroup: int


def split_module(text: str, subgroup: int | None = None) -> EmulatedModule:
    """Take a module of CUDA or HIP apart; `subgroup` is the number of lanes, by default the language's.

    Raises BadInputError when it has no kernels, or one that does not say how large its buffers are, or one
    with clusters of another shape than 1 x 1 x 2 to 1 x 1 x 8.
    """
    found = list(_KERNEL.finditer(text))
    if not found:
        raise BadInputError("the text holds no kernels", why='none starts with `extern "C" __global__`')
    unsized = [item["name"] for item in found if item["named"] != item["name"]]
    if unsized:
        raise BadInputError(
            "the sizes of the buffers are not known",
            where=", ".join(unsized),
            why="no comment such as `// name: b0[64] b1[16]` stands in front",
        )
    ends = [*(item.start() for item in found[1:]), len(text)]
    kernels = tuple(
        EmulatedKernel(
            item["name"],
            tuple(_SIZE.findall(item["sizes"])),
            text.count("\n", 0, item.start()) + 1,
            text[item.start() : end],
            _cluster_of(item["name"], item[0]),
        )
        for item, end in zip(found, ends, strict=True)
    )
    language = "hip" if _HIP_MARK in text else "cuda"
    return EmulatedModule(text[: found[0].start()], kernels, subgroup or _SUBGROUPS[language])


def _cluster_of(name: str, head: str) -> int:
    found = _CLUSTER.search(head)
    if found is None:
        return 1
    along_z = _CLUSTER_OF_Z.fullmatch(found[1].strip())
    if along_z is None:
        raise BadInputError(
            "the emulator has no clusters of this shape",
            where=name,
            why=f"it has blocks of {found[1]}; known are 1, 1, 2 to 1, 1, 8",
        )
    return int(along_z[1])


def build_emulation(
    text: str,
    settings: Settings,
    *,
    subgroup: int | None = None,
    checks: bool = True,
    access: bool = False,
    cxx: Cxx | None = None,
) -> Path:
    """The library that runs the kernels of a module's text on the host, from the cache if it was made before.

    subgroup: lanes of a sub-group, by default 32 for CUDA and 64 for HIP. checks: look after every access.
    access: count what accesses cost, too (`verify/access.py`).
    Raises BadInputError for a text that is no module, BuildError when the compiler refuses it.
    """
    compiler = find_cxx(settings) if cxx is None else cxx
    module = split_module(text, subgroup)
    how = (*_CHECKED, *_volatile_flags(compiler)) if checks else _UNCHECKED
    how += _step_flags(compiler) if access else ()
    checked = f"-DTK_EMU_CHECKED={int(checks)}"
    flags = (*_FLAGS, *how, f"-DTK_SUBGROUP={module.subgroup}", checked)
    runtime_flags = (*_RUNTIME_FLAGS, checked, f"-DTK_EMU_ACCESS={int(access)}")
    cache = ContentCache(settings.cache_dir / "emulated")
    headers = _headers_digest()
    key = content_key("emulation", text, headers, compiler.identity, *flags, *runtime_flags, *_LINK_FLAGS)
    if found := cache.get(key, ".so"):
        return found
    units = [(_UNIT, unit, flags) for unit in _units(module)]
    # One unit: more than half of the time for each file alone would be that of reading standard headers.
    runtime = "".join(f'#include "{path.name}"\n' for path in sorted(_EMULATOR_SOURCES.glob("*.cpp")))
    units.append(("emulator.cpp", runtime, runtime_flags))
    compile_one = partial(_object, cxx=compiler, cache=cache, headers=headers)
    with ThreadPoolExecutor(max_workers=settings.jobs) as pool:
        objects = list(pool.map(lambda unit: compile_one(*unit), units))
    return cache.put(key, _link(text, objects, compiler), ".so")


def _volatile_flags(cxx: Cxx) -> tuple[str, ...]:
    """Volatile reads go with atomics where the compiler can tell them apart (g++ from version 11 on)."""
    if cxx.family == "clang":
        return ("-mllvm", "-tsan-distinguish-volatile=1")
    return ("--param", "tsan-distinguish-volatile=1") if cxx.version >= (11,) else ()


def _step_flags(cxx: Cxx) -> tuple[str, ...]:
    """Each basic block calls back, and stands in the code before those that it leads on to.

    With scalar replacement g++ loads vectors as a whole and once more by elements.
    """
    if cxx.family == "clang":
        return ("-fsanitize-coverage=bb,no-prune,trace-pc",)
    return ("-fsanitize-coverage=trace-pc", "-fno-reorder-blocks", "-fno-tree-sra")


def emulation_of(library: Path, settings: Settings, subgroup: int, *, checks: bool = True) -> Path:
    """The library that runs the kernels of a model library in the emulator, with sub-groups of so many lanes.

    Raises what `carried_text` and `build_emulation` raise.
    """
    return build_emulation(carried_text(library), settings, subgroup=subgroup, checks=checks)


def carried_text(library: Path) -> str:
    """The kernels that a model library carries as text.

    Raises BadInputError when it carries none in CUDA or HIP.
    """
    texts = [data for kind, _, data in read_images(library) if kind == SOURCE]
    if not texts:
        raise BadInputError(
            "this library has nothing for the emulator",
            where=str(library),
            why="it carries no source of kernels for a GPU",
            hint="the emulator runs what was compiled for the targets of CUDA and HIP",
        )
    return texts[0].decode()


def _units(module: EmulatedModule) -> list[str]:
    """Sources of some kernels each, so that they can be compiled at the same time."""
    units: list[str] = []
    lines = _LINES_A_FILE
    for kernel in module.kernels:
        if lines >= _LINES_A_FILE:
            units.append(f'#line 1 "{_UNIT}"\n{module.prelude}')
            lines = 0
        registration = f'TK_EMULATED({kernel.name}, "{" ".join(kernel.sizes)}", {kernel.cluster})\n'
        units[-1] += f'#line {kernel.line} "{_UNIT}"\n{kernel.text}\n{registration}'
        lines += kernel.text.count("\n")
    return units


def _headers_digest() -> str:
    paths = [*sorted(_EMULATOR_SOURCES.glob("*")), SOURCES / "emulation.h"]
    return content_key(*(part for path in paths if path.is_file() for part in (path.name, sha256_file(path))))


def _object(
    name: str, text: str, flags: Sequence[str], *, cxx: Cxx, cache: ContentCache, headers: str
) -> Path:
    key = content_key("emulated", name, text, headers, cxx.identity, *flags)
    includes = ["-I", str(_EMULATOR_SOURCES), "-I", str(SOURCES)]
    if name == _UNIT:
        includes += ["-include", "tk_emulator.h"]
    argv = [cxx.path, *flags, *includes, "-c", name, "-o", "made.o"]
    what = "the C++ compiler rejected kernels for the emulator"
    return cache.made(key, partial(compiled, argv, {name: text}, "made.o", what, _HINT), ".o")


def _link(text: str, objects: Sequence[Path], cxx: Cxx) -> bytes:
    files = {"module.txt": text, "data.s": _DATA}
    argv = [cxx.path, "-c", "data.s", "-o", "data.o"]
    data = compiled(argv, files, "data.o", "the assembler refused the module's text", _HINT)
    argv = [cxx.path, *_LINK_FLAGS, *map(str, objects), "data.o", "-lm", "-ldl", "-o", "made.so"]
    what = "the linker refused the kernels for the emulator"
    return compiled(argv, {"data.o": data}, "made.so", what, _HINT)
