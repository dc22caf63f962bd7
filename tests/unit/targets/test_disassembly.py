"""Machine code read back: the same loops as in the compiler's own assembly, labels that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compiler.core.diagnostics import BuildError, HostError
from compiler.core.settings import load_settings
from compiler.targets import disassembly, get_target
from compiler.targets.assembly import innermost_loops
from compiler.targets.build import compile_object
from compiler.targets.disassembly import (
    disassemble,
    find_objdump,
    intermediate_assembly,
    kernel_assembly,
)

TARGET = get_target("cpu", "x86-64-v3")
SOURCE = """
#include <math.h>
static __attribute__((noinline)) float tk_k3_p0(const float *a, const float *b, long n) {
  float sum = 0;
  for (long i = 0; i < n; ++i) sum = __builtin_fmaf(a[i], b[i], sum);
  return sum;
}
static __attribute__((noinline)) void tk_k3_p1(float *a, long n) {
  for (long i = 0; i < n; ++i) a[i] = sqrtf(a[i] + 1.0f);
}
extern "C" void helper(float *);
extern "C" void tk_k3(float *a, float *b, long n) {
  a[0] = tk_k3_p0(a, b, n);
  helper(a);
  tk_k3_p1(b, n);
}
extern "C" float tk_k12(float *a, long n) {
  float most = a[0];
  for (long i = 1; i < n; ++i) most = a[i] > most ? a[i] : most;
  return most;
}
extern "C" int unrelated(int a) { return a + 1; }
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An object of kernels 3 and 12, and the compiler's assembly of the same source."""
    cxx = TARGET.cxx(load_settings())
    flags = ("-O2", "-mavx2", "-mfma", "-fno-math-errno", "-fno-asynchronous-unwind-tables")
    path = tmp_path_factory.mktemp("object") / "kernels.o"
    path.write_bytes(compile_object(cxx, flags, "test", SOURCE))
    return path, compile_object(cxx, flags, "test", SOURCE, output="-S").decode()


@pytest.fixture(scope="module")
def assembly(built: tuple[Path, str]) -> dict[int, str]:
    return disassemble(find_objdump(TARGET.cxx(load_settings())), [built[0]])


def loops(text: str) -> list[tuple[int, int]]:
    return sorted((len(one.instructions), one.multiply_adds) for one in innermost_loops(text))


def test_kernels_are_told_apart(assembly: dict[int, str]) -> None:
    assert assembly.keys() == {3, 12}
    assert re.findall(r"^(\w+):$", assembly[3], re.MULTILINE).count("tk_k3") == 1
    assert {"tk_k3_p0", "tk_k3_p1"} <= set(re.findall(r"^(\w+):$", assembly[3], re.MULTILINE))
    assert "unrelated" not in "".join(assembly.values())


def test_it_has_the_loops_of_the_compilers_assembly(
    built: tuple[Path, str], assembly: dict[int, str]
) -> None:
    assert loops("".join(assembly.values())) == loops(built[1])
    assert any(adds for _, adds in loops(assembly[3]))


def test_every_jump_leads_to_a_label(assembly: dict[int, str]) -> None:
    for text in assembly.values():
        labels = re.findall(r"^(\.L\w+):$", text, re.MULTILINE)
        jumps = re.findall(r"\t\w+\t(\.L\w+)$", text, re.MULTILINE)
        assert jumps
        assert set(jumps) == set(labels)
        assert len(labels) == len(set(labels))


def test_calls_have_the_names_that_are_linked(assembly: dict[int, str]) -> None:
    assert re.search(r"^\tcall\thelper$", assembly[3], re.MULTILINE)


def test_what_is_no_kernel_is_left_out() -> None:
    text = "0000 <main>:\n   0:\tret\n\n0010 <tk_k1>:\n  10:\tjmp    14 <tk_k1+0x4>\n  14:\tret\n"
    assert kernel_assembly(text) == {1: "tk_k1:\n\tjmp\t.L14\n.L14:\n\tret\n"}


def test_ptx_of_each_kernel() -> None:
    """Two launches of one kernel, another kernel, and an image that is no text."""
    names = ("tk_k0_0", "tk_k0_1", "tk_k10_0")
    entries = (f"\t// .globl\t{name}\n.visible .entry {name}(\n)\n{{\n\tret;\n}}\n" for name in names)
    text = ".version 8.8\n" + "".join(entries)
    found = intermediate_assembly([("cubin", "sm_70", b"\x7fELF"), ("ptx", "sm_90", text.encode() + b"\0")])
    assert found.keys() == {0, 10}
    assert found[10] == "// PTX for sm_90\n.visible .entry tk_k10_0(\n)\n{\n\tret;\n}\n"
    assert found[0].count(".entry") == 2
    assert "globl" not in found[0]


def test_a_damaged_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "k.o").write_bytes(b"no object")
    with pytest.raises(BuildError, match="the disassembler refused"):
        disassemble(find_objdump(TARGET.cxx(load_settings())), [tmp_path / "k.o"])


def test_a_missing_disassembler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cxx = TARGET.cxx(load_settings())
    monkeypatch.setattr(disassembly.shutil, "which", lambda *_args, **_options: None)
    with pytest.raises(HostError, match="no disassembler") as caught:
        find_objdump(cxx)
    assert "binutils" in caught.value.hint
