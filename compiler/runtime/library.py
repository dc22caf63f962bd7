"""Links kernels, runtime, constants and manifest into one self-contained model library.

The runtime is compiled once per C++ compiler, for the oldest processor of the architecture, so that it can
say what is missing on a machine that cannot run the kernels. The same inputs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from compiler.core.cache import ContentCache, checked_content, content_key
from compiler.core.compilers import compiled, run_compiler
from compiler.core.diagnostics import BadInputError
from compiler.core.files import private_directory, sha256_file, stream_atomic, write_atomic
from compiler.runtime.elf import CONSTANTS_SECTION, TABLE_SECTION, append_constants

ROOT = Path(__file__).resolve().parent
INCLUDE = ROOT / "include"
SOURCES = ROOT / "src"

COMPILE_FLAGS = (
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-fno-rtti",
    "-pthread",
)
_EXPORTS = "{ global: tk_*_v1; local: *; };\n"
LINK_FLAGS = (
    "-shared",
    "-pthread",
    "-Wl,--version-script=exports.map",
    "-Wl,--build-id=none",
    "-Wl,--as-needed",
    "-Wl,-z,defs,-z,relro,-z,now,-z,noexecstack",
)
PROGRAM_FLAGS = ("-pthread", "-Wl,--build-id=none", "-Wl,-z,relro,-z,now,-z,noexecstack")
"""Of a program with a `main` among its objects, around its model: for measuring."""
_DEFECT = "this is a defect of tk: please report it"

# tk_pool_v1: see src/pool.h. `@gnu_unique_object` cannot be written in C++ for every compiler.
_ASSEMBLER = """\
    .section {table},"a",@progbits
    .balign 64
    .globl tk_blobs_model
    .hidden tk_blobs_model
    .type tk_blobs_model, @object
tk_blobs_model:
    .quad 0
    .quad 0
    .quad manifest - tk_blobs_model
    .quad manifest_end - manifest - 1
    .quad names - tk_blobs_model
    .quad names_end - names
    .quad images - tk_blobs_model
    .quad {count}
    .size tk_blobs_model, . - tk_blobs_model
manifest:
    .incbin "manifest.bin"
    .byte 0
manifest_end:
names:
    .incbin "names.bin"
names_end:
    .byte 0
    .balign 16
images:
{images}
    .section {constants},"",@progbits
    .byte 0

    .section .note.tk,"a",@note
    .balign 4
    .long 3, 4, 1
    .asciz "tk"
    .balign 4
    .long 1

    .data
    .balign 128
    .globl tk_pool_v1
    .type tk_pool_v1, @gnu_unique_object
tk_pool_v1:
    .quad 0
    .quad tk_pool_reserve
    .quad tk_pool_acquire
    .quad tk_pool_release
    .quad tk_pool_parallel
    .size tk_pool_v1, . - tk_pool_v1

    .section .note.GNU-stack,"",@progbits
"""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The C++ compiler that builds the runtime and links.

    `identity` changes whenever the compiler's output might; `flags` (a sanitizer) are given to every
    compilation and to the link, `link_flags` (another linker) to the link only.
    """

    cxx: str
    identity: str
    flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Contents:
    """What a library holds beside code.

    `constants` writes the constants to a stream, in the layout of the plan; `manifest` is JSON in UTF-8;
    `inputs` and `outputs` are the names of the model's tensors in its order, `symbols` those of the plan's
    symbolic dimensions; `specialised` are all of these for each specialised plan. `images` are kind, arch and
    bytes of what a device loads; `devices` names the files of `src/devices` that load them.
    """

    manifest: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Callable[[BinaryIO], object]
    images: tuple[tuple[str, str, bytes], ...] = ()
    devices: tuple[str, ...] = ("none",)
    symbols: tuple[str, ...] = ()
    specialised: tuple[str, ...] = ()


def link_library(
    objects: Sequence[Path],
    contents: Contents,
    output: Path,
    toolchain: Toolchain,
    cache: ContentCache,
    *,
    flags: Sequence[str] = LINK_FLAGS,
) -> int:
    """Link kernel objects (with `tk_plan_model` among them) into the library `output`; returns its bytes.

    `output` is replaced at the end, in one step. With PROGRAM_FLAGS it is a program. Raises BuildError when
    the compiler or linker refuses, and BadInputError for a tensor name that no C string can hold.
    """
    with ThreadPoolExecutor(max_workers=toolchain.jobs) as pool:
        runtime = [item.result() for item in start_runtime(toolchain, cache, contents.devices, pool)]
    with private_directory("tk-link") as directory:
        names = _write_inputs(directory, contents, [*objects, *runtime])
        # Assembled on its own: inside a link the compiler would invent a name, which ends up in the library.
        argv = [toolchain.cxx, "-c", "data.s", "-o", "data.o"]
        run_compiler(argv, directory, "the assembler refused the data of the model library", _DEFECT)
        libraries = ["-ldl"] if contents.images else []  # a library of its own before glibc 2.34
        options = (*flags, *toolchain.flags, *toolchain.link_flags)
        argv = [toolchain.cxx, *options, *names, "data.o", *libraries, "-o", "linked"]
        run_compiler(argv, directory, "the linker refused the model library", _DEFECT)
        linked = (directory / "linked").read_bytes()
        with stream_atomic(output, executable=True) as stream:
            return append_constants(linked, contents.constants, stream)


def start_runtime(
    toolchain: Toolchain, cache: ContentCache, devices: Sequence[str], pool: Executor
) -> list[Future[Path]]:
    """Objects of the runtime with its files for `devices`, compiled in `pool` where the cache has none.

    The files that every library has are two translation units: half of the time for each one alone would
    be that of reading the standard library's headers.

    Raises BuildError through them. Started before there is a kernel, they are in the
    cache when it comes to the link.
    """
    digest = headers_digest(INCLUDE, SOURCES)
    compile_one = partial(_runtime_object, toolchain=toolchain, cache=cache, headers=digest)
    common = sorted(SOURCES.glob("*.cpp"))
    units = [common[::2], common[1::2], *([SOURCES / "devices" / f"{name}.cpp"] for name in devices)]
    return [pool.submit(compile_one, unit) for unit in units]


def headers_digest(*folders: Path) -> str:
    """One digest over every header that sources may include."""
    headers = (path for folder in folders for path in sorted(folder.glob("*.h")))
    return content_key("headers", *(part for path in headers for part in (path.name, sha256_file(path))))


def _runtime_object(
    sources: Sequence[Path], *, toolchain: Toolchain, cache: ContentCache, headers: str
) -> Path:
    # Copies under plain names, so that no path of this machine gets into the object.
    files = {source.name: source.read_bytes() for source in sources}
    unit = "".join(f'#include "{name}"\n' for name in files)
    flags = (*COMPILE_FLAGS, *toolchain.flags)
    parts = (part for name, text in files.items() for part in (name, text))
    key = content_key("runtime", *parts, headers, toolchain.identity, *flags)
    include = ("-I", str(INCLUDE), "-I", str(SOURCES))
    argv = [toolchain.cxx, *flags, *include, "-c", "runtime_unit.cpp", "-o", "runtime.o"]
    what = f"the C++ compiler rejected the runtime ({', '.join(files)})"
    make = partial(compiled, argv, {**files, "runtime_unit.cpp": unit}, "runtime.o", what, _DEFECT)
    return cache.made(key, make, ".o")


def _write_inputs(directory: Path, contents: Contents, objects: Sequence[Path]) -> list[str]:
    """Put what the linker reads into `directory`; returns the objects' names there.

    Objects get plain numbered names: the paths of a cache must not decide over the bytes of a library.
    """
    write_atomic(directory / "data.s", _assembler(contents), durable=False)
    for number, (_, _, data) in enumerate(contents.images):
        write_atomic(directory / f"image{number}.bin", data, durable=False)
    write_atomic(directory / "exports.map", _EXPORTS, durable=False)
    write_atomic(directory / "manifest.bin", contents.manifest, durable=False)
    every = (*contents.inputs, *contents.outputs, *contents.symbols, *contents.specialised)
    write_atomic(directory / "names.bin", b"".join(map(_c_string, every)), durable=False)
    names = [f"object{index}.o" for index in range(len(objects))]
    for name, path in zip(names, objects, strict=True):
        write_atomic(directory / name, checked_content(path), durable=False)
    return names


def _assembler(contents: Contents) -> str:
    """The data of a library as assembler text."""
    rows, data = [], []
    for number, (kind, arch, _) in enumerate(contents.images):
        rows += [f"    .quad {name}{number} - tk_blobs_model" for name in ("kind", "arch", "image")]
        rows.append(f"    .quad image_end{number} - image{number}")
        data += [f'kind{number}:\n    .asciz "{_plain(kind)}"', f'arch{number}:\n    .asciz "{_plain(arch)}"']
        data += ["    .balign 16", f'image{number}:\n    .incbin "image{number}.bin"', f"image_end{number}:"]
        data.append("    .byte 0")
    images = "\n".join((*rows, *data, ""))
    return _ASSEMBLER.format(
        table=TABLE_SECTION, constants=CONSTANTS_SECTION, count=len(contents.images), images=images
    )


def _plain(text: str) -> str:
    """A word of our own that goes into a string of the assembler's."""
    assert all(char.isalnum() or char in "-_.:+," for char in text), text
    return text


def _c_string(name: str) -> bytes:
    if "\0" in name:
        raise BadInputError("the name of a tensor contains a zero byte", where=repr(name))
    return name.encode("utf-8", "surrogateescape") + b"\0"
