"""What tools print of code objects and SPIR-V, taken apart by kernel; a tool that is missing is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.core.settings import load_settings, search_path
from compiler.targets import device_assembly as module
from compiler.targets.device_assembly import code_object_kernels, device_assembly, spirv_kernels

OBJDUMP = """\
image:	file format elf64-amdgpu

Disassembly of section .text:

0000000000002100 <tk_k0_0>:
	s_load_dwordx2 s[8:9], s[4:5], 0x0                         // 000000002100: C0060202 00000000
	v_add_f32_e32 v1, v1, v2                                   // 000000002108: 020204FF
	s_cbranch_scc1 65534                                       // 00000000210C: BF85FFFE <tk_k0_0+0x8>
	s_endpgm                                                   // 000000002110: BF810000

0000000000002200 <tk_k0_1>:
	s_branch 65535                                             // 000000002200: BF82FFFF <tk_k0_1>

0000000000002300 <helper>:
	s_endpgm                                                   // 000000002300: BF810000

0000000000002400 <tk_k12_0>:
	s_endpgm                                                   // 000000002400: BF810000
"""
SPIRV_DIS = """\
               OpEntryPoint Kernel %9 "tk_k1_0" %24
               OpName %7 "tk_k1_0"
               OpName %8 "_ZL7tk_reluDv4_f"
          %7 = OpFunction %26 None %28
         %34 = OpLabel
               OpReturn
               OpFunctionEnd
          %8 = OpFunction %26 None %28
               OpFunctionEnd
          %9 = OpFunction %26 None %28
         %35 = OpFunctionCall %26 %7
               OpFunctionEnd
"""
LLVM_SPIRV = """\
6 EntryPoint 6 9 "tk_k1_0" 24
4 Name 7 "tk_k1_0"
6 Name 8 "_ZL7tk_reluDv4_f"
4 TypeFunction 28 26 27

5 Function 26 7 0 28

2 Label 34
1 Return

1 FunctionEnd

5 Function 26 8 0 28
1 FunctionEnd
5 Function 26 9 0 28
4 FunctionCall 26 35 7
1 FunctionEnd
"""


def test_code_objects_have_labels_where_branches_lead() -> None:
    found = code_object_kernels(OBJDUMP)
    assert found.keys() == {0, 12}
    lines = found[0].splitlines()
    assert [line.split()[0] for line in lines if line] == [
        "tk_k0_0:", "s_load_dwordx2", ".L0_8:", "v_add_f32_e32", "s_cbranch_scc1", "s_endpgm",
        "tk_k0_1:", ".L1_0:", "s_branch",
    ]  # fmt: skip
    assert [line.split()[1] for line in lines if "branch" in line] == [".L0_8", ".L1_0"]
    assert "//" not in found[0]


@pytest.mark.parametrize(("text", "calls"), [(SPIRV_DIS, "OpFunctionCall"), (LLVM_SPIRV, "FunctionCall")])
def test_spirv_has_the_functions_of_each_kernel(text: str, calls: str) -> None:
    found = spirv_kernels(text)
    assert found.keys() == {1}
    assert found[1].count("; tk_k1_0") == found[1].count("FunctionEnd") == 2
    assert calls in found[1]


@pytest.mark.parametrize(
    ("image", "tool"),
    [
        (("hsaco", "gfx906", b"\x7fELF"), "llvm-objdump"),
        (("spirv", "amd", b"\x03\x02\x23\x07"), "spirv-dis"),
        (("cubin", "sm_80", b"\x7fELF"), "pip install nvidia-cuda-nvdisasm"),
    ],
)
def test_a_missing_tool_is_named(
    monkeypatch: pytest.MonkeyPatch, image: tuple[str, str, bytes], tool: str
) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda *_args, **_options: None)
    found = device_assembly(
        [image, ("ptx", "sm_90", b".visible .entry tk_k3_0(\n)\n{\n}\n")], load_settings()
    )
    assert found.texts.keys() == {3}, "what needs no tool is there"
    (why,) = found.missing
    assert tool in why


def _which(*names: str) -> bool:
    return any(shutil.which(name, path=search_path()) for name in names)


TOOLS: dict[str, Callable[[], bool]] = {
    "hsaco": lambda: _which("llvm-objdump", "llvm-objdump-15", "llvm-objdump-14"),
    "spirv": lambda: _which("spirv-dis", "llvm-spirv", "llvm-spirv-15"),
}


@pytest.mark.parametrize("kind", TOOLS)
def test_what_a_tool_refuses_is_told(kind: str, tmp_path: Path) -> None:
    if not TOOLS[kind]():
        pytest.skip("no disassembler here")
    found = device_assembly([(kind, "gfx906", b"no image")], load_settings())
    assert not found.texts
    assert "refused" in found.missing[0]
    assert str(tmp_path.parent) not in found.missing[0]
