"""Images of devices as text, kernel by kernel: cubins, code objects of AMD's devices, SPIR-V, PTX.

Cubins are read by `nvdisasm`, code objects by `llvm-objdump`, SPIR-V by `spirv-dis` or by the translator
`llvm-spirv`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.core.diagnostics import BuildError, HostError, TkError
from compiler.core.files import private_directory, write_atomic
from compiler.core.process import run
from compiler.core.settings import Settings, child_environment, search_path
from compiler.targets.cuda_tools import CUBIN, DISASSEMBLER_PACKAGE, find_nvdisasm
from compiler.targets.disassembly import intermediate_assembly
from compiler.targets.hip_tools import HSACO, llvm_folders
from compiler.targets.opencl import SPIRV

_VERSIONS = ("", *(f"-{number}" for number in range(22, 13, -1)))
_LIMIT_SECONDS = 300.0
_ENTRY = re.compile(r"tk_k(\d+)_\d+")
_HEADER = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_LINE = re.compile(r"^\t(?P<text>.*?)\s*// (?P<at>[0-9A-F]+):[^<]*(?:<\w+(?:\+0x(?P<to>[0-9a-f]+))?>)?$")
_BRANCH = re.compile(r"^(s_c?branch\w*|s_call\w*)(\s+)")
_SECTION = re.compile(r"^\.text\.(\w+):$")
_SASS_LABEL = re.compile(r"^([.$\w]+):$")
_SASS_LINE = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(.*?)\s*(?:\(\*.*\*\))?\s*;$")
_SASS_GOAL = re.compile(r"`\(([^)]+)\)")
_NAMES = re.compile(
    r'^(?:\d+ Name (\d+)|\s*OpName %(\d+)|\d+ EntryPoint \d+ (\d+)|\s*OpEntryPoint \w+ %(\d+)) "([^"]*)"',
    re.MULTILINE,
)
_BEGIN = re.compile(r"^(?:\d+ Function \d+ (\d+) |\s*%(\d+) = OpFunction )")
_END = re.compile(r"^\s*(?:\d+ )?(?:Op)?FunctionEnd\b")

Images = Iterable[tuple[str, str, bytes]]
"""Kind, architecture and bytes of each."""


@dataclass(frozen=True, slots=True)
class DeviceAssembly:
    """The text of each kernel by its number, and why there is none of an image: a sentence each."""

    texts: dict[int, str]
    missing: tuple[str, ...] = ()


def device_assembly(images: Images, settings: Settings) -> DeviceAssembly:
    """The assembly of each kernel in all images that some tool here can read; what lacks its tool is told."""
    images = list(images)
    parts = {number: [text] for number, text in intermediate_assembly(images).items()}
    missing: dict[str, None] = {}
    for kind, arch, data in images:
        reader = _READERS.get(kind)
        if reader is None:
            continue
        try:
            found = reader.kernels(_printed(reader, reader.find(settings), data, arch))
        except TkError as error:
            missing[f"{error.what}: {error.why}" if error.why else error.what] = None
            continue
        for number, text in found.items():
            parts.setdefault(number, []).append(f"// {reader.title} for {arch or 'any device'}\n{text}")
    texts = {number: "\n".join(several) for number, several in sorted(parts.items())}
    return DeviceAssembly(texts, tuple(missing))


def function_texts(kind: str, arch: str, data: bytes, settings: Settings) -> dict[str, str]:
    """The labelled assembly of each device function of a cubin or a code object; none of other kinds.

    Raises HostError where the disassembler is missing, BuildError where it refuses the image.
    """
    split = _FUNCTIONS.get(kind)
    if split is None:
        return {}
    reader = _READERS[kind]
    return split(_printed(reader, reader.find(settings), data, arch))


# ---------------------------------------------------------------- tools


@dataclass(frozen=True, slots=True)
class _Reader:
    """Who prints a kind of image, and what that says of each kernel.

    find: the command before the file's name; raises HostError where there is none.
    """

    title: str
    find: Callable[[Settings], Sequence[str]]
    kernels: Callable[[str], dict[int, str]]


def _printed(reader: _Reader, argv: Sequence[str], data: bytes, arch: str) -> str:
    """What a tool prints of an image; raises BuildError where it refuses it."""
    with private_directory("tk-view") as directory:
        write_atomic(directory / "image", data)
        done = run([*argv, "image"], cwd=directory, env=child_environment(), timeout=_LIMIT_SECONDS)
    if done.returncode == 0:
        return done.stdout
    name = Path(argv[0]).name
    raise BuildError(f"{name} refused the {reader.title} for {arch}", why=done.stderr.strip()[:300])


def _find_objdump(settings: Settings) -> Sequence[str]:
    """LLVM's, that of the HIP compiler first: it knows all of its architectures."""
    for folder in llvm_folders(settings):
        if path := shutil.which(str(folder / "llvm-objdump")):
            return _objdump(path)
    if path := _first("llvm-objdump"):
        return _objdump(path)
    raise HostError(
        "no disassembler for AMD's devices was found",
        why="llvm-objdump is neither beside the HIP compiler nor on the PATH (apt install llvm)",
    )


def _objdump(path: str) -> Sequence[str]:
    return path, "-d", "--no-show-raw-insn"


def _find_nvdisasm(settings: Settings) -> Sequence[str]:
    if path := find_nvdisasm(settings):
        return path, "-c"
    raise HostError(
        "no disassembler for cubins was found",
        why=f"nvdisasm was not found: `pip install {DISASSEMBLER_PACKAGE}` (the extra `cuda`)",
    )


def _find_spirv(_settings: Settings) -> Sequence[str]:
    if path := shutil.which("spirv-dis", path=search_path()):
        return path, "--raw-id", "--no-color"
    if path := _first("llvm-spirv"):
        return path, "--to-text", "-o", "-"
    raise HostError(
        "no disassembler for SPIR-V was found",
        why="neither spirv-dis nor llvm-spirv is on the PATH (apt install spirv-tools)",
    )


def _first(name: str) -> str | None:
    """The newest program of this name on the PATH, with LLVM's version behind the name or without."""
    found = (shutil.which(f"{name}{version}", path=search_path()) for version in _VERSIONS)
    return next((path for path in found if path), None)


# ---------------------------------------------------------------- texts


def code_object_kernels(text: str) -> dict[int, str]:
    """What `llvm-objdump -d` prints of a code object, as the labelled assembly of each kernel."""
    return _by_kernel(code_object_functions(text))


def code_object_functions(text: str) -> dict[str, str]:
    """The same by the names of device functions."""
    return {
        name: _labelled(name, lines) for name, lines in _functions(text).items() if _ENTRY.fullmatch(name)
    }


def cubin_kernels(text: str) -> dict[int, str]:
    """What `nvdisasm -c` prints of a cubin, as the labelled assembly of each kernel."""
    return _by_kernel(cubin_functions(text))


def cubin_functions(text: str) -> dict[str, str]:
    """The same by the names of device functions; what a function calls stands behind it."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if section := _SECTION.match(line):
            lines = [f"{section[1]}:"]
            if _ENTRY.fullmatch(section[1]):
                found[section[1]] = lines
        elif line.startswith("\t.section"):
            lines = []
        elif label := _SASS_LABEL.match(line):
            lines.append(f"{label[1]}:")
        elif one := _SASS_LINE.match(line):
            lines.append("\t" + _SASS_GOAL.sub(r"\1", one[1]))
    return {name: "\n".join(lines) + "\n" for name, lines in found.items()}


def _by_kernel(functions: dict[str, str]) -> dict[int, str]:
    found: dict[int, list[str]] = {}
    for name, text in functions.items():
        if kernel := _ENTRY.fullmatch(name):
            found.setdefault(int(kernel[1]), []).append(text)
    return {number: "\n".join(parts) for number, parts in found.items()}


def _functions(text: str) -> dict[str, list[re.Match[str]]]:
    """The instructions of each function."""
    found: dict[str, list[re.Match[str]]] = {}
    lines: list[re.Match[str]] = []
    for line in text.splitlines():
        if header := _HEADER.match(line):
            lines = found.setdefault(header[1], [])
        elif one := _LINE.match(line):
            lines.append(one)
    return found


def _labelled(name: str, lines: Sequence[re.Match[str]]) -> str:
    """One function with labels in place of the words that branches jump over."""
    start = int(lines[0]["at"], 16) if lines else 0
    goals = {int(one["to"] or "0", 16) for one in lines if _BRANCH.match(one["text"]) and "<" in one[0]}
    label = f".L{name.rpartition('_')[2]}_"
    made = [f"{name}:"]
    for one in lines:
        at = int(one["at"], 16) - start
        if at in goals:
            made.append(f"{label}{at:x}:")
        text = one["text"]
        if (branch := _BRANCH.match(text)) and "<" in one[0]:
            text = f"{branch[1]}{branch[2]}{label}{int(one['to'] or '0', 16):x}"
        made.append(f"\t{text}")
    return "\n".join(made) + "\n"


def spirv_kernels(text: str) -> dict[int, str]:
    """What `spirv-dis --raw-id` or `llvm-spirv --to-text` prints, as the functions of each kernel."""
    names = {next(filter(None, one.groups()[:4])): one[5] for one in _NAMES.finditer(text)}
    found: dict[int, list[str]] = {}
    for number, lines in _spirv_functions(text):
        if kernel := _ENTRY.fullmatch(names.get(number, "")):
            found.setdefault(int(kernel[1]), []).append("\n".join((f"; {kernel[0]}", *lines, "")))
    return {number: "\n".join(parts) for number, parts in found.items()}


def _spirv_functions(text: str) -> Iterator[tuple[str, list[str]]]:
    """The number of each function, and its lines."""
    number, lines = "", list[str]()
    for line in filter(str.strip, text.splitlines()):
        if begin := _BEGIN.match(line):
            number, lines = begin[1] or begin[2], []
        lines.append(line.rstrip())
        if number and _END.match(line):
            yield number, lines
            number = ""


_READERS = {
    CUBIN: _Reader("cubin", _find_nvdisasm, cubin_kernels),
    HSACO: _Reader("code object", _find_objdump, code_object_kernels),
    SPIRV: _Reader("SPIR-V", _find_spirv, spirv_kernels),
}
_FUNCTIONS = {CUBIN: cubin_functions, HSACO: code_object_functions}
