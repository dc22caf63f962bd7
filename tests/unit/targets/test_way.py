"""How often blocks are executed, where a condition of a loop is not known."""

from __future__ import annotations

import pytest

from compiler.targets.gcn import mark_gcn, read_gcn
from compiler.targets.gcn_values import gcn_address, gcn_step, gcn_taken
from compiler.targets.machine_code import machine_function
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
