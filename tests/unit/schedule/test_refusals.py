"""What each primitive refuses, and in which words."""

from __future__ import annotations

import dataclasses

import pytest

from compiler.core.diagnostics import ExitCode
from compiler.loops.build import Builder
from compiler.loops.ir import Func
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives import PRIMITIVES
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.primitives.inline import ComputeInline, ReverseComputeInline
from compiler.schedule.primitives.loops import (
    Annotate,
    Bind,
    Fuse,
    Parallel,
    Reorder,
    Tile,
    Unannotate,
    Unroll,
    Vectorize,
)
from compiler.schedule.primitives.reduction import DecomposeReduction, RFactor
from compiler.schedule.primitives.sampling import (
    SampleCategorical,
    SampleComputeLocation,
    SampleTile,
    Sampling,
)
from compiler.schedule.primitives.split import Split
from compiler.schedule.schedule import Schedule


def matmul() -> Schedule:
    """y = relu(c), c = 2x @ w."""
    b = Builder("matmul")
    x, w = b.input("x", (8, 6)), b.constant("w", (6, 10))
    p = b.compute("p", (8, 6), lambda i, k: x[i, k] * 2.0)
    c = b.reduce("c", (8, 10), (6,), lambda i, j, k: p[i, k] * w[k, j])
    return Schedule(b.finish([b.compute("y", (8, 10), lambda i, j: c[i, j] + 1.0)]))


def windows() -> Schedule:
    """y = sums of three neighbours of a."""
    b = Builder("windows")
    x = b.input("x", (12,))
    a = b.compute("a", (12,), lambda i: x[i] + 1.0)
    return Schedule(b.finish([b.reduce("y", (10,), (3,), lambda i, k: a[i + k])]))


def shifted() -> Schedule:
    s = matmul()
    s.split("c_i0", (None, 5), tail="shift")
    return s


def partitioned() -> Schedule:
    s = matmul()
    s.split("c_r0", (None, 4), tail="partition")
    return s


def decomposed() -> Schedule:
    s = matmul()
    s.decompose_reduction("c", "c_i0")
    return s


def recomputed() -> Schedule:
    s = windows()
    s.split("y_i0", (None, 5))
    s.compute_at("a", "y_i0_0")
    return s


def running(kind: str) -> Schedule:
    s = matmul()
    if kind == "bound":
        s.bind("c_i0", "threadIdx.x")
    else:
        getattr(s, kind)("c_i0" if kind == "parallel" else "y_i1")
    return s


def wide() -> Schedule:
    b = Builder("wide")
    x = b.input("x", (5000,))
    return Schedule(b.finish([b.compute("y", (5000,), lambda i: x[i] + 1.0)]))


def tall() -> Schedule:
    """A split reduction whose inner loop is longer than the sum."""
    s = matmul()
    s.split("c_r0", (None, 16))
    return s


def other_index() -> Schedule:
    b = Builder("other")
    x = b.input("x", (12,))
    a = b.compute("a", (12,), lambda i: x[i] + 1.0)
    return Schedule(b.finish([b.compute("y", (6,), lambda i: a[i * 2] + a[i * 2 + 1])]))


def every_second() -> Schedule:
    b = Builder("second")
    x = b.input("x", (12,))
    a = b.compute("a", (12,), lambda i: x[i] + 1.0)
    return Schedule(b.finish([b.compute("y", (6,), lambda i: a[i * 2])]))


def diagonal() -> Schedule:
    b = Builder("diagonal")
    x = b.input("x", (4, 4))
    a = b.local("a", (7,))
    b.write("a", a, (4, 4), lambda i, j: ((i + j,), x[i, j]))
    return Schedule(b.finish([b.compute("y", (7,), lambda i: a[i] + 1.0)]))


def difference() -> Schedule:
    b = Builder("difference")
    x = b.input("x", (4, 6))
    s = Schedule(b.finish([b.reduce("y", (4,), (6,), lambda i, k: x[i, k])]))
    block = s.block("y")
    value = block.body.value.replace(op="sub")
    return Schedule(s.func.replace(body=_with(s.func, block.replace(body=block.body.replace(value=value)))))


def _with(func: Func, block: object) -> object:
    from compiler.schedule.rewriting import replace_statements

    return replace_statements(func, {block.name: block}).body


REFUSALS = [
    (matmul, Split("c_i", (None, 4)), "no loop 'c_i'", "did you mean"),
    (matmul, Split("c", (None, 4)), "no loop 'c'", "c is a block, not a loop"),
    (matmul, Split("c_i0", (None, 4), "cut"), "unknown tail 'cut'", "guard, partition"),
    (matmul, Split("c_i0", (None, None)), "at least two factors", "None, None"),
    (matmul, Split("c_i0", (2, 0)), "positive", "(2, 0)"),
    (matmul, Split("c_i0", (2, 3)), "do not cover", "2 * 3 = 6 < 8"),
    (matmul, Split("c_i0", (None, 16), "partition"), "no main part", "smaller than one tile of 16"),
    (matmul, Split("c_i0", (None, 16), "shift"), "cannot be shifted", "smaller than one tile"),
    (matmul, Split("c_r0", (None, 4), "shift"), "may not run twice", "reduces over the loop"),
    (lambda: reordered_out(), Split("c_i0", (None, 3), "shift"), "may not run twice", "outside"),
    (matmul, Split("c_r0", (None, 4), "roundup"), "padded part would be reduced", "pad_einsum"),
    (matmul, Split("c_i0", (None, 3), "roundup"), "outside of a buffer", "has 8 elements"),
    (lambda: running("parallel"), Split("c_i0", (None, 4)), "already parallel", "before making the loop"),
    (matmul, Fuse(("c_i0",)), "at least two loops", "c_i0"),
    (matmul, Fuse(("c_i0", "c_r0")), "not directly nested", "alone and directly"),
    (matmul, Fuse(("c_i1", "c_r0")), "reduce loop and a spatial loop", "rfactor"),
    (matmul, Reorder(("c_i0", "c_i0")), "named once", "c_i0"),
    (matmul, Reorder(("c_i0", "y_i0")), "not nested in each other", "is not around"),
    (recomputed, Reorder(("y_i0_1", "y_i0_0")), "something else stands between", "holds more than"),
    (shifted, Reorder(("c_r0", "c_i0_0", "c_i0_1", "c_i1")), "cannot go outside of c_i0_0", "overlap"),
    (lambda: running("vectorize"), Reorder(("y_i1", "y_i0")), "already vectorized", "fixed last"),
    (matmul, Tile(("c_i0", "c_i1"), (2,)), "one size for each loop", "2 loops, 1 sizes"),
    (matmul, Tile(("c_i0", "c_i1"), (3, 4), "partition"), "cannot partition", "innermost first"),
    (matmul, Parallel("c_r0"), "loop c_r0 is a reduce loop", "update the same element"),
    (shifted, Parallel("c_i0_0"), "write the same elements of c", "overlap"),
    (lambda: running("parallel"), Parallel("c_i1"), "loop c_i0 around c_i1 is parallel", "fuse the loops"),
    (matmul, Vectorize("c_i0"), "not innermost", "c_i1 is inside it"),
    (matmul, Vectorize("c_r0"), "reduce loop", "rfactor"),
    (wide, Unroll("y_i0"), "runs too often", "5000 iterations, at most 1024"),
    (lambda: running("vectorize"), Unroll("y_i1"), "already vectorized", "fixed last"),
    (matmul, Bind("c_i0", "thread"), "unknown tag 'thread'", "threadIdx.x"),
    (matmul, Bind("c_r0", "threadIdx.x"), "reduce loop", "rfactor"),
    (lambda: running("bound"), Bind("c_i1", "threadIdx.x"), "already bound", "inside the other"),
    (lambda: noted(), Annotate("c", "key", 2), "already has the note 'key'", "unannotate"),
    (lambda: noted(), Unannotate("c", "kee"), "has no note 'kee'", "its notes: key"),
    (matmul, ComputeInline("y"), "y is a parameter", "visible outside"),
    (matmul, ComputeInline("c"), "cannot be put into another block", "reduction"),
    (diagonal, ComputeInline("a_1"), "not known which iteration", "overlap"),
    (lambda: split_writer(), ComputeInline("p"), "block p_1 writes p, too", "partitioning"),
    (matmul, ReverseComputeInline("y"), "producer c is a reduction", "reverse_compute_at"),
    (matmul, ReverseComputeInline("p"), "needs one producer", "such producers: none"),
    (other_index, ReverseComputeInline("y"), "several elements", "compute_inline on the producer"),
    (every_second, ReverseComputeInline("y"), "one to one", "every element"),
    (matmul, DecomposeReduction("p", "p_i0"), "block p is no reduction", "no reduce iterations"),
    (decomposed, DecomposeReduction("c", "c_i0"), "block c is no reduction", "decomposed before"),
    (matmul, DecomposeReduction("c", "y_i0"), "not around block c", "name one of these"),
    (lambda: reordered_out(), DecomposeReduction("c", "c_i0"), "c_r0 is outside", "start again"),
    (shifted, DecomposeReduction("c", "c_i0_0"), "added more than once", "overlap"),
    (partitioned, DecomposeReduction("c_1", "c_r0_rest"), "no reduction", "has no init"),
    (matmul, RFactor("c", "c_i0"), "not a reduce loop", "reduce loops: c_r0"),
    (matmul, RFactor("c", "c_r0", 5), "axis 5 is out of range", "0..2"),
    (tall, RFactor("c", "c_r0_1"), "nothing to start with", "smaller factor"),
    (difference, RFactor("y", "y_r0"), "not of the form", "sums, products"),
    (matmul, SampleTile("c_i0", 2, decision=(3, 2)), "do not make up the loop", "product is 6"),
    (matmul, SampleTile("c_i0", 2), "nothing was decided", "source"),
    (matmul, SampleCategorical((1, 2), decision=2), "not the number of a candidate", "2 candidates"),
    (matmul, SampleCategorical((), decision=0), "needs candidates", "0 candidates"),
    (matmul, SampleComputeLocation("p", decision="y_i0"), "cannot be computed there", "possible: c_i0"),
]


def reordered_out() -> Schedule:
    s = matmul()
    s.reorder("c_r0", "c_i0")
    return s


def noted() -> Schedule:
    s = matmul()
    s.annotate("c", "key", 1)
    return s


def split_writer() -> Schedule:
    s = matmul()
    s.split("p_i0", (None, 3), tail="partition")
    return s


@pytest.mark.parametrize(
    ("make", "step", "what", "detail"),
    REFUSALS,
    ids=[f"{step.name}-{number}" for number, (_, step, _, _) in enumerate(REFUSALS)],
)
def test_refusal(make: object, step: Primitive, what: str, detail: str) -> None:
    schedule = make()
    with pytest.raises(ScheduleError) as caught:
        schedule.apply(step)
    error = caught.value
    assert what in error.what
    assert detail in f"{error.why} {error.hint} {error.where}"
    assert error.code is ExitCode.USAGE


OWN = (
    "split fuse reorder tile parallel vectorize unroll bind annotate unannotate "
    "compute_inline reverse_compute_inline decompose_reduction rfactor "
    "sample_tile sample_categorical sample_compute_location"
)


def test_every_primitive_of_this_table_has_a_refusal() -> None:
    assert {step.name for _, step, _, _ in REFUSALS} >= set(OWN.split())


@pytest.mark.parametrize("name", PRIMITIVES)
def test_unknown_names_are_refused(name: str) -> None:
    cls = PRIMITIVES[name]
    named = {"loop", "loops", "block", "buffer", "target"}
    values: dict[str, object] = {}
    for field in dataclasses.fields(cls):
        if field.name == "loops":
            values[field.name] = ("nowhere", "neither")
        elif field.name in named:
            values[field.name] = "nowhere"
        elif field.name == "index_map":
            values[field.name] = "a, b -> b, a"
        elif field.default is dataclasses.MISSING:
            values[field.name] = {"factors": (None, 2), "sizes": (2, 2)}.get(field.name, 1)
    if not named & values.keys():
        assert issubclass(cls, Sampling), "every other step says what it is about"
        return
    with pytest.raises(ScheduleError) as caught:
        matmul().apply(cls(**values))
    assert "nowhere" in str(caught.value) or "unknown" in str(caught.value)
    assert caught.value.why
    assert caught.value.hint
