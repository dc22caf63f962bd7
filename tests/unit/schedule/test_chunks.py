"""Weights in chunks: where a tile's panel falls out of the cache before the next tile reads it."""

from __future__ import annotations

from dataclasses import replace

from compiler.core.target import TargetFacts
from compiler.schedule.rules.vector.register_tile import ContractionProblem, RegisterTile, chunk_options
from compiler.targets import get_target

ZEN3, ZEN4 = (get_target("cpu", f"x86-64-v3+{name}").facts for name in ("zen3", "zen4"))
"""512 KB and 1 MB of second-level cache."""

AT_SEVEN = ContractionProblem(
    vectors=64, rows=7, steps=2048, outer=1, broadcast=True, packed_bytes=4 << 20, lines=7, row_bytes=401_408
)
"""1 x 1, 2048 to 512 channels at 7 x 7."""


def _chosen(problem: ContractionProblem, tile: RegisterTile, facts: TargetFacts = ZEN3) -> int:
    blocks = problem.steps // 8
    return min(chunk_options(tile, problem, blocks, 1, facts), key=lambda one: one.cost).value[0]


def test_a_panel_that_its_rows_push_out_of_the_second_level_goes_in_chunks() -> None:
    tile = RegisterTile(3, 4, 1)
    assert _chosen(AT_SEVEN, tile) > 1
    assert _chosen(AT_SEVEN, tile, ZEN4) == 0


def test_an_image_whose_sums_would_fill_the_first_level_stays_whole() -> None:
    larger = replace(AT_SEVEN, rows=14, lines=14, steps=1024, packed_bytes=1 << 20, row_bytes=802_816)
    assert _chosen(larger, RegisterTile(2, 7, 1)) == 0


def test_tiles_that_share_rows_do_not_go_through_chunks() -> None:
    problem = replace(AT_SEVEN, rows=14, lines=14, packed_bytes=1 << 20)
    assert len(chunk_options(RegisterTile(3, 4, 1), problem, 64, 1, ZEN3)) > 1, "the last has two rows"
    # Two rows of two vectors wait for their sums as long as four rows do, so the last tile has four, too.
    assert [one.value for one in chunk_options(RegisterTile(2, 4, 1), problem, 64, 1, ZEN3)] == [(0,)]
