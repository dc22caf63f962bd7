"""Random numbers: drawn when a model is compiled, so that every run and every target has the same.

Generator and order are those of ONNX's reference implementation (numpy's `RandomState`, whose streams never
change: the Mersenne Twister of Matsumoto and Nishimura, 1998): a node with a seed has the same values there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compiler.core.types import F32
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import TensorType
from compiler.graph.op import (
    Adapt,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Signature,
    Values,
    no_flops,
)
from compiler.graph.ops.elementwise import FLOATS, check_kind

Draw = Callable[[np.random.RandomState, Sequence[int]], Array]

_SEEDS = 1 << 32


def _adapt(name: str, *, like: bool) -> Adapt:
    def adapt(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
        given = Attrs({"dtype": inputs[0].type.dtype if like else F32, **attrs})
        check_kind(name, given.dtype("dtype"), FLOATS)
        shape = inputs[0].type.shape if like else given.integers("shape")
        if min(shape, default=0) < 0:
            raise InvalidError(f"{list(shape)} is no shape")
        # The number of the value that the node makes tells nodes without a seed apart.
        seed = int(given.number("seed")) if "seed" in given else node.place
        return (), dict(given.with_(seed=seed % _SEEDS, shape=shape))

    return adapt


def _infer(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(attrs.dtype("dtype"), attrs.integers("shape")),)


def _drawn(name: str, draw: Draw, first: str, second: str) -> tuple[Op, Op]:
    """An operator with a shape, and one that takes it from an input; `draw` times a factor plus an offset."""

    def reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
        kind = to_numpy(attrs.dtype("dtype"))
        numbers = draw(np.random.RandomState(attrs.integer("seed")), attrs.integers("shape"))
        offset, factor = attrs.number(first), attrs.number(second)
        if first == "low":
            factor -= offset
        return ((np.asarray(numbers).astype(kind) * kind.type(factor) + kind.type(offset)).astype(kind),)

    def op(full: str, *, like: bool) -> Op:
        attrs: dict[str, AttrValue | None] = {
            "dtype": None, "seed": None, first: 0.0, second: 1.0, **({} if like else {"shape": ()}),
        }  # fmt: skip
        return Op(
            full, Kind.INJECTIVE, _infer, reference, (0, 0),
            (Signature(1, attrs, adapt=_adapt(full, like=like)),), flops=no_flops,
        )  # fmt: skip

    return op(name, like=False), op(f"{name}Like", like=True)


OPS = (
    *_drawn("RandomUniform", lambda state, shape: np.asarray(state.rand(*shape)), "low", "high"),
    *_drawn("RandomNormal", lambda state, shape: np.asarray(state.randn(*shape)), "mean", "scale"),
)
