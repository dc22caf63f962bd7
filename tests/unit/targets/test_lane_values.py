"""Instructions for integers, one by one: what they make of known registers; the oracle is written by hand."""

from __future__ import annotations

import pytest

from compiler.targets.gcn import read_gcn
from compiler.targets.gcn_values import gcn_step
from compiler.targets.lanes import Value, Values
from compiler.targets.sass import read_sass
from compiler.targets.sass_values import sass_address, sass_step

MINUS = 0xFFFFFFFF
REGISTERS: Values = {
    "R1": 100,
    "R2": 7,
    "R3": MINUS - 9,
    "R4": (1, 2, 3, 4),
    "UR1": 5,
    "P1": 1,
    "P2": (1, 0, 1, 0),
}

SASS: list[tuple[str, str, Value]] = [
    ("MOV R9, R2.reuse", "R9", 7),
    ("IADD3 R9, R1, -R2, 0x3", "R9", 96),
    ("IADD3 R9, P0, R1, R2, RZ", "R9", 107),
    ("VIADD R9, R2, 0xfffffffe", "R9", 5),
    ("IMAD R9, R1, -0x3, R2", "R9", -293 & MINUS),
    ("IMAD.MOV.U32 R9, RZ, RZ, R2", "R9", 7),
    ("IMAD.HI R9, R1, 0x55555556, RZ", "R9", 33),
    ("IMAD.HI.U32 R9, R3, R2, RZ", "R9", 6),
    ("IMAD.WIDE R8, R3, 0x4, RZ", "R9", MINUS),
    ("IMAD.WIDE.U32 R8, R3, 0x4, RZ", "R9", 3),
    ("LEA R9, R2, UR1, 0x2", "R9", 33),
    ("LEA.HI R9, R3, R1, RZ, 0x5", "R9", 131),
    ("LEA.HI.SX32 R9, R3, R2, 0x1f", "R9", 2),
    ("SHF.L.U32 R9, R2, 0x3, RZ", "R9", 56),
    ("SHF.R.S32.HI R9, RZ, 0x1, R3", "R9", -5 & MINUS),
    ("SHF.R.U32.HI R9, RZ, 0x1f, R3", "R9", 1),
    ("LOP3.LUT R9, R1, 0x6, RZ, 0xc0, !PT", "R9", 4),
    ("LOP3.LUT R9, R1, R2, RZ, 0x3c, !PT", "R9", 99),
    ("LOP3.LUT P0, RZ, R1, 0x3, RZ, 0xc0, !PT", "P0", 0),
    ("ISETP.GE.AND P0, PT, R3, R2, PT", "P0", 0),
    ("ISETP.GE.U32.AND P0, PT, R3, R2, PT", "P0", 1),
    ("ISETP.GT.OR P0, PT, R2, 0x64, P1", "P0", 1),
    ("ISETP.LT.AND P0, P3, R4, 0x3, PT", "P3", (0, 0, 1, 1)),
    ("PLOP3.LUT P0, PT, PT, PT, P2, 0x80, 0x0", "P0", (1, 0, 1, 0)),
    ("SEL R9, R1, R2, !P1", "R9", 7),
    ("PRMT R9, R3, 0x9910, RZ", "R9", MINUS - 9),
    ("IABS R9, R3", "R9", 10),
    ("IMNMX R9, R3, R2, PT", "R9", MINUS - 9),
    ("HFMA2.MMA R9, -RZ, RZ, 0, 2.384185791015625e-07", "R9", 4),
    ("CS2R R8, SRZ", "R9", 0),
    ("VOTEU.ALL UP0, P2", "UP0", 0),
    ("VOTEU.ANY UP0, P2", "UP0", 1),
    ("@P2 IADD3 R4, R4, 0x10, RZ", "R4", (17, 2, 19, 4)),
    ("@!P1 MOV R2, RZ", "R2", 7),
    ("LDG.E R2, [R1.64]", "R2", None),
    ("FFMA R2, R1, R1, R1", "R2", None),
]

GCN_REGISTERS: Values = {
    "s1": 100, "s2": 7, "v1": MINUS - 9, "v2": (1, 2, 3, 4), "scc": 1, "vcc": (1, 0, 1, 0),
    "exec": (1, 1, 1, 0), "s10": (1, 1, 0, 0),
}  # fmt: skip
GCN: list[tuple[str, str, Value]] = [
    ("s_movk_i32 s9, 0x2493", "s9", 0x2493),
    ("s_add_i32 s9, s1, -1", "s9", 99),
    ("s_sub_i32 s9, s2, s1", "s9", -93 & MINUS),
    ("s_mul_hi_i32 s9, s1, 0x55555556", "s9", 33),
    ("s_lshl_b32 s9, s2, 3", "s9", 56),
    ("s_cmp_lt_i32 s1, s2", "scc", 0),
    ("s_cmpk_eq_i32 s1, 0x64", "scc", 1),
    ("s_cselect_b32 s9, s1, s2", "s9", 100),
    ("s_addk_i32 s2, 0x3", "s2", 10),
    ("s_and_b64 vcc, exec, vcc", "vcc", (1, 0, 1, 0)),
    ("s_andn2_b64 exec, exec, s[10:11]", "exec", (0, 0, 1, 0)),
    ("s_and_saveexec_b64 s[20:21], vcc", "exec", (1, 0, 1, 0)),
    ("s_and_saveexec_b64 s[20:21], vcc", "s20", (1, 1, 1, 0)),
    ("v_lshl_add_u32 v9, v2, 2, s2", "v9", (11, 15, 19, 23)),
    ("v_lshl_or_b32 v9, s2, 4, 3", "v9", 115),
    ("v_lshlrev_b32_e32 v9, 3, v2", "v9", (8, 16, 24, 32)),
    ("v_lshrrev_b32_e32 v9, 1, v2", "v9", (0, 1, 1, 2)),
    ("v_ashrrev_i32_e32 v9, 1, v1", "v9", -5 & MINUS),
    ("v_add3_u32 v9, v2, s1, -2", "v9", (99, 100, 101, 102)),
    ("v_subrev_u32_e32 v9, 1, v2", "v9", (0, 1, 2, 3)),
    ("v_bfe_u32 v9, s1, 2, 3", "v9", 1),
    ("v_mul_u32_u24_e32 v9, 0x310, v2", "v9", (0x310, 0x620, 0x930, 0xC40)),
    ("v_cmp_gt_u32_e32 vcc, 3, v2", "vcc", (1, 1, 0, 0)),
    ("v_cmp_lt_i32_e64 s[0:1], v1, v2", "s0", (1, 1, 1, 0)),
    ("v_cndmask_b32_e64 v9, 0, 1, s[10:11]", "v9", (1, 1, 0, 0)),
    ("v_cndmask_b32_e32 v9, 5, v2, vcc", "v9", (1, 5, 3, 5)),
    ("v_readfirstlane_b32 s9, v2", "s9", 1),
    ("global_load_dword v2, v[8:9], off", "v2", None),
]


@pytest.mark.parametrize(("text", "name", "expected"), SASS)
def test_sass(text: str, name: str, expected: Value) -> None:
    assert {**REGISTERS, **sass_step(read_sass(text))(REGISTERS)}.get(name) == expected


@pytest.mark.parametrize(("text", "name", "expected"), GCN)
def test_gcn(text: str, name: str, expected: Value) -> None:
    assert {**GCN_REGISTERS, **gcn_step(read_gcn(text))(GCN_REGISTERS)}.get(name) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LDS.128 R8, [R4+0x10]", (17, 18, 19, 20)),
        ("LDS R8, [R4.X4+0x100]", (260, 264, 268, 272)),
        ("STS [R2+UR1], R8", 12),
        ("LDS R8, [R30]", None),
    ],
)
def test_places_in_shared_memory(text: str, expected: Value) -> None:
    assert sass_address(read_sass(text))(REGISTERS) == expected
