"""Products of one tensor by known matrices are one product, and mean the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from compiler.graph.attrs import Attrs
from compiler.graph.fuse import FusionOptions, fuse
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, Value, verify
from compiler.graph.ops import OPS
from compiler.graph.ops.windows import Windows
from compiler.graph.rewrites import rewrite_graph
from compiler.graph.rewrites.drop_dead import drop_dead
from compiler.graph.rewrites.merge_products import merge_products
from tests.support.sketch import Sketch

ROWS, TERMS = 6, 8
SOURCE = np.random.default_rng(3)


def known(s: Sketch, *shape: int) -> Value:
    return s.constant(SOURCE.standard_normal(shape).astype(np.float32))


def product(s: Sketch, x: Value, columns: int, *, bias: bool = True) -> Value:
    y = s.emit("MatMul", x, known(s, TERMS, columns))
    return s.emit("Add", y, known(s, columns)) if bias else y


def heads(s: Sketch, x: Value, perm: Sequence[int] = (1, 0, 2)) -> Value:
    apart = s.emit("Reshape", x, shape=(ROWS, x.type.shape[1] // 4, 4))
    return s.emit("Transpose", apart, perm=tuple(perm))


def attention(s: Sketch) -> Graph:
    """Heads of four; queries, keys and values of one tensor."""
    x = s.input(ROWS, TERMS)
    q, k, v = (product(s, x, 12) for _ in range(3))
    weights = s.emit("MatMul", heads(s, q), heads(s, k, (1, 2, 0)))
    return s.graph(s.emit("Transpose", s.emit("MatMul", weights, heads(s, v)), perm=(1, 0, 2)))


def same(before: Graph, after: Graph) -> None:
    verify(after)
    feeds = {
        name: SOURCE.standard_normal(value.type.shape).astype(np.float32)
        for name, value in zip(before.input_names, before.inputs, strict=True)
    }
    wanted, got = evaluate(before, feeds), evaluate(after, feeds)
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-5)


def merged(graph: Graph) -> Counter[str]:
    after = drop_dead(merge_products(graph))
    same(graph, after)
    return Counter(item.op.name for item in after.nodes)


def test_queries_keys_and_values_are_one_kernel() -> None:
    graph = attention(Sketch())
    for blocks, kernels in ((False, 5), (True, 3)):
        made = rewrite_graph(graph, blocks=blocks)
        same(graph, made)
        assert len(fuse(made).groups) == kernels + 1, "heads go back in a kernel of their own"
        groups = fuse(made, FusionOptions(reorders=True)).groups
        assert len(groups) == kernels
        assert all(group.anchor is not None for group in groups), "the transposes are part of what they read"


def test_matrices_of_other_widths_go_together() -> None:
    s = Sketch()
    x = s.input(ROWS, TERMS)
    graph = s.graph(*(heads(s, product(s, x, columns)) for columns in (8, 16, 4)))
    assert merged(graph) == {"MatMul": 1, "Add": 1, "Slice": 3, "Reshape": 3, "Transpose": 3}


def test_products_without_vectors_are_apart_from_those_with_one() -> None:
    s = Sketch()
    x = s.input(ROWS, TERMS)
    graph = s.graph(*(heads(s, product(s, x, 8, bias=bias)) for bias in (True, False, True, False)))
    assert merged(graph) == {"MatMul": 2, "Add": 1, "Slice": 4, "Reshape": 4, "Transpose": 4}


def another_source(s: Sketch, x: Value) -> Value:
    return heads(s, product(s, s.input(ROWS, TERMS), 8))


def an_output(s: Sketch, x: Value) -> Value:
    return product(s, x, 8)


def an_epilogue(s: Sketch, x: Value) -> Value:
    return heads(s, s.emit("Relu", product(s, x, 8)))


def an_unknown_matrix(s: Sketch, x: Value) -> Value:
    return heads(s, s.emit("Add", s.emit("MatMul", x, s.input(TERMS, 8)), known(s, 8)))


def one_of_a_column_each(s: Sketch, x: Value) -> Value:
    y = s.emit("MatMul", x, known(s, TERMS, 8))
    return heads(s, s.emit("Add", y, known(s, ROWS, 1)))


@pytest.mark.parametrize(
    "other", [another_source, an_output, an_epilogue, an_unknown_matrix, one_of_a_column_each]
)
def test_what_stays_apart(other: Callable[[Sketch, Value], Value]) -> None:
    s = Sketch()
    x = s.input(ROWS, TERMS)
    first = heads(s, product(s, x, 8))
    graph = s.graph(first, other(s, x))
    assert merge_products(graph) is graph


def test_convolutions_in_front_of_branches_go_together() -> None:
    """With their bias and what follows; the branch that goes straight into the concatenation does not."""
    s = Sketch()
    x = s.input(1, TERMS, 6, 5)

    def branch(channels: int) -> Value:
        y = s.emit_all(OPS["Conv"], (x, known(s, channels, TERMS, 1, 1), known(s, channels)), attrs)[0]
        return s.emit("Relu", y)

    attrs = Attrs({"group": 1, **Windows((1, 1), (1, 1), (1, 1), (0, 0), (0, 0)).attrs()})
    ends = [branch(8), s.conv(branch(4), 8, 3), s.conv(branch(12), 8, 3)]
    assert merged(s.graph(*ends)) == {"Conv": 4, "Relu": 2, "Slice": 2}
