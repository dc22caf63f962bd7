"""Index maps: how the indices of one layout follow from those of another.

`n, c, h, w -> n, c // 16, h, w, c % 16` is the blocked layout NCHW16c, `identity(4).split(1, 16, to=4)` but
for the names. Outputs are sums of inputs, of their floor divisions and of their remainders by literals; a
layout map has to be invertible. Text is for traces, and for people.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from compiler.core.diagnostics import UsageError
from compiler.loops.ir import Binary, Const, Expr, Var, binary, const
from compiler.loops.linear import divisor, is_division
from compiler.loops.simplify import Simplifier, substitute

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
}
_MANY = 1 << 40
"""More than any extent: under this bound no division of an input is trivial."""

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%"}


AXES = tuple(Var(name) for name in "abcdefghij")
"""The inputs of index maps that the compiler writes itself: as many as there may be dimensions."""


def fused(parts: Sequence[tuple[Expr, int]]) -> Expr:
    """The row-major number of a combination of indices, each with its extent; those of extent 1 are 0."""
    total: Expr = const(0)
    parts = [(index, extent) for index, extent in parts if extent > 1]
    for number, (index, _) in enumerate(parts):
        step = prod(extent for _, extent in parts[number + 1 :])
        total = binary("add", total, binary("mul", index, const(step)))
    return total


@dataclass(frozen=True, slots=True)
class IterSplit:
    """`input // step % count`; count is None when nothing is taken off above."""

    input: str
    step: int
    count: int | None


@dataclass(frozen=True, slots=True)
class IndexMap:
    """`inputs -> outputs`; outputs are expressions over variables called like the inputs."""

    inputs: tuple[str, ...]
    outputs: tuple[Expr, ...]

    @staticmethod
    def of(rank: int, outputs: Sequence[Expr]) -> IndexMap:
        """The map from the first `rank` of `AXES` to expressions over them."""
        return IndexMap(tuple(axis.name for axis in AXES[:rank]), tuple(outputs))

    @staticmethod
    def identity(rank: int) -> IndexMap:
        """The map that leaves everything in its place."""
        return IndexMap.of(rank, AXES[:rank])

    def reordered(self, order: Sequence[int]) -> IndexMap:
        """The map with its outputs, by number, in another order."""
        return replace(self, outputs=tuple(self.outputs[number] for number in order))

    def split(self, output: int, size: int, to: int | None = None) -> IndexMap:
        """The map with an output as the number of a tile; the place in it is behind that, or output `to`."""
        index, outputs = self.outputs[output], list(self.outputs)
        outputs[output] = index // size
        outputs.insert(output + 1 if to is None else to, index % size)
        return replace(self, outputs=tuple(outputs))

    def fuse(self, first: int, extents: Sequence[int]) -> IndexMap:
        """The map with outputs from number `first` on as one: as many as there are extents."""
        end = first + len(extents)
        one = fused(list(zip(self.outputs[first:end], extents, strict=True)))
        return replace(self, outputs=(*self.outputs[:first], one, *self.outputs[end:]))

    @staticmethod
    def parse(text: str) -> IndexMap:
        """The map written as `a, b -> expression, ...`; UsageError says what is wrong with the text."""
        return _parse(text)

    @property
    def text(self) -> str:
        """The map as text that `parse` reads."""
        return f"{', '.join(self.inputs)} -> {', '.join(_show(item) for item in self.outputs)}"

    def apply(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The output indices for the given input indices, not simplified."""
        values = dict(zip(self.inputs, indices, strict=True))
        return tuple(substitute(item, values) for item in self.outputs)

    def bounds(self, shape: Sequence[int]) -> dict[str, tuple[int, int]]:
        """Ranges of the inputs for a shape."""
        return {name: (0, extent - 1) for name, extent in zip(self.inputs, shape, strict=True)}

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The output shape that holds an input shape, with whole tiles where divisions do not come out even.

        Raises UsageError when an output can be negative or has no bound.
        """
        known = Simplifier(self.bounds(shape))
        remainders = self._remainders()
        result = []
        for item in self.outputs:
            low, high = known.interval(item)
            if low is None or high is None or low < 0:
                raise UsageError(
                    f"index map output {_show(item)!r} does not start at 0",
                    where=self.text,
                    hint="write outputs as sums of inputs, x // number and x % number",
                )
            result.append(
                max(high + 1, divisor(item) if isinstance(item, Binary) and item in remainders else 0)
            )
        return tuple(result)

    def _remainders(self) -> set[Binary]:
        """Outputs `x % m` that have a partner `x // m`: their extent is m even when x is short."""
        quotients = {
            (item.a, item.b) for item in self.outputs if isinstance(item, Binary) and item.op == "floordiv"
        }
        return {
            item
            for item in self.outputs
            if isinstance(item, Binary) and item.op == "floormod" and (item.a, item.b) in quotients
        }

    def is_padded(self, shape: Sequence[int]) -> bool:
        """Whether the output shape has elements that no input index reaches."""
        return prod(self.shape(shape)) != prod(shape)

    def inverse(self, shape: Sequence[int]) -> IndexMap:
        """The map from output to input indices for an input shape; UsageError when there is none."""
        found = self._inverse(tuple(shape))
        known = Simplifier(self.bounds(shape))
        back = [known.simplify(item) for item in found.apply([known.simplify(o) for o in self.outputs])]
        if any(item != known.simplify(Var(name)) for item, name in zip(back, self.inputs, strict=True)):
            raise self._not_invertible("different indices are mapped to the same place")
        return found

    def _inverse(self, shape: tuple[int, ...]) -> IndexMap:
        names = tuple(f"d{number}" for number in range(len(self.outputs)))
        extents = dict(zip(self.inputs, shape, strict=True))
        places: dict[str, dict[int, tuple[int, Expr]]] = {name: {} for name in self.inputs}
        for name, output in zip(names, self.outputs, strict=True):
            for part, value, count in self._parts_of(output, Var(name), shape):
                held = places[part.input].get(part.step)
                if held is None or held[0] < count:
                    places[part.input][part.step] = (count, value)
        outputs = []
        for name in self.inputs:
            total: Expr = const(0)
            reach = 1
            for step, (count, value) in sorted(places[name].items()):
                if step > reach:
                    raise self._not_invertible(f"a part of {name!r} is missing")
                if step == reach or reach == 1:
                    total = binary("add", binary("mul", value, const(step)), total)
                    reach = step * count
            if reach < extents[name]:
                raise self._not_invertible(f"{name!r} cannot be recovered from the outputs")
            outputs.append(total)
        return IndexMap(names, tuple(outputs))

    def _parts_of(
        self, output: Expr, index: Var, shape: tuple[int, ...]
    ) -> list[tuple[IterSplit, Expr, int]]:
        """(part, its value from the output index, number of its values) for the parts of one output."""
        known, open_known = (
            Simplifier(self.bounds(shape)),
            Simplifier(dict.fromkeys(self.inputs, (0, _MANY))),
        )
        found: list[tuple[IterSplit, Expr, int]] = []
        terms = sorted(open_known.linear(output).terms.items(), key=lambda item: item[1])
        for number, (atom, factor) in enumerate(terms):
            part = iter_split(atom)
            high = known.interval(atom)[1]
            if part is None or factor <= 0 or high is None:
                raise self._not_invertible(f"output {_show(output)!r} is not made of parts of the inputs")
            value: Expr = binary("floordiv", index, const(factor))
            if number + 1 < len(terms):
                above = terms[number + 1][1]
                if above % factor or above < factor * (high + 1):
                    raise self._not_invertible(f"parts of output {_show(output)!r} overlap")
                value = binary("floormod", value, const(above // factor))
            found.append((part, value, part.count if part.count is not None else high + 1))
        return found

    def _not_invertible(self, why: str) -> UsageError:
        return UsageError(
            "the index map is not invertible",
            where=self.text,
            why=why,
            hint="keep every part of every input, as in 'n, c -> n, c // 16, c % 16'",
        )


def iter_split(atom: Expr) -> IterSplit | None:
    """The single part of one input that an expression is, None for sums."""
    if isinstance(atom, Var):
        return IterSplit(atom.name, 1, None)
    if is_division(atom, "floordiv") and isinstance(atom.a, Var):
        return IterSplit(atom.a.name, divisor(atom), None)
    if is_division(atom, "floormod"):
        inner = iter_split(atom.a)
        return (
            None
            if inner is None or inner.count is not None
            else IterSplit(inner.input, inner.step, divisor(atom))
        )
    return None


@cache
def _parse(text: str) -> IndexMap:
    left, arrow, right = text.partition("->")
    inputs = tuple(item.strip() for item in left.split(","))
    if not arrow or not right.strip():
        raise _bad_text(text, "there is no '->' with outputs behind it")
    if len(set(inputs)) != len(inputs) or not all(item.isidentifier() for item in inputs):
        raise _bad_text(text, "the inputs have to be different names")
    try:
        tree = ast.parse(f"({right.strip()},)", mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _bad_text(text, "the outputs are not expressions") from error
    assert isinstance(tree.body, ast.Tuple)
    values = {name: Var(name) for name in inputs}
    return IndexMap(inputs, tuple(_expression(item, values, text) for item in tree.body.elts))


def _expression(item: ast.expr, values: Mapping[str, Expr], text: str) -> Expr:
    if isinstance(item, ast.Name):
        if item.id not in values:
            raise _bad_text(text, f"{item.id!r} is not an input")
        return values[item.id]
    if isinstance(item, ast.Constant) and type(item.value) is int:
        return const(item.value)
    if isinstance(item, ast.BinOp) and type(item.op) in _OPERATORS:
        a, b = _expression(item.left, values, text), _expression(item.right, values, text)
        op = _OPERATORS[type(item.op)]
        if op in {"floordiv", "floormod"} and not (isinstance(b, Const) and int(b.value) > 0):
            raise _bad_text(text, "// and % need a positive number on their right")
        return binary(op, a, b)
    raise _bad_text(text, f"{ast.unparse(item)!r} is none of name, number, + - * // %")


def _bad_text(text: str, why: str) -> UsageError:
    return UsageError(
        f"{text!r} is not an index map", why=why, hint="write 'n, c -> n, c // 16, c % 16', for example"
    )


def _show(item: Expr, parent: str = "") -> str:
    if isinstance(item, Var):
        return item.name
    if isinstance(item, Const):
        return str(item.value)
    assert isinstance(item, Binary)
    right = f"{item.op}:right"
    text = f"{_show(item.a, item.op)} {_SIGNS[item.op]} {_show(item.b, right)}"
    low = item.op in {"add", "sub"}
    bare = parent in {"", "add"} or (parent == "sub" and low) or (parent == "sub:right" and not low)
    return text if bare or (parent == "add:right") else f"({text})"
