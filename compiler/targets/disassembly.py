"""Machine code of kernels as assembly with labels, read back from objects and libraries by `objdump`; PTX.

The text is that of `-S` as far as a reader needs it: labels where jumps lead, no addresses, names of
functions as in the source. `assembly.py` reads it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from compiler.core.diagnostics import BuildError, HostError
from compiler.core.process import run
from compiler.core.settings import child_environment, search_path
from compiler.targets.cuda_tools import PTX
from compiler.targets.toolchain import Cxx

_LIMIT_SECONDS = 300.0
_HEADER = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")
_KERNEL = re.compile(r"tk_k(\d+)(?:_p\d+)?(?!\d)")
_LINE = re.compile(r"^\s*([0-9a-f]+):\t(.*)$")
_JUMP = re.compile(r"^(.*?\b)([0-9a-f]+) <([^>+]+)(?:\+0x[0-9a-f]+)?>$")
_ENTRY = re.compile(r"^[ \t]*(?:\.visible )?\.entry tk_k(\d+)_\d+\(", re.MULTILINE)
_CALLS = ("call", "bl")
_RELOCATION = re.compile(r"^\s+[0-9a-f]+: R_\w+\t(\S+)$")
_NO_CODE = frozenset({"nop", "nopw", "nopl", "data16", "cs", "int3", "xchg"})


def find_objdump(cxx: Cxx) -> str:
    """The `objdump` that belongs to a compiler, else llvm's; raises HostError when there is none."""
    asked = run([cxx.path, "-print-prog-name=objdump"], env=child_environment(), timeout=_LIMIT_SECONDS)
    for name in (asked.stdout.strip(), "objdump", "llvm-objdump"):
        if name and (path := shutil.which(name, path=search_path())):
            return path
    raise HostError(
        "no disassembler was found",
        why="neither objdump nor llvm-objdump is on the PATH",
        hint="install binutils (Debian, Ubuntu: apt install binutils)",
    )


def disassemble(objdump: str, files: Iterable[Path]) -> dict[int, str]:
    """The assembly of each kernel by its number, from objects or a library.

    Raises BuildError where a file cannot be read as one.
    """
    # Absolute paths begin with no dash; older llvm-objdump does not know `--`.
    argv = [objdump, "-d", "-r", "--no-show-raw-insn", *(str(path.absolute()) for path in files)]
    done = run(argv, env=child_environment(), timeout=_LIMIT_SECONDS)
    if done.returncode != 0:
        raise BuildError(
            "the disassembler refused a kernel", where=" ".join(argv[:4]), why=done.stderr[:2000]
        )
    return kernel_assembly(done.stdout)


def intermediate_assembly(images: Iterable[tuple[str, str, bytes]]) -> dict[int, str]:
    """The PTX of each kernel, from the images (kind, architecture, bytes) of a library; empty without any."""
    found: dict[int, list[str]] = {}
    for _, arch, data in (image for image in images if image[0] == PTX):
        text = data.rstrip(b"\0").decode(errors="replace")
        starts = [*_ENTRY.finditer(text)]
        ends = [*(one.start() for one in starts[1:]), len(text)]
        for start, end in zip(starts, ends, strict=True):
            body = text[start.start() : end].partition("\t// .globl")[0].rstrip()
            found.setdefault(int(start[1]), []).append(f"// PTX for {arch}\n{body}\n")
    return {number: "\n".join(parts) for number, parts in sorted(found.items())}


def kernel_assembly(text: str) -> dict[int, str]:
    """What `objdump -d -r` printed, as the labelled assembly of each kernel; other functions left out."""
    found: dict[int, list[str]] = {}
    for name, lines in _functions(text):
        if kernel := _KERNEL.search(name):
            found.setdefault(int(kernel[1]), []).append(_labelled(name, kernel[0], lines))
    return {number: "\n".join(parts) for number, parts in sorted(found.items())}


def _functions(text: str) -> Iterator[tuple[str, list[str]]]:
    name, lines = "", list[str]()
    for line in text.splitlines():
        if header := _HEADER.match(line):
            if lines:
                yield name, lines
            name, lines = header[1], []
        elif line.startswith((" ", "\t")):
            lines.append(line)
    if lines:
        yield name, lines


def _labelled(symbol: str, name: str, lines: list[str]) -> str:
    """One function: labels in place of addresses, calls by the names that relocations have."""
    code = [found[2] for line in lines if (found := _LINE.match(line))]
    targets = {target for text in code if (target := _target(text, symbol))}
    label = ".L" + "".join(f"{part}_" for part in name.partition("_p")[2:] if part)
    made = [f"{name}:"]
    for line in lines:
        if relocation := _RELOCATION.match(line):
            made[-1] = _with_name(made[-1], relocation[1])
        elif found := _LINE.match(line):
            if found[1] in targets:
                made.append(f"{label}{found[1]}:")
            if text := _instruction(found[2], symbol, label):
                made.append(f"\t{text}")
    return "\n".join(made) + "\n"


def _target(text: str, symbol: str) -> str:
    """The address in the same function that an instruction jumps to; empty for others."""
    jump = _JUMP.match(text.rstrip()) if "#" not in text else None
    inside = jump is not None and jump[3] == symbol and not text.startswith(_CALLS)
    return jump[2] if jump is not None and inside else ""


def _instruction(text: str, symbol: str, label: str) -> str:
    """An instruction as an assembler reads it, jumping to labels; empty for padding."""
    text = text.partition("#")[0].rstrip()
    mnemonic, _, operands = text.partition(" ")
    if not text or mnemonic in _NO_CODE:
        return ""
    target = _target(text, symbol)
    if jump := _JUMP.match(operands.strip()):
        known = f"{label}{target}" if target else "" if jump[3] == symbol else jump[3]
        operands = f"{jump[1]}{known}"
    return f"{mnemonic}\t{operands.strip()}".rstrip()


def _with_name(line: str, symbol: str) -> str:
    """An instruction with the name that the linker puts in: what it calls, or what it reads."""
    name = re.sub(r"[-+]0x[0-9a-f]+$", "", symbol)
    return f"{line}\t{name}" if line.count("\t") == 1 else f"{line}  # {name}"
