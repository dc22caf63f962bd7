"""Features: finite for every kind of kernel, and what a few of them mean."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.core.target import TargetFacts
from compiler.loops.ir import Func
from compiler.loops.text import parse_func
from compiler.schedule.chooser import AnalyticChooser, Option, RecordingChooser
from compiler.stages.workload import Workload
from compiler.targets import get_target
from compiler.tune.candidate import make_candidate
from compiler.tune.strategies.features.decided import decided
from compiler.tune.strategies.features.loops import COLUMNS, logarithm, loop_rows
from compiler.tune.strategies.features.pooled import NAMES, pooled
from compiler.tune.strategies.tree import Offer, Walk
from tests.support.searches import narrow
from tests.support.works import GRAPHS, works_of

FACTS = TargetFacts("test", "c++", "test", vector_bits=256)


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", GRAPHS)
def test_finite_for_every_sample(name: str) -> None:
    target = narrow()
    for func, layouts in works_of(name, 4):
        made = make_candidate(Workload.of(func, layouts), target, AnalyticChooser())
        rows = loop_rows(made.lowered, target.facts)
        assert rows.shape[1] == len(COLUMNS)
        assert np.isfinite(rows).all()
        row = pooled(made.lowered, target.facts)
        assert row.shape == (len(NAMES),)
        assert np.isfinite(row).all()
        assert all(np.isfinite(value) for value in decided(Walk.of(made)).values())


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", GRAPHS)
def test_finite_on_devices(name: str) -> None:
    target = get_target("cuda")
    for func, layouts in works_of(name, 1, joined=False):
        made = make_candidate(Workload.of(func, layouts), target, AnalyticChooser())
        assert np.isfinite(pooled(made.lowered, target.facts)).all()


PRODUCT = """
func product(a: f32[4096], b: f32[4096]) -> (c: f32[4096])
  for i in 0..64 parallel
    for j in 0..64
      for k in 0..64
        c[i * 64 + j] += a[i * 64 + k] * b[k * 64 + j]
"""


def column(func: Func, name: str) -> float:
    (row,) = loop_rows(func, FACTS)
    return float(2.0 ** row[COLUMNS.index(name)] - 1.0)


@pytest.fixture(scope="module")
def product() -> Func:
    return parse_func(PRODUCT)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ops.mul", 64**3),
        ("ops.add", 64**3),
        ("each.mul", 1),
        ("each.load", 3),
        ("loops.parallel", 64),
        ("loops.serial", 64**2),
        ("loops.count", 3),
        ("loops.innermost", 64),
        ("traffic.l3", 3 * 4096 * 4),
        ("alloc.bytes", 4096 * 4),
        ("buffer0.unique", 4096 * 4),
    ],
)
def test_what_columns_mean(name: str, value: float, product: Func) -> None:
    assert column(product, name) == pytest.approx(value, rel=1e-4)


def test_strides(product: Func) -> None:
    strides = {column(product, f"buffer{number}.inner_stride") for number in range(3)}
    assert {round(item) for item in strides} == {4, 256}


def test_small_caches_are_filled_again(product: Func) -> None:
    """A first cache that holds b once needs it once; one that does not, for each row."""
    assert column(product, "traffic.l1") < 8 * 4096 * 4
    small = TargetFacts("test", "c++", "test", l1=type(FACTS.l1)(bytes=4 << 10))
    (row,) = loop_rows(product, small)
    assert 2.0 ** row[COLUMNS.index("traffic.l1")] > 64 * 4096 * 4


def test_unrolled_copies_share_their_loads() -> None:
    func = parse_func("""
func tile(a: f32[4096], b: f32[512]) -> (c: f32[12])
  for k in 0..64
    for i in 0..4 unrolled
      for j in 0..3 unrolled
        c[i * 3 + j] += a[k * 4 + i] * b[k * 3 + j]
""")
    assert column(func, "loops.body") == pytest.approx(12)
    assert column(func, "body.loads") == pytest.approx(12 + 4 + 3)


def test_logarithms_are_finite() -> None:
    assert logarithm(0.0) == 0.0
    assert logarithm(3.0) == 2.0
    assert logarithm(-3.0) == -2.0
    assert logarithm(float("inf")) < 100.0


def test_decisions_of_a_kind_share_columns() -> None:
    asked = RecordingChooser(AnalyticChooser())
    for name in ("conv.tile", "dense.tile", "form"):
        asked.choose(name, [Option((3, 1), 1.0), Option((7, 1), 4.0)])
    walk = Walk(asked.decisions, {name: Offer(item) for name, item in asked.offered.items()}, complete=True)
    assert decided(walk) == {
        "surplus": 0.0,
        "tile.surplus": 0.0, "tile.0": 2.0, "tile.1": 1.0,
        "tile#2.surplus": 0.0, "tile#2.0": 2.0, "tile#2.1": 1.0,
        "form.surplus": 0.0, "form.0": 2.0, "form.1": 1.0,
    }  # fmt: skip
