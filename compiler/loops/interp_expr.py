"""Expressions of the interpreter: each becomes Python text over numbered names.

Nothing from a program's text reaches the Python text: names are numbered, literals go into a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from compiler.core.types import BOOL, DType
from compiler.loops import interp_math, interp_values, intrinsics, ir
from compiler.loops.interp_values import COMPUTE, NARROW, PACKED, ProgramError, poison_of
from compiler.loops.intervals import Span, span_of, type_span, wrapped
from compiler.loops.ir import Buffer, Expr

_ANY = {
    "lt": "({} < {})", "le": "({} <= {})", "gt": "({} > {})", "ge": "({} >= {})", "eq": "({} == {})",
    "ne": "({} != {})", "bitand": "({} & {})", "bitor": "({} | {})", "bitxor": "({} ^ {})",
}  # fmt: skip
"""What binary operations mean for all types, as Python; for vectors and scalars; for floats and integers."""
_VECTORS = {"and": "({} & {})", "or": "({} | {})", "min": "minimum({}, {})", "max": "maximum({}, {})"}
_SCALARS = {"and": "({} and {})", "or": "({} or {})"}
_FLOATS = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "div": "({} / {})", "min": "smaller({}, {})",
    "max": "larger({}, {})", "floordiv": "floor({} / {})", "floormod": "mod({}, {})",
    "truncdiv": "trunc({} / {})", "truncmod": "fmod({}, {})",
}  # fmt: skip
_INTS = {
    "add": "({} + {})", "sub": "({} - {})", "mul": "({} * {})", "div": "truncdiv({}, {})",
    "min": "min({}, {})", "max": "max({}, {})", "floordiv": "({} // {})", "floormod": "({} % {})",
    "truncdiv": "truncdiv({}, {})", "truncmod": "truncmod({}, {})", "shl": "({} << {})", "shr": "({} >> {})",
    "pow": "({} ** {})",
}  # fmt: skip
_WITHIN = frozenset({"min", "max"})
"""Operations of integers whose result is one of the operands; that of the others may leave its type."""
_DIVISIONS = frozenset({"div", "floordiv", "floormod", "truncdiv", "truncmod"})
_CHAINS = frozenset({"add", "sub", "mul", "and", "or"})


@dataclass(slots=True)
class Place:
    """A buffer while code is made: its Python names, and its extents where they are constant."""

    buffer: Buffer
    number: int
    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    offset: int | None
    watched: bool = False

    @property
    def view(self) -> str:
        return f"w{self.number}"

    @property
    def data(self) -> str:
        return f"d{self.number}"

    @property
    def plain(self) -> bool:
        """Whether element access can be written as plain indexing with constants."""
        kind = self.buffer.dtype
        known = self.shape is not None and not self.watched
        return known and kind.lanes == 1 and kind.name not in PACKED


@dataclass(slots=True)
class Codegen:
    """State of making code: names, what is known of variables, constants, the lanes that are active."""

    names: dict[str, str] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)
    shared: dict[Any, str] = field(default_factory=dict)
    count: int = 0
    mask: str | None = None
    thread: str = "t0"
    in_threads: bool = False

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def keep(self, key: Any, value: Any) -> str:
        """The name of a value in the table of constants; equal keys share one."""
        name = self.shared.get(key)
        if name is None:
            name = self.shared[key] = self.fresh("k")
            self.space[name] = value
        return name

    # ------------------------------------------------------------ expressions

    def expr(self, expr: Expr) -> str:
        """Python text of an expression; it can stand as an operand."""
        write = _WRITERS.get(type(expr))
        if write is None:
            raise ProgramError(f"an expression of kind {type(expr).__name__} has no meaning")
        return write(self, expr)

    def const(self, expr: ir.Const) -> str:
        value, kind = expr.value, expr.type
        if kind == BOOL:
            return "True" if value else "False"
        if kind.is_int:
            return f"({int(value)})" if value < 0 else str(int(value))
        return self.keep(("const", repr(value), kind), COMPUTE[kind.name](value))

    def var(self, expr: ir.Var) -> str:
        name = self.names.get(expr.name)
        if name is None:
            raise ProgramError(f"variable `{expr.name}` is used where it has no value")
        return name

    def binary(self, expr: ir.Binary) -> str:
        kind, op = expr.a.dtype, expr.op
        vector = max(kind.lanes, expr.b.dtype.lanes) > 1
        a, b = self._left(expr), self.expr(expr.b)
        own = _FLOATS if kind.is_float else _INTS
        for meaning in (_ANY, _VECTORS if vector else _SCALARS, own):
            if op in meaning:
                checked = f"nonzero({b})" if vector and own is _INTS and op in _DIVISIONS else b
                text = meaning[op].format(a, checked)
                return self._wrap(text, expr) if meaning is _INTS and op not in _WITHIN else text
        if op == "pow" and kind.is_float:
            return self._function("pow", (a, b), (expr.a.dtype, expr.b.dtype), expr.dtype)
        raise ProgramError(f"`{op}` has no meaning for {expr.a.dtype}")

    def _left(self, expr: ir.Binary) -> str:
        """The left operand; a chain of one operation needs no parentheses (Python limits their depth)."""
        text = self.expr(expr.a)
        chained = isinstance(expr.a, ir.Binary) and expr.a.op == expr.op and expr.op in _CHAINS
        return text[1:-1] if chained and text[0] == "(" else text

    def _wrap(self, text: str, expr: Expr) -> str:
        """Two's complement, where the result may leave its type."""
        kind = expr.dtype
        if kind.lanes > 1 and kind.name not in PACKED:
            return text
        low, high = span_of(expr, self.spans)
        least, most = type_span(kind)
        if least <= low and high <= most:
            return text
        name = "wrap_lanes" if kind.lanes > 1 else "wrap"
        make = _wrap_lanes if kind.lanes > 1 else interp_values.wrapper
        return f"{self.keep((name, kind.scalar), make(kind.scalar))}({text})"

    def unary(self, expr: ir.Unary) -> str:
        a = self.expr(expr.a)
        kind = expr.dtype
        if expr.op == "not" or (expr.op == "bitnot" and kind.is_bool):
            return f"(~{a})" if kind.lanes > 1 else f"(not {a})"
        if expr.op == "neg":
            return f"(-{a})" if kind.is_float else self._wrap(f"(-{a})", expr)
        if expr.op == "bitnot":
            return self._wrap(f"(~{a})", expr)
        raise ProgramError(f"the unary operation `{expr.op}` has no meaning")

    def select(self, expr: ir.Select) -> str:
        if expr.cond.dtype.lanes == 1:
            return f"({self.expr(expr.a)} if {self.expr(expr.cond)} else {self.expr(expr.b)})"
        cond, outer = self.fresh("m"), self.mask
        text = self.expr(expr.cond)
        self.mask = cond if outer is None else f"({outer} & {cond})"
        a = self.expr(expr.a)
        self.mask = f"~{cond}" if outer is None else f"({outer} & ~{cond})"
        b = self.expr(expr.b)
        self.mask = outer
        return f"where(({cond} := {text}), {a}, {b})"

    def cast(self, expr: ir.Cast) -> str:
        source, target = expr.value.dtype.scalar, expr.type.scalar
        inner = self.expr(expr.value)
        if source == target and source.name not in NARROW:
            return inner
        return f"{self.keep(('cast', source, target), interp_values.caster(source, target))}({inner})"

    def ramp(self, expr: ir.Ramp) -> str:
        steps = self.keep(
            ("ramp", expr.lanes, expr.dtype.name), np.arange(expr.lanes, dtype=COMPUTE[expr.dtype.name])
        )
        if isinstance(expr.stride, ir.Const) and expr.stride.value == 1:
            return f"({steps} + {self.expr(expr.base)})"
        return f"({steps} * {self.expr(expr.stride)} + {self.expr(expr.base)})"

    def broadcast(self, expr: ir.Broadcast) -> str:
        kind = expr.value.dtype
        value = self.expr(expr.value)
        if kind.lanes > 1:
            return f"tile({value}, {expr.lanes})"
        return f"full({expr.lanes}, {value}, {self.keep(('type', kind.name), COMPUTE[kind.name])})"

    def shuffle(self, expr: ir.Shuffle) -> str:
        total = sum(item.dtype.lanes for item in expr.vectors)
        if any(not 0 <= lane < total for lane in expr.lanes):
            raise ProgramError(f"shuffle picks a lane outside of the {total} that it has")
        parts = ", ".join(f"atleast_1d({self.expr(item)})" for item in expr.vectors)
        lanes = self.keep(("lanes", expr.lanes), np.array(expr.lanes, np.int64))
        picked = f"concatenate(({parts},))[{lanes}]"
        if len(expr.lanes) > 1:
            return picked
        return f"{picked}[0]" if expr.dtype.is_float else f"{picked}.item()"

    def reduce_lanes(self, expr: ir.ReduceLanes) -> str:
        if expr.op not in interp_math.REDUCERS:
            raise ProgramError(f"`{expr.op}` cannot combine lanes")
        fn = interp_math.reduce_lanes(expr.op, expr.dtype)
        return f"{self.keep(('reduce', expr.op, expr.dtype), fn)}({self.expr(expr.value)})"

    def call(self, expr: ir.Call) -> str:
        args = [self.expr(item) for item in expr.args]
        known = intrinsics.intrinsic(expr.name)
        if known is None:
            return self._function(expr.name, args, tuple(item.dtype for item in expr.args), expr.type)
        run = self.keep(("intrinsic", expr.name), known.single or known.collective)
        if known.single is not None:
            return f"{run}({self.thread}, ({''.join(f'{item}, ' for item in args)}))"
        if not self.in_threads:
            raise ProgramError(
                f"`{expr.name}` works on a sub-group, and there are no bound threads around it",
                hint="bind a loop to threadIdx.x",
            )
        return f"(yield ('collective', {run}, ({''.join(f'{item}, ' for item in args)})))"

    def _function(self, name: str, args: Sequence[str], sources: tuple[DType, ...], target: DType) -> str:
        fn = interp_math.function(name, sources, target)
        if fn is None:
            types = ", ".join(map(str, sources))
            raise ProgramError(
                f"the function `{name}` of ({types}) has no meaning in the interpreter",
                hint="register it in compiler/loops/intrinsics.py, or use a known name",
            )
        return f"{self.keep(('function', name, sources, target), fn)}({', '.join(args)})"

    # ------------------------------------------------------------ memory

    def place(self, buffer: Buffer) -> Place:
        found = self.places.get(buffer.name)
        if found is None:
            raise ProgramError(f"buffer `{buffer.name}` is used where it does not exist")
        if len(found.buffer.shape) != len(buffer.shape):
            raise ProgramError(f"buffer `{buffer.name}` has another rank here than where it is declared")
        return found

    def _checked(self, expr: Expr, dim: int, place: Place) -> str:
        """One scalar index as text, with a check where it is not provably in range."""
        assert place.shape is not None
        size = place.shape[dim]
        low, high = wrapped(expr, self.spans)
        text = self.expr(expr)
        if low >= 0 and high < size:
            return text
        name = self.fresh("i")
        return f"({name} if 0 <= ({name} := {text}) < {size} else oob({place.view}, {dim}, {name}))"

    def flat(self, buffer: Buffer, indices: Sequence[Expr]) -> str:
        """Position of a scalar access as text."""
        place = self.place(buffer)
        self._check_rank(buffer, indices)
        if place.shape is None or place.strides is None:
            return f"{place.view}.flat(({''.join(f'{self.expr(item)}, ' for item in indices)}))"
        terms = []
        for dim, index in enumerate(indices):
            text, stride = self._checked(index, dim, place), place.strides[dim]
            terms.append(text if stride == 1 else f"{text} * {stride}")
        if place.offset or not terms:
            terms.append(str(place.offset))
        return " + ".join(terms)

    @staticmethod
    def _check_rank(buffer: Buffer, indices: Sequence[Expr]) -> None:
        if len(indices) != len(buffer.shape):
            raise ProgramError(
                f"buffer `{buffer.name}` is accessed with {len(indices)} indices",
                why=f"it has {len(buffer.shape)} dimensions",
            )

    def contiguous(self, buffer: Buffer, indices: Sequence[Expr]) -> str | None:
        """The slice of an unmasked access to neighbouring elements, where it is provably in bounds."""
        place = self.place(buffer)
        last = indices[-1] if indices else None
        if not isinstance(last, ir.Ramp) or not place.plain or self.mask is not None:
            return None
        assert place.shape is not None
        assert place.strides is not None
        if place.strides[-1] != 1 or not isinstance(last.stride, ir.Const) or last.stride.value != 1:
            return None
        low, high = span_of(last, self.spans)
        if any(item.dtype.lanes > 1 for item in indices[:-1]) or low < 0 or high >= place.shape[-1]:
            return None
        start = self.fresh("i")
        flat = self.flat(buffer, (*indices[:-1], last.base))
        return f"{place.data}[({start} := {flat}):{start} + {last.lanes}]"

    def load(self, expr: ir.Load) -> str:
        buffer, kind = expr.buffer, expr.buffer.dtype
        place = self.place(buffer)
        self._check_rank(buffer, expr.indices)
        if expr.width > 1:
            return self._load_lanes(expr, place)
        flat = self.flat(buffer, expr.indices)
        text = self._element(place, flat)
        if expr.mask is not None:
            other = self.expr(expr.other) if expr.other is not None else self.poison(kind)
            return f"({text} if {self.expr(expr.mask)} else {other})"
        if self.mask is not None:
            return f"({text} if ({self.mask}).any() else {self.poison(kind)})"
        return text

    def poison(self, kind: DType) -> str:
        value = 5 if kind.name in PACKED else poison_of(kind.scalar)
        if kind.lanes > 1:
            return self.keep(("poison", kind), np.full(kind.lanes, value, COMPUTE[kind.name]))
        return self.keep(("poison", kind), COMPUTE[kind.name](value) if kind.is_float else int(value))

    def _element(self, place: Place, flat: str) -> str:
        kind = place.buffer.dtype
        if not place.plain:
            return f"{place.view}.get({flat})"
        if not kind.is_float:
            return f"{place.data}.item({flat})"
        return f"float32({place.data}[{flat}])" if kind.name in NARROW else f"{place.data}[{flat}]"

    def _load_lanes(self, expr: ir.Load, place: Place) -> str:
        piece = self.contiguous(expr.buffer, expr.indices) if expr.mask is None else None
        if piece is not None:
            return f"{piece}.astype(float32)" if place.buffer.dtype.name in NARROW else f"{piece}.copy()"
        mask = self._both(self.expr(expr.mask) if expr.mask is not None else None)
        other = "None" if expr.other is None else self.expr(expr.other)
        return f"{place.view}.load({self.tuple(expr.indices)}, {expr.width}, {mask}, {other})"

    def _both(self, mask: str | None) -> str:
        if self.mask is None:
            return mask or "None"
        return self.mask if mask is None else f"({mask} & {self.mask})"

    def tuple(self, exprs: Sequence[Expr]) -> str:
        return f"({''.join(f'{self.expr(item)}, ' for item in exprs)})"

    def address(self, expr: ir.AddressOf) -> str:
        place = self.place(expr.buffer)
        return f"Address({place.view}, {self.flat(expr.buffer, expr.indices)})"


def _wrap_lanes(kind: DType) -> Callable[[Any], Any]:
    wrap, compute = interp_values.wrapper(kind), COMPUTE[kind.name]
    return lambda vector: np.array([wrap(int(item)) for item in vector], compute)


def known_span(low: int, high: float) -> Span:
    """Bounds of a loop variable; an empty loop has none."""
    return (low, max(low, high)) if high < inf else (low, inf)


_WRITERS: dict[type, Callable[[Codegen, Any], str]] = {
    ir.Const: Codegen.const,
    ir.Var: Codegen.var,
    ir.Binary: Codegen.binary,
    ir.Unary: Codegen.unary,
    ir.Select: Codegen.select,
    ir.Cast: Codegen.cast,
    ir.Load: Codegen.load,
    ir.Ramp: Codegen.ramp,
    ir.Broadcast: Codegen.broadcast,
    ir.Shuffle: Codegen.shuffle,
    ir.ReduceLanes: Codegen.reduce_lanes,
    ir.Call: Codegen.call,
    ir.AddressOf: Codegen.address,
}
