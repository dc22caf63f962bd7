"""A candidate in the measuring process: its library, and buffers between guard zones, several sets of them.

In a network a kernel finds its weights as they were left one inference ago, and its other inputs as the
kernel before wrote them. So there are two sets of activations, which take turns, and so many sets of weights
that between two runs on the same ones as many bytes are read as an inference has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import CONSTANT, Func
from compiler.loops.queries import static_shape
from compiler.loops.text import parse_func
from compiler.runtime.loader import BoundRun, Model
from compiler.runtime.tensors import Array
from compiler.verify.interpreted import pack_inputs, unpack_outputs

SETS = 2
"""Different inputs on which a candidate has to be right."""
_GUARD_BYTES = 4096
_POISON = 0xFF
"""In every byte a NaN for floats, and no small number for the others."""
_ALIGNMENT = 64
_MOST_COPIES = 64
_SMALL = 16
"""Bits of whole numbers that are data, so that all values may come; wider ones may be indices."""


class Guarded:
    """An array with zones around it that nobody may write to; poisoned at first."""

    def __init__(self, shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
        size = int(np.prod(shape)) * kind.itemsize
        self._raw = np.full(size + 2 * _GUARD_BYTES + _ALIGNMENT, _POISON, np.uint8)
        begin = _GUARD_BYTES + -(self._raw.ctypes.data + _GUARD_BYTES) % _ALIGNMENT
        self._begin, self._end = begin, begin + size
        self.array: Array = self._raw[begin : begin + size].view(kind).reshape(shape)

    @classmethod
    def of(cls, array: Array) -> Guarded:
        """A copy of an array between zones."""
        made = cls(array.shape, array.dtype)
        made.array[...] = array
        return made

    @property
    def content(self) -> Array:
        """The bytes between the zones."""
        return self._raw[self._begin : self._end]

    @property
    def is_whole(self) -> bool:
        """Whether the zones are as they were made."""
        return bool((self._raw[: self._begin] == _POISON).all() and (self._raw[self._end :] == _POISON).all())


@dataclass(slots=True)
class Loaded:
    """A library of one kernel with its buffers; `bound` are runs on all sets in turn."""

    func: Func
    model: Model
    packed: list[dict[str, Array]]
    inputs: list[dict[str, Guarded]]
    outputs: list[dict[str, Guarded]]
    bound: list[BoundRun]

    @classmethod
    def of(
        cls,
        one: Mapping[str, Any],
        feeds: Sequence[Mapping[str, Array]],
        *,
        threads: int | None,
        working_set: int = 0,
    ) -> Loaded:
        """Load a library; `feeds` are its inputs in their shapes before any layout.

        one: its path, and the scheduled function as text. working_set: bytes of weights to go through.
        """
        func = parse_func(one["scheduled"])
        model = Model(Path(one["library"]), threads=threads)
        packed = [_packed(func, feed) for feed in feeds]
        weights = {item.name for item in func.inputs if item.scope == CONSTANT}
        size = sum(packed[0][name].nbytes for name in weights)
        copies = min(_MOST_COPIES, -(-working_set // size)) if size else 1
        rounds = max(1, -(-copies // len(feeds)))
        activations = [{n: Guarded.of(a) for n, a in one.items() if n not in weights} for one in packed]
        inputs = [
            {**activations[number], **{name: Guarded.of(packed[number][name]) for name in weights}}
            for _ in range(rounds)
            for number in range(len(feeds))
        ]
        outputs = [{r.name: _output(func, r.name) for r in func.results} for _ in feeds]
        context = model.context()
        bound = [
            context.bind(_arrays(given), out=_arrays(outputs[number % len(feeds)]))
            for number, given in enumerate(inputs)
        ]
        return cls(func, model, packed, inputs, outputs, bound)

    def results(self, number: int) -> dict[str, Array]:
        """Run on one of the feeds; results in their shapes, layouts undone."""
        self.bound[number].run()
        made = {name: item.array.reshape(-1).copy() for name, item in self.outputs[number].items()}
        return unpack_outputs(self.func, made)

    def damage(self) -> str:
        """What was written that is no output; empty where nothing was."""
        for one in (*self.inputs, *self.outputs):
            for name, item in one.items():
                if not item.is_whole:
                    return f"memory around `{name}` was written to"
        for number, one in enumerate(self.inputs):
            packed = self.packed[number % len(self.packed)]
            for name, item in one.items():
                if not _same(item, packed[name]):
                    return f"the input `{name}` was written to"
        return ""


def _packed(func: Func, feed: Mapping[str, Array]) -> dict[str, Array]:
    kinds = {item.name: np.dtype(STORAGE[item.dtype.name]) for item in func.inputs}
    return {name: np.ascontiguousarray(array, kinds[name]) for name, array in pack_inputs(func, feed).items()}


def _output(func: Func, name: str) -> Guarded:
    buffer = func.buffer(name)
    return Guarded(static_shape(buffer), np.dtype(STORAGE[buffer.dtype.name]))


def _arrays(items: Mapping[str, Guarded]) -> dict[str, Array]:
    return {name: item.array for name, item in items.items()}


def _same(item: Guarded, wanted: Array) -> bool:
    return bool((item.content == wanted.reshape(-1).view(np.uint8)).all())


def feeds_of(func: Func, seed: int) -> list[dict[str, Array]]:
    """Inputs of a function that was not scheduled: `SETS` of them."""
    return [_feed(func, seed + number) for number in range(SETS)]


def _feed(func: Func, seed: int) -> dict[str, Array]:
    """Floats are normally distributed, small whole numbers all there are, others and truth values 0 or 1."""
    source = np.random.default_rng(seed)
    return {
        item.name: _random(source, static_shape(item), np.dtype(STORAGE[item.dtype.name]), item.dtype.bits)
        for item in func.inputs
    }


def _random(source: np.random.Generator, shape: tuple[int, ...], kind: np.dtype[Any], bits: int) -> Array:
    if kind.kind not in "iu":
        is_float = kind.kind != "b"
        made = source.standard_normal(shape) if is_float else source.integers(0, 2, shape)
        return made.astype(kind)
    least, most = (-(1 << bits - 1), 1 << bits - 1) if kind.kind == "i" else (0, 1 << bits)
    low, high = (least, most) if 1 < bits <= _SMALL else (0, 2)
    return source.integers(low, high, shape).astype(kind)
