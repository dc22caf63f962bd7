"""What accesses cost, counted by the emulator on kernels by hand: every number was worked out, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.core.diagnostics import WrongResultError
from compiler.core.settings import load_settings
from compiler.render.vocabulary_cuda import CUDA, HIP
from compiler.verify.access import Launched, measure_module, sampled
from compiler.verify.access_report import AccessRow, LaunchAccess
from compiler.verify.module_lines import innermost_lines
from tests.support.access_kernels import KNOWN, WIDE, Known, Want

SETTINGS = load_settings()


def _measured(prelude: str, kernels: dict[str, Known], lanes: int) -> dict[str, LaunchAccess]:
    """All in one module, which is built once."""
    names = {key: f"k{number}" for number, key in enumerate(kernels)}
    text = "".join([prelude, *(item.text(names[key]) for key, item in kernels.items())])
    launches = [Launched(names[key], item.grid, item.block) for key, item in kernels.items()]
    found = measure_module(text, launches, subgroup=lanes, settings=SETTINGS)
    return dict(zip(kernels, found, strict=True))


@pytest.fixture(scope="module")
def narrow() -> dict[str, LaunchAccess]:
    return _measured(CUDA.prelude, KNOWN, 32)


@pytest.fixture(scope="module")
def wide() -> dict[str, LaunchAccess]:
    return _measured(HIP.prelude, WIDE, 64)


@pytest.mark.parametrize("key", KNOWN)
def test_sub_groups_of_32(narrow: dict[str, LaunchAccess], key: str) -> None:
    _check(KNOWN[key], narrow[key])


@pytest.mark.parametrize("key", WIDE)
def test_sub_groups_of_64(wide: dict[str, LaunchAccess], key: str) -> None:
    _check(WIDE[key], wide[key])


def _check(want: Known, found: LaunchAccess) -> None:
    for part, one in want.rows:
        (row,) = (row for row in found.rows if part in row.text and row.kind == one.kind)
        assert _want(row) == one, row
    assert found.barriers == want.barriers
    assert found.divergent == want.divergent
    assert found.idle == pytest.approx(want.idle)
    assert found.waits == want.waits
    assert found.cut == 0


def _want(row: AccessRow) -> Want:
    return Want(row.kind, row.requests, row.lanes, row.units, row.least, row.worst)


def test_sums_of_a_launch(narrow: dict[str, LaunchAccess]) -> None:
    strided = narrow["stride 2"]
    assert strided.moved == 32 * (8 + 4)
    assert strided.fetched == 32 * 8
    assert strided.fetch_efficiency == 0.5
    every = sum(row.share for one in narrow.values() for row in one.rows)
    assert every == pytest.approx(1.0)


def test_clusters_are_sampled_as_a_whole(narrow: dict[str, LaunchAccess]) -> None:
    found = narrow["shared memory of another block"]
    assert (found.sampled, found.blocks) == (12, 40)
    assert {row.kind for row in found.rows if "there" in row.text} == {"shared load", "load", "store"}


def test_conflicts_count_in_innermost_loops_alone(narrow: dict[str, LaunchAccess]) -> None:
    assert max(row.worst for row in narrow["conflict of 32 ways"].rows if row.is_shared) == 32
    assert narrow["conflict of 32 ways"].worst_conflict == 1
    assert narrow["conflict of 4 ways in a loop"].worst_conflict == 4


def test_what_is_too_much_to_keep_is_told() -> None:
    loop = (
        "s0[x] = b0[x];",
        "__syncthreads();",
        "float sum = 0.0f;",
        "for (int i = 0; i < 200000; ++i) sum += s0[x ^ (i & 31)];",
        "b1[x] = sum;",
    )
    text = CUDA.prelude + Known(loop, ()).text("k")
    (found,) = measure_module(text, [Launched("k", (1, 1, 1), (32, 1, 1))], settings=SETTINGS)
    (row,) = found.of("shared load")
    assert found.cut == 32
    assert 10_000 < row.requests < 200_000
    assert row.units == row.requests


def test_an_access_outside_is_found_as_ever() -> None:
    text = CUDA.prelude + Known(("b1[x + 4096] = b0[x];",), ()).text("k")
    with pytest.raises(WrongResultError, match=r"(?s)defect in a kernel.*b1\[4096\], outside of its 4096"):
        measure_module(text, [Launched("k", (1, 1, 1), (32, 1, 1))], settings=SETTINGS)


@pytest.mark.parametrize(
    ("grid", "most"),
    [((1, 1, 1), 8), ((8, 1, 1), 8), ((9, 1, 1), 8), ((3000, 1, 1), 12), ((3000, 1, 1), 1), ((5, 4, 3), 60)],
)
def test_sampled_blocks_stand_for_all(grid: tuple[int, int, int], most: int) -> None:
    found = sampled(grid, most)
    blocks = [block for block, _ in found]
    count = grid[0] * grid[1] * grid[2]
    assert blocks == sorted(set(blocks))
    assert {0, count - 1} <= set(blocks) <= set(range(count))
    assert sum(weight for _, weight in found) == pytest.approx(count)
    assert len(found) <= max(most, 3)


def test_sampled_blocks_are_at_every_border() -> None:
    found = dict(sampled((25, 4, 1), 12))
    places = {(block % 25, block // 25) for block in found}
    assert {(x, y) for x in (0, 24) for y in (0, 3)} < places
    assert sum(weight for block, weight in found.items() if block % 25 == 24) == pytest.approx(4)


def test_innermost_loops() -> None:
    text = """\
k() {
  a;
  for (;;) {
    b;
    for (;;) {
      c;
      if (x) {
        d;
      }
    }
    e;
  }
  for (;;) {
    f;
  }
}
"""
    lines = text.splitlines()
    assert [lines[number].strip() for number in sorted(innermost_lines(text))] == [
        "c;",
        "if (x) {",
        "d;",
        "}",
        "f;",
    ]


def test_other_runs_pay_nothing(tmp_path: Path) -> None:
    """The functions that kernels call know nothing of it where accesses are only checked."""
    from compiler.verify.emulate import build_emulation

    text = CUDA.prelude + Known(("b1[x] = b0[x];",), ()).text("k")
    checked, counted = (build_emulation(text, SETTINGS, access=access) for access in (False, True))
    assert b"tk_emulation_access_v1" not in checked.read_bytes()
    assert b"tk_emulation_access_v1" in counted.read_bytes()
    assert b"sanitizer_cov" not in checked.read_bytes()
