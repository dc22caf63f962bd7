"""With which extents a library with free dimensions is run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.core.diagnostics import UsageError
from compiler.runtime.specs import SymbolicDim, TensorSpec
from compiler.verify.inputs import read_feeds
from compiler.verify.sizes import sizes_of

N, ROWS, PAST, BOTH = (
    SymbolicDim(0, 1, 100, 1),
    SymbolicDim(1, 2, 10, 1),
    SymbolicDim(2, 0, 8, 1),
    SymbolicDim(3, 2, 18, 1),
)
SPECS = (
    TensorSpec("x", "float32", (N, ROWS, 3), 0),
    TensorSpec("mask", "float32", (N, BOTH), 0),
    TensorSpec("kept", "float32", (N, PAST), 0),
)
SUM = {"factors": [1, 1], "offset": 0, "divisor": 1}
MANIFEST: dict[str, Any] = {
    "batch": {"name": "N", "largest": 100},
    "symbols": [{"name": "rows", "minimum": 2, "maximum": 10}, {"name": "past", "minimum": 0, "maximum": 8}],
    "inputs": [{"name": "x"}, {"name": "mask", "extents": [None, SUM]}, {"name": "kept"}],
}


def shapes(run: int, **asked: Any) -> list[tuple[int, ...]]:
    feeds = read_feeds(SPECS, (), 0, run, sizes_of(MANIFEST, SPECS, **asked))
    return [feeds[one.name].shape for one in SPECS]


def test_the_largest_the_least_and_between() -> None:
    assert [shapes(run) for run in range(4)] == [
        [(1, 10, 3), (1, 18), (1, 8)],
        [(3, 2, 3), (3, 2), (3, 0)],
        [(5, 4, 3), (5, 10), (5, 6)],
        [(7, 8, 3), (7, 9), (7, 1)],
    ]


def test_what_is_asked_for() -> None:
    assert shapes(1, dims={"rows": 5, "N": 2}) == [(2, 5, 3), (2, 5), (2, 0)]
    assert shapes(0, shapes={"x": (4, 6, 3)}, dims={"past": 1}) == [(4, 6, 3), (4, 7), (4, 1)]
    assert sizes_of(MANIFEST, SPECS).tries == 3
    assert sizes_of(MANIFEST, SPECS, {"rows": 5, "past": 1}).tries == 2


def test_kernels_that_only_some_sizes_have() -> None:
    """At the largest and the least of these, and just beyond, after the runs that any library gets."""
    special = [{"ranges": [[1, 100], [4, 4], [0, 8]]}, {"ranges": [[1, 8], [3, 10], [0, 8]]}]
    sizes = sizes_of({**MANIFEST, "specialisations": special}, SPECS)
    found = [read_feeds(SPECS, (), 0, run, sizes)["x"].shape for run in range(3, sizes.tries)]
    assert found == [(7, 4, 3), (9, 5, 3), (8, 10, 3), (1, 3, 3), (9, 10, 3)]
    assert (
        sizes_of({**MANIFEST, "specialisations": special}, SPECS, {"N": 1, "rows": 4, "past": 0}).tries == 2
    )


def test_given_inputs_decide(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 7, 3), np.float32))
    feeds = read_feeds(SPECS, (f"x={tmp_path}/x.npy",), 0, 0, sizes_of(MANIFEST, SPECS))
    assert (feeds["mask"].shape, feeds["kept"].shape) == ((2, 15), (2, 8))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"dims": {"row": 5}}, "did you mean 'rows'"),
        ({"shapes": {"q": (1,)}}, "no input 'q'"),
        ({"shapes": {"x": (1, 2)}}, "cannot be 1,2"),
        ({"shapes": {"x": (1, 2, 4)}}, "cannot be 1,2,4"),
        ({"shapes": {"x": (1, 2, 3)}, "dims": {"rows": 5}}, "two extents"),
    ],
)
def test_what_cannot_be(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        shapes(0, **asked)
    assert words in str(caught.value)
