"""A graph under construction: a pool of typed tensors from which steps pick operands that fit.

Shapes are solved by construction: a step chooses operands among what there is, derives what else it needs and
says the shape of its result. Of every tensor a bound of its magnitude is kept, so that operators with a
domain get what lies in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
BF16 = np.dtype(ml_dtypes.bfloat16)
I8, I16, I32, I64 = (np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
BOOL = np.dtype(np.bool_)
I4, U4 = np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)
F8 = tuple(
    np.dtype(getattr(ml_dtypes, f"float8_{name}")) for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")
)
FLOATS = (F32, F64, F16, BF16)
INTEGERS = (I64, I32, I16, I8, U64, U32, U16, U8)
SMALL = (I4, U4, *F8)
"""Types that are moved and converted only."""

Array = np.ndarray
Shape = tuple[int, ...]
DIMS = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 23, 31, 33, 64, 67)
MOST_ELEMENTS = 12_000
RUNS = 2
"""Sets of inputs of each graph."""
LONGEST = 29
"""The largest extent of a free axis, which shapes here have in its place; no other extent is like it."""


@dataclass(frozen=True)
class Profile:
    """What graphs that are compiled together have in common.

    types: of their inputs, likely ones several times. free: whether the first dimension is left open, and the
    batches that it is run with. lengths: of another open axis in each run; none where there is none. least:
    the shortest of them that is compiled for. arch: of the processor that is compiled for.
    """

    opset: int
    types: tuple[np.dtype[Any], ...]
    free: bool
    batches: tuple[int, ...]
    arch: str
    lengths: tuple[int, ...] = ()
    least: int = 1


@dataclass(frozen=True)
class Tensor:
    """A value: `limit` bounds the magnitude of its elements."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape
    limit: float

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class Pool:
    """Values, constants and nodes so far; names begin with `prefix`, so that graphs lie side by side in one
    model.

    In graphs with a free batch every tensor's first axis is the batch (1 in shapes here), and `first` is the
    first axis that a step may do anything with.
    """

    rng: np.random.Generator
    profile: Profile
    prefix: str
    values: list[Tensor] = field(default_factory=list)
    inputs: dict[str, list[Array]] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    made: list[Tensor] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    long: dict[str, int] = field(default_factory=dict)
    """Axes of inputs whose extent is left open beside the batch."""
    whole: bool = False
    """Whether all values' shapes are declared, as an operand that only a run knows decides one."""

    @property
    def first(self) -> int:
        return 1 if self.profile.free else 0

    def since(self, opset: int) -> bool:
        return self.profile.opset >= opset

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def dim(self) -> int:
        return int(self.pick(*DIMS))

    def axis(self, x: Tensor) -> int:
        """One that a step may work on; the tensor has one."""
        return self.integer(self.first, x.rank - 1)

    def signed(self, axis: int, rank: int) -> int:
        """An axis, sometimes counted from the end."""
        return axis - rank if self.chance(0.3) else axis

    def find(self, fits: Callable[[Tensor], bool] = lambda _: True) -> Tensor | None:
        """A value that fits; later ones are likelier, so that graphs grow deep."""
        found = [one for one in self.values if fits(one)]
        if not found:
            return None
        weights = np.arange(1, len(found) + 1, dtype=np.float64) ** 2
        return found[int(self.rng.choice(len(found), p=weights / weights.sum()))]

    def takes(self, op: str, dtype: np.dtype[Any], operand: int = 0) -> bool:
        """Whether the standard allows operand `operand` of `op` in a type, in the graph's opset."""
        return type_name(dtype) in allowed(op, self.profile.opset, operand)

    def found(self, op: str, fits: Callable[[Tensor], bool] = lambda _: True) -> Tensor | None:
        """A value that fits and that `op` takes as its first operand."""
        return self.find(lambda one: self.takes(op, one.dtype) and fits(one))

    # ------------------------------------------------------------ what nodes read

    def constant(self, array: Any) -> str:
        name = f"{self.prefix}c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def numbers(self, *values: int) -> str:
        return self.constant(np.asarray(values, np.int64))

    def decides(self, *values: int) -> str:
        """An operand that decides a shape: a constant, or an input where all shapes are declared."""
        if not self.whole or self.chance(0.5):
            return self.numbers(*values)
        name = f"{self.prefix}s{len(self.inputs)}"
        self.inputs[name] = [np.asarray(values, np.int64)] * RUNS
        return name

    def random(
        self, dtype: np.dtype[Any], shape: Sequence[int], scale: float = 1.0, *, negative: bool = False
    ) -> Array:
        """Elements within `scale` (floats) or of a range that arithmetic can bear (integers)."""
        if dtype == BOOL:
            return self.rng.integers(0, 2, shape).astype(bool)
        if dtype in INTEGERS or dtype in (I4, U4):
            low, high = (0, 16) if dtype.name.startswith("u") else (-8, 0 if negative else 8)
            return np.asarray(self.rng.integers(low, high, shape)).astype(dtype)
        return np.asarray(self.rng.uniform(-scale, -scale / 8 if negative else scale, shape)).astype(dtype)

    def weights(self, dtype: np.dtype[Any], *shape: int, scale: float = 1.0) -> str:
        return self.constant(self.random(dtype, shape, scale))

    def give(self, dtype: np.dtype[Any], shape: Shape) -> Tensor:
        """An input of the graph, with random elements for each run."""
        name = f"{self.prefix}x{len(self.inputs)}"
        shapes = [shape] * RUNS
        if self.profile.free:
            shapes = [(batch, *shape[1:]) for batch in self.profile.batches]
        if (axis := self._long_axis(shape)) is not None:
            self.long[name] = axis
            shapes = [
                (*one[:axis], length, *one[axis + 1 :])
                for one, length in zip(shapes, self.profile.lengths, strict=True)
            ]
            shape = (*shape[:axis], LONGEST, *shape[axis + 1 :])
        negative = self.chance(0.2)
        self.inputs[name] = [self.random(dtype, one, 2.0, negative=negative) for one in shapes]
        made = Tensor(name, dtype, shape, 2.0 if dtype not in (*INTEGERS, I4, U4) else 16.0)
        self.values.append(made)
        return made

    def _long_axis(self, shape: Shape) -> int | None:
        """The axis that is left open, if any."""
        if not self.profile.lengths or len(shape) <= self.first or (self.long and self.chance(0.4)):
            return None
        axis = self.integer(self.first, len(shape) - 1)
        others = math.prod(n for at, n in enumerate(shape) if at != axis)
        return axis if LONGEST * others <= MOST_ELEMENTS // 2 else None

    # ------------------------------------------------------------ what they make

    def add(
        self, op: str, inputs: Sequence[str | Tensor], shape: Sequence[int], like: Tensor, **options: Any
    ) -> Tensor:
        """A node with one result: of the type and limit of `like` where options `dtype` and `limit` say
        nothing."""
        dtype, limit = options.pop("dtype", like.dtype), options.pop("limit", like.limit)
        (made,) = self.add_all(op, inputs, [(dtype, tuple(shape), limit)], **options)
        return made

    def add_all(
        self,
        op: str,
        inputs: Sequence[str | Tensor],
        results: Sequence[tuple[np.dtype[Any], Shape, float] | None],
        **attrs: Any,
    ) -> list[Tensor]:
        """A node with several results; None for one that is left out."""
        names = [one if isinstance(one, str) else one.name for one in inputs]
        made = [
            Tensor(f"{self.prefix}v{len(self.nodes)}_{at}", *one) if one is not None else None
            for at, one in enumerate(results)
        ]
        outputs = [one.name if one is not None else "" for one in made]
        node = helper.make_node(op, names, outputs, name=f"{self.prefix}n{len(self.nodes)}", **attrs)
        self.nodes.append(node)
        self.read.update(names)
        kept = [one for one in made if one is not None]
        self.made += kept
        self.values += [one for one in kept if one.size <= MOST_ELEMENTS and one.rank <= 6]
        return kept

    def within(self, x: Tensor, limit: float) -> Tensor:
        """The value, clipped where it may be larger."""
        if x.limit <= limit:
            return x
        if not self.takes("Clip", x.dtype):
            return self.add("Tanh", [x], x.shape, x, limit=1.0)
        ends = [self.constant(np.asarray(end).astype(x.dtype)) for end in (-limit, limit)]
        return self.add("Clip", [x, *ends], x.shape, x, limit=limit)

    def positive(self, x: Tensor, least: float = 0.5) -> Tensor:
        """|x| + least."""
        size = self.add("Abs", [x], x.shape, x)
        return self.add(
            "Add", [size, self.constant(np.asarray(least).astype(x.dtype))], x.shape, x, limit=x.limit + least
        )


Step = Callable[[Pool], None]


@cache
def allowed(op: str, opset: int, operand: int) -> frozenset[str]:
    """Types of an operand as ONNX's schema spells them (`tensor(float)`); none where there is no such
    operator."""
    try:
        schema = onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return frozenset()
    if schema.deprecated:
        return frozenset()
    return frozenset(schema.inputs[min(operand, len(schema.inputs) - 1)].types)


@cache
def type_name(dtype: np.dtype[Any]) -> str:
    """A type as ONNX's schemas spell it."""
    kind = onnx.TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(dtype))
    return f"tensor({kind.lower()})"


def code(dtype: np.dtype[Any]) -> int:
    """A type as attributes name it."""
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def tensor(array: Array) -> onnx.TensorProto:
    return numpy_helper.from_array(array)


def is_float(one: Tensor) -> bool:
    return one.dtype in FLOATS


def is_number(one: Tensor) -> bool:
    return one.dtype in FLOATS or one.dtype in INTEGERS
