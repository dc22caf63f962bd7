"""Blocks, loops and instructions read from assembly, without any tool."""

from __future__ import annotations

import pytest

from compiler.targets.device_assembly import cubin_functions, cubin_kernels
from compiler.targets.gcn import mark_gcn, read_gcn
from compiler.targets.lanes import wavefronts
from compiler.targets.machine_code import Flow, MachineFunction, Unit, machine_function, unit_counts
from compiler.targets.sass import is_magic, mark_sass, read_sass

NVDISASM = """\
	.headerflags	@"EF_CUDA_SM80"

//--------------------- .text.tk_k3_1             --------------------------
	.section	.text.tk_k3_1,"ax",@progbits
	.sectionflags	@"SHF_BARRIERS=1"
        .global         tk_k3_1
tk_k3_1:
.text.tk_k3_1:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/              @!P0 BRA `(.L_x_0) ;
        /*0020*/                   EXIT ;
.L_x_1:
        /*0030*/                   BRA `(.L_x_1);
        /*0040*/                   NOP;
.L_x_2:

//--------------------- .text.helper             --------------------------
	.section	.text.helper,"ax",@progbits
helper:
.text.helper:
        /*0000*/                   EXIT ;
"""
NESTED = """\
tk_k0_0:
	S2R R0, SR_TID.X
.L_outer:
	LDG.E.128.CONSTANT R4, desc[UR4][R2.64]
	@P1 BRA .L_cold
.L_back:
	STS.128 [R8], R4
	BAR.SYNC.DEFER_BLOCKING 0x0
.L_inner:
	LDS.64 R10, [R9]
	FFMA R12, R10, R11, R12
	@!P0 BRA .L_inner
	@!P2 BRA .L_outer
	EXIT
.L_cold:
	MUFU.RCP R4, R4
	BRA .L_back
.L_trap:
	BRA .L_trap
"""


def sass(text: str) -> MachineFunction:
    return machine_function("tk_k0_0", text, read_sass, mark_sass)


@pytest.mark.parametrize(
    ("opcode", "size"), [("LDSM.16.M88", 4), ("LDSM.16.M88.2", 8), ("LDSM.16.M88.4", 16)]
)
def test_bytes_of_matrices_from_shared_memory(opcode: str, size: int) -> None:
    assert read_sass(f"{opcode} R4, [R2+0x10]").lane_bytes == size


def test_cubins_are_taken_apart_by_function() -> None:
    assert cubin_functions(NVDISASM).keys() == {"tk_k3_1"}
    text = cubin_kernels(NVDISASM)[3]
    assert text.splitlines()[:4] == ["tk_k3_1:", "\tMOV R1, c[0x0][0x28]", ".L_x_0:", "\t@!P0 BRA .L_x_0"]
    assert "`" not in text
    assert "/*" not in text


def test_loops_nest_and_code_out_of_line_is_none() -> None:
    function = sass(NESTED)
    outer, inner = function.loops
    assert (outer.depth, inner.depth, outer.innermost, inner.innermost) == (1, 2, False, True)
    assert unit_counts(function.instructions(inner.own)) == {Unit.FMA: 1, Unit.SHARED: 1, Unit.BRANCH: 1}
    assert unit_counts(function.instructions(outer.own))[Unit.SPECIAL] == 1, (
        "what lies behind the end belongs to it"
    )
    assert all(".L_trap" not in one.text for block in function.blocks for one in block.instructions)


def test_an_instruction_has_unit_bytes_and_registers() -> None:
    load = read_sass("@P0 LDG.E.128.CONSTANT R4, desc[UR4][R2.64]")
    assert (load.unit, load.lane_bytes, load.store) == (Unit.GLOBAL, 16, False)
    assert load.defines == ("R4", "R5", "R6", "R7")
    assert {"R2", "R3", "UR4", "P0"} <= set(load.uses)
    product = read_sass("HMMA.1688.F32.TF32 R8, R4, R2, R8")
    assert (product.unit, product.operation) == (Unit.MATRIX, "mma.m16n8k8.tf32")
    assert read_sass("@!PT LDS RZ, [RZ]").unit is Unit.WAIT, "never executed: it only takes its turn"
    cluster = ("MEMBAR.ALL.GPU", "ERRBAR", "CGAERRBAR", "UCGABAR_ARV", "UCGABAR_WAIT", "CCTL.IVALL")
    assert {read_sass(line).unit for line in cluster} == {Unit.BARRIER}
    assert read_sass("@P1 CALL.REL.NOINC .L_x_10").flow is Flow.BRANCH
    assert read_sass("CALL.REL.NOINC $__internal_0_$__cuda_sm20_div_s64").divides
    two = read_gcn("ds_read2_b64 v[46:49], v62 offset1:32")
    assert (two.unit, two.lane_bytes, two.places) == (Unit.SHARED, 16, 2)
    assert read_gcn("v_mfma_f32_16x16x4f32 a[0:3], v0, v1, a[0:3]").operation == "mfma.m16n16k4.f32"
    assert read_gcn("s_waitcnt vmcnt(2) lgkmcnt(0)").waits == {"vm": 2, "lgkm": 0}
    assert read_gcn("buffer_store_dword v4, off, s[0:3], 0 offset:4").unit is Unit.LOCAL
    assert read_gcn("buffer_load_dword v2, v1, s[4:7], 0 offen").unit is Unit.GLOBAL


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (("IMAD.HI R0, R13, -0x6db6db6d, R12",), 1),
        (("UIMAD UR7, UR7, 0xcccd, URZ", "USHF.R.U32.HI UR7, URZ, 0x12, UR7"), 1),
        (("UIMAD UR7, UR7, 0xc40, URZ", "USHF.R.U32.HI UR7, URZ, 0x2, UR7"), 0),
        (("IMAD.WIDE.U32 R2, R3, 0x31000, R4",), 0),
        (("IMAD R14, R38, 0xc000, RZ", "SHF.R.S32.HI R24, RZ, 0x1f, R14"), 0),
        (("I2F.U32.RP R0, R6", "IMAD.HI.U32 R3, R3, R7, R2", "IMAD.HI.U32 R3, R3, R4, RZ"), 1),
    ],
)
def test_divisions_are_seen(lines: tuple[str, ...], count: int) -> None:
    assert sum(one.divides for one in mark_sass([read_sass(line) for line in lines], {})) == count


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (("v_mul_hi_i32 v20, v24, s0",), 1),
        (("v_mul_hi_u32 v1, v2, v3", "v_mul_lo_u32 v0, v2, v3"), 0),
        (("v_mul_lo_u16_e32 v1, 0xcd, v0", "v_lshrrev_b16_e32 v9, 10, v1"), 1),
        (("v_mul_u32_u24_e32 v1, 36, v6", "v_lshrrev_b32_e32 v9, 10, v1"), 0),
    ],
)
def test_divisions_of_amd_are_seen(lines: tuple[str, ...], count: int) -> None:
    assert sum(one.divides for one in mark_gcn([read_gcn(line) for line in lines], {})) == count


def test_a_factor_may_lie_in_a_register() -> None:
    text = """tk_k0_0:
\ts_movk_i32 s5, 0x2493
.L0_4:
\tv_mul_u32_u24_sdwa v4, v2, s5 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:DWORD
\tv_lshrrev_b32_e32 v4, 16, v4
\ts_cbranch_scc0 .L0_4
\ts_endpgm
"""
    function = machine_function("tk_k0_0", text, read_gcn, mark_gcn)
    assert sum(one.divides for one in function.instructions(function.loops[0].own)) == 1


def test_magic_numbers() -> None:
    for divisor in (3, 5, 7, 14, 49, 100):
        assert is_magic((1 << 18) // divisor + 1, 18)
    assert not any(is_magic((1 << 18) // power, 18) for power in (2, 4, 64))


def test_passes_through_shared_memory() -> None:
    lanes = range(32)
    assert wavefronts(tuple(4 * lane for lane in lanes), 4, merges=True) == 1
    assert wavefronts(tuple(128 * lane for lane in lanes), 4, merges=True) == 32
    assert wavefronts(tuple(8 * lane for lane in lanes), 4, merges=True) == 2
    assert wavefronts(tuple(16 * lane for lane in lanes), 16, merges=True) == 4
    assert wavefronts(tuple(16 * (lane // 16) for lane in lanes), 16, merges=True) == 1
    assert wavefronts(tuple(4 * lane for lane in range(64)), 4, merges=False) == 2
    assert wavefronts(0, 4, merges=True) == 1, "all lanes read one word"
    assert wavefronts(None, 4, merges=True) is None
