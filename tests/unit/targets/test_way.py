"""How often blocks are executed where a condition of a loop is not known, and accesses behind a guard."""

from __future__ import annotations

import pytest

from compiler.targets.gcn import mark_gcn, read_gcn
from compiler.targets.gcn_values import gcn_address, gcn_step, gcn_taken
from compiler.targets.machine_code import Unit, machine_function
from compiler.targets.sass import mark_sass, read_sass
from compiler.targets.sass_values import sass_address, sass_predicate, sass_step
from compiler.targets.way import Meaning, follow

MEANING = Meaning(gcn_step, gcn_taken, gcn_address, merges=False)
BACK = """
\ts_mov_b32 s4, 0
.L0_4:
\ts_add_u32 s4, s4, 1
\ts_cmp_lt_u32 s4, s7
\ts_cbranch_scc1 .L0_4
\ts_endpgm
"""
OUT = """
\ts_mov_b32 s4, 0
.L0_4:
\ts_add_u32 s4, s4, 1
\ts_cmp_ge_u32 s4, s7
\ts_cbranch_scc1 .L0_14
\ts_branch .L0_4
.L0_14:
\ts_endpgm
"""


@pytest.mark.parametrize("text", [BACK, OUT], ids=["a branch back", "a branch out"])
@pytest.mark.parametrize("limit", [5, None])
def test_a_loop_ends_where_it_is_not_known_whether_it_goes_on(text: str, limit: int | None) -> None:
    """Behind its first round, of which a branch out may be the begin."""
    function = machine_function("tk_k0_0", text, read_gcn, mark_gcn)
    way = follow(function, MEANING, {"s7": limit})
    (loop,) = function.loops
    assert way.counts[loop.head] == (5 if limit else 1 + (text is OUT))
    assert way.certain == (limit is not None)


GUARDED = """
\tMOV R0, RZ
.L_x_1:
\tISETP.GT.U32.AND P0, PT, R0, 0x2, PT
\tIADD3 R0, R0, 0x1, RZ
\t@!P0 LDGSTS.E.BYPASS.128 [R4], desc[UR8][R6.64]
\t@P2 LDG.E R9, desc[UR8][R6.64]
\tISETP.NE.AND P1, PT, R0, 0x8, PT
\t@P1 BRA .L_x_1
\tEXIT
"""


def test_accesses_of_no_lane_are_counted() -> None:
    """Copies of the first three of eight rounds are idle in five; what is not known counts as done."""
    function = machine_function("tk_k0_0", GUARDED, read_sass, mark_sass)
    way = follow(function, Meaning(sass_step, sass_predicate, sass_address, merges=True), {})
    (loop,) = function.loops
    copy, load = (one for one in function.instructions(loop.own) if one.unit is Unit.GLOBAL)
    assert (way.counts[loop.head], way.idle) == (8, {id(copy): 5})
    assert id(load) not in way.idle
