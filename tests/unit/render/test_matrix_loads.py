"""Which operands of a matrix unit come by rows of shared memory, and where the row of each lane begins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compiler.core.types import F16, F32, TF32
from compiler.loops.ir import GLOBAL, SHARED, Buffer, Cast, Const, Expr, Load, Ramp, Var, const
from compiler.loops.simplify import Simplifier, substitute
from compiler.render.matrix_loads import LANES, row_loads

LANE, BLOCK, ROUND = Var("lane"), Var("block"), Var("round")
KNOWN = Simplifier({"lane": (0, LANES - 1), "block": (0, 7), "round": (0, 3)})
HALVES = Buffer("halves", F16, (const(1 << 16),), SHARED)
WORDS = Buffer("words", F32, (const(1 << 16),), SHARED)
PITCH = 40


def _halves(index: Expr, buffer: Buffer = HALVES) -> Expr:
    return Load(buffer, (Ramp(index, const(1), 2),))


def _operands(place: Callable[[int, int], Expr], buffer: Buffer = HALVES) -> list[Expr]:
    """Those of a tile of 16 x 16: rows, rows below, terms behind, both."""
    return [_halves(place(row, term), buffer) for term in (0, 8) for row in (0, 8)]


def _plain(row: int, term: int, pitch: int = PITCH) -> Expr:
    return BLOCK * (16 * pitch) + (LANE // 4 + row) * pitch + LANE % 4 * 2 + term


def _places(index: Expr) -> list[int]:
    """The rows of all lanes in the third block."""
    found = []
    for lane in range(LANES):
        value = KNOWN.simplify(substitute(index, {"lane": const(lane), "block": const(2)}))
        assert isinstance(value, Const)
        found.append(int(value.value))
    return found


def test_each_lane_has_the_row_of_its_matrix() -> None:
    found = row_loads(_operands(_plain), {"lane"}, {}, KNOWN)
    assert found is not None
    assert (found.buffer, found.count) == (HALVES, 4)
    start = 2 * 16 * PITCH
    below, behind = [lane // 8 % 2 for lane in range(LANES)], [lane // 16 for lane in range(LANES)]
    wanted = [
        start + (lane % 8 + 8 * low) * PITCH + 8 * far
        for lane, low, far in zip(range(LANES), below, behind, strict=True)
    ]
    assert _places(found.index) == wanted


def test_rows_need_not_follow_each_other() -> None:
    """Columns of neighbouring tiles alternate."""

    def place(row: int, term: int) -> Expr:
        return (LANE // 8 * 4 + LANE // 4 % 2 + row) * PITCH + LANE % 4 * 2 + term

    found = row_loads([_halves(place(0, 0)), _halves(place(0, 8))], {"lane"}, {}, KNOWN)
    assert found is not None
    rows = [(lane % 8 // 2 * 4 + lane % 2) * PITCH + lane // 8 % 2 * 8 for lane in range(LANES)]
    assert _places(found.index) == rows


@pytest.mark.parametrize("rounded", [False, True])
def test_words_are_rounded_afterwards(rounded: bool) -> None:
    loads = [Load(WORDS, (LANE // 4 * 36 + LANE % 4 + term,)) for term in (0, 4)]
    found = row_loads([Cast(TF32, one) if rounded else one for one in loads], {"lane"}, {}, KNOWN)
    assert found is not None
    assert found.count == 2


def _column(index: Expr, apart: int = PITCH) -> Expr:
    """Two neighbours of a column, whose rows lie so far apart."""
    return Load(HALVES, (Ramp(index, const(apart), 2),))


def _turned(row: int, column: int = 0) -> Expr:
    return BLOCK * 16 + (LANE % 4 * 2 + row) * PITCH + LANE // 4 + column


def test_neighbours_of_a_column_come_by_rows_too() -> None:
    """Rows are terms of the sum, and a lane wants two of them."""
    found = row_loads([_column(_turned(0)), _column(_turned(8))], {"lane"}, {}, KNOWN)
    assert found is not None
    assert (found.count, found.turned) == (2, True)
    assert _places(found.index) == [32 + (lane % 8 + lane // 8 % 2 * 8) * PITCH for lane in range(LANES)]


def test_what_lies_in_rows_is_not_turned() -> None:
    found = row_loads(_operands(_plain), {"lane"}, {}, KNOWN)
    assert found is not None
    assert not found.turned


def test_variables_of_unrolled_loops_are_known() -> None:
    loads = [_halves(_plain(0, 0) + ROUND * 4 * term) for term in (0, 2)]
    assert row_loads(loads, {"lane"}, {}, KNOWN) is None
    assert row_loads(loads, {"lane"}, {"round": const(1)}, KNOWN) is not None


@pytest.mark.parametrize(
    "operands",
    [
        _operands(lambda row, term: _plain(row, term, pitch=36)),
        _operands(lambda row, term: _plain(row, term) + 2),
        _operands(lambda row, term: _plain(row, term) + BLOCK * 4),
        _operands(lambda row, term: (LANE % 8 + row) * PITCH + LANE // 8 * 2 + term),
        _operands(lambda row, term: (LANE * 3 + BLOCK) // 7 * PITCH + row * PITCH + LANE % 4 * 2 + term),
        _operands(_plain, Buffer("far", F16, (const(1 << 16),), GLOBAL)),
        _operands(_plain)[:3],
        [*_operands(_plain)[:3], _halves(_plain(0, 0))],
        [Load(HALVES, (LANE // 4 * PITCH + LANE % 4,))],
        [_column(_turned(0)), _halves(_plain(8, 0))],
        [_column(_turned(0), PITCH + 8)],
        [_column(_turned(0) + 1)],
        [_column(LANE % 4 * 2 * 36 + LANE // 4, 36)],
        [_column(LANE % 4 * 2 * PITCH + LANE // 4 * 2)],
    ],
    ids=[
        "rows begin between 16 bytes",
        "so does the first",
        "so do blocks",
        "lanes of a row lie apart",
        "a lane's place is no sum",
        "global memory",
        "three matrices",
        "matrices at no steps",
        "two bytes a lane",
        "rows and columns",
        "neighbours of no column",
        "columns begin between 16 bytes",
        "so do rows of columns",
        "columns lie apart",
    ],
)
def test_others_are_loaded_by_each_lane(operands: list[Expr]) -> None:
    assert row_loads(operands, {"lane"}, {}, KNOWN) is None
