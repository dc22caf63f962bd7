"""Loads that are written once and used often, in the text of a scope."""

from __future__ import annotations

import pytest

from compiler.render.scopes import Writer


@pytest.mark.parametrize("often", [False, True])
def test_a_load_says_where_another_one_is(often: bool) -> None:
    """Each is named where it occurs more than once, the inner one first."""
    w = Writer()
    w.open()
    places = w.shared_load("b1", "tk_i64x8", "tk_load<tk_i64x8>(b1)")
    for target in ("b2", "b3") if often else ("b2",):
        found = w.shared_load("b0", "tk_u16x8", f"tk_gather<tk_u16x8>(b0, {places})")
        w.line(f"tk_store({target}, {found});")
    if often:
        w.line(f"tk_store(b4, {w.shared_load('b1', 'tk_i64x8', 'tk_load<tk_i64x8>(b1)')});")
    w.close()
    assert [line.strip() for line in w.lines] == (
        [
            "const tk_i64x8 t0 = tk_load<tk_i64x8>(b1);",
            "const tk_u16x8 t1 = tk_gather<tk_u16x8>(b0, t0);",
            "tk_store(b2, t1);",
            "tk_store(b3, t1);",
            "tk_store(b4, t0);",
        ]
        if often
        else ["tk_store(b2, tk_gather<tk_u16x8>(b0, tk_load<tk_i64x8>(b1)));"]
    )
