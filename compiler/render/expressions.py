"""Expressions as C text: index sums against named pointers, vectors, masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from compiler.core.diagnostics import InternalError
from compiler.core.node import IRNode
from compiler.core.types import INDEX, DType, dtype
from compiler.loops.ir import (
    COMPARISONS,
    LOGICAL,
    AddressOf,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    ReduceLanes,
    Select,
    Shuffle,
    Unary,
    Var,
    const,
)
from compiler.loops.simplify import Simplifier, substitute
from compiler.render.guarded_loads import converted_last, load_or_zero
from compiler.render.literals import literal
from compiler.render.masks import held_type, mask_bits
from compiler.render.scopes import Writer
from compiler.render.vocabulary import NARROW_FLOATS, Vocabulary, computed, memory_type, narrowed

Value: TypeAlias = int | str
"""A variable while printing: a number (its loop is being unrolled) or a C identifier."""

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "truncdiv": "/", "truncmod": "%",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "bitand": "&", "bitor": "|", "bitxor": "^", "shl": "<<", "shr": ">>",
}  # fmt: skip
_SMALL_INT_BITS = 32


def is_rounded(expr: Expr) -> bool:
    """Whether a value is rounded to a narrow float as the last thing: what lies in memory is that."""
    return isinstance(expr, Cast) and expr.type.name in NARROW_FLOATS and expr.value.dtype != expr.type


class Expressions:
    """Prints expressions of one C function; `values` says what each variable is at this point."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.words = vocabulary
        self.values: dict[str, Value] = {}
        self.sim = Simplifier()
        self.writer = Writer()
        self.pointers: dict[Buffer, str] = {}
        self.registers: dict[tuple[Buffer, int], str] = {}
        self.used_registers: set[str] = set()
        self._lazy = 0

    # ------------------------------------------------------------ places in memory

    def place(self, buffer: Buffer, index: Expr) -> tuple[str, str]:
        """(pointer, offset) of a scalar index: the offset is a number where the pointer takes the rest."""
        terms, offset = self._sum(index)
        base = self.pointers[buffer]
        if not terms:
            return base, str(offset)
        if any(isinstance(part, Load) for part in index.walk()):
            return base, sum_text(terms, offset)
        return self.based(base, terms, self.pointer_type(buffer)), str(offset)

    def based(self, base: str, terms: dict[str, int], kind: str) -> str:
        """The pointer to so many elements behind a base."""
        return self.writer.pointer(base, sum_text(terms), kind)

    def pointer_type(self, buffer: Buffer) -> str:
        """`const float *`, without const where the function writes to the buffer."""
        raise NotImplementedError

    def element(self, buffer: Buffer, index: Expr) -> str:
        """One scalar element as an lvalue."""
        pointer, offset = self.place(buffer, index)
        return f"{pointer}[{offset}]"

    def address(self, buffer: Buffer, index: Expr) -> str:
        """The address of one element."""
        pointer, offset = self.place(buffer, index)
        return pointer if offset == "0" else f"{pointer} + {offset}"

    def register(self, buffer: Buffer, index: Expr) -> str | None:
        """The variable that holds an element of a buffer that lives in registers."""
        if (buffer, 0) not in self.registers:
            return None
        terms, offset = self._sum(index)
        name = self.registers.get((buffer, offset))
        if terms or name is None:
            raise InternalError("an index of a register buffer is not constant", where=buffer.name)
        self.used_registers.add(name)
        return name

    def _sum(self, index: Expr) -> tuple[dict[str, int], int]:
        """An index as text -> factor, and a number, with known variables put in."""
        linear = self.sim.linear(index)
        terms: dict[str, int] = {}
        offset = linear.constant
        for atom, factor in linear.terms.items():
            value = self._atom(atom)
            if isinstance(value, int):
                offset += factor * value
            elif isinstance(value, str):
                terms[value] = terms.get(value, 0) + factor
            else:
                inner, more = self._sum(value)
                offset += factor * more
                for text, count in inner.items():
                    terms[text] = terms.get(text, 0) + factor * count
        return {text: factor for text, factor in terms.items() if factor}, offset

    def _atom(self, atom: Expr) -> Value | Expr:
        """A number, a text, or (for a division of known variables) what it simplifies to."""
        if isinstance(atom, Var):
            return self.values[atom.name]
        known = self._known(atom)
        if known is not None:
            return known
        return str(self._EXPRESSIONS[type(atom)](self, atom))  # no sum: a product of two variables, for one

    def _known(self, expr: Expr) -> Expr | None:
        """The expression with the variables of unrolled loops put in; None when there are none."""
        numbers = {
            item.name: const(value)
            for item in expr.walk()
            if isinstance(item, Var) and isinstance(value := self.values.get(item.name), int)
        }
        return self.sim.simplify(substitute(expr, dict(numbers))) if numbers else None

    def condition(self, cond: Expr) -> Expr:
        """A scalar condition with everything known put in; a literal when it is decided."""
        return self._known(cond) or self.sim.simplify(cond)

    # ------------------------------------------------------------ values

    def __call__(self, expr: Expr) -> str:
        """The text of a value; composite texts are in parentheses or are calls."""
        if expr.dtype == INDEX and isinstance(expr, Binary) and expr.op in ("add", "sub", "mul"):
            terms, offset = self._sum(expr)
            return f"({sum_text(terms, offset)})" if terms else self.literal(offset, INDEX)
        rule = self._EXPRESSIONS.get(type(expr))
        if rule is None:
            raise InternalError(f"cannot print {type(expr).__name__}")
        return str(rule(self, expr))

    def _var(self, expr: Var) -> str:
        return str(self.values[expr.name])

    def _const(self, expr: Const) -> str:
        return self.literal(expr.value, expr.type)

    def literal(self, value: float, kind: DType) -> str:
        """A literal of a scalar type."""
        return self.words.literal(value, kind) or literal(Const(value, kind))

    def _binary(self, expr: Binary) -> str:
        kind = expr.a.dtype
        if kind.is_bool and kind.lanes > 1 and expr.op in (*LOGICAL, "eq", "ne"):
            return self._mask_binary(expr)
        if expr.op in LOGICAL:
            return f"({self(expr.a)} {'&&' if expr.op == 'and' else '||'} {self.lazily(expr.b)})"
        if expr.op in ("min", "max"):
            return self._extremum(expr)
        if expr.op == "pow":
            return f"{self.words.math('pow')}({self(expr.a)}, {self(expr.b)})"
        if expr.op in ("floordiv", "floormod"):
            return self.divided(expr)
        if kind.is_int and expr.op in ("div", "truncdiv", "truncmod") and not _divides_safely(expr.b):
            name = "truncmod" if expr.op == "truncmod" else "truncdiv"
            return f"{self.words.typed(name, kind)}({self(expr.a)}, {self(expr.b)})"
        text = f"({self(expr.a)} {_OPERATORS[expr.op]} {self(expr.b)})"
        small = kind.is_int and kind.bits < _SMALL_INT_BITS and kind.lanes == 1 and expr.op not in COMPARISONS
        return f"({self.words.types[kind.name]}){text}" if small else text

    def _extremum(self, expr: Binary) -> str:
        if expr.op == "max" and expr.dtype.is_float:
            for value, bound in ((expr.a, expr.b), (expr.b, expr.a)):
                if _is_zero(bound):
                    return f"{self.words.math('relu')}({self(value)})"
        return f"{self.words.typed(expr.op, expr.dtype)}({self(expr.a)}, {self(expr.b)})"

    def divided(self, expr: Binary) -> str:
        """A floordiv or floormod: C rounds to zero, the floor where both sides are known to be positive."""
        low, divisor = self._interval(expr.a)[0], self._interval(expr.b)[0]
        if low is not None and divisor is not None and low >= 0 and divisor > 0:
            return f"({self(expr.a)} {'/' if expr.op == 'floordiv' else '%'} {self(expr.b)})"
        function = self.words.typed(expr.op, expr.dtype)  # a literal has another type than what it divides
        return f"{function}({self(expr.a)}, {self(expr.b)})"

    def _interval(self, expr: Expr) -> tuple[int | None, int | None]:
        return self.sim.interval(expr) if expr.dtype.lanes == 1 else (None, None)

    def _unary(self, expr: Unary) -> str:
        if expr.op == "not":
            return f"(~{self(expr.a)})" if expr.dtype.lanes > 1 else f"(!{self(expr.a)})"
        text = f"({'-' if expr.op == 'neg' else '~'}{self(expr.a)})"
        kind = expr.dtype
        small = kind.is_int and kind.bits < _SMALL_INT_BITS and kind.lanes == 1
        return f"({self.words.types[kind.name]}){text}" if small else text

    def _select(self, expr: Select) -> str:
        if expr.cond.dtype.lanes == 1:
            cond = self.condition(expr.cond)
            if isinstance(cond, Const):
                return self(expr.a if cond.value else expr.b)
            if (whole := self.guarded(expr)) != expr:
                return self(whole)
            if (text := self.load_or_zero(expr)) is not None:
                return self.words.widen(expr.dtype, text)
            return f"({self(cond)} ? {self.lazily(expr.a)} : {self.lazily(expr.b)})"
        mask = self.mask(expr.cond, computed(expr.dtype).bits)
        if expr.dtype.is_bool:
            bits = mask_bits(expr)
            mask = self.mask(expr.cond, bits)
            return self.words.select(mask, self.mask(expr.a, bits), self.mask(expr.b, bits))
        return self.words.select(mask, self(expr.a), self(expr.b))

    def guarded(self, expr: Expr) -> Expr:
        """The value, converted behind a load or zero where the language has a word for that."""
        return expr if self.words.load_or_zero is None else converted_last(expr)

    def load_or_zero(self, expr: Expr) -> str | None:
        """A load or zero, as it lies in memory; None for others, and where a language has no word for it."""
        found, word = load_or_zero(expr), self.words.load_or_zero
        if word is None or found is None:
            return None
        cond, load = found
        index = load.indices[0]
        if isinstance(index, Ramp) and not self.whole_vectors(index):
            return None
        address = self.address(load.buffer, index.base if isinstance(index, Ramp) else index)
        kind = self.words.type_of(memory_type(load.dtype))
        return word(kind, self.pointers[load.buffer], address, self(self.condition(cond)))

    def decided(self, expr: Expr) -> Expr:
        """The branch of a selection whose condition is known here; anything else as it is."""
        while isinstance(expr, Select) and expr.cond.dtype.lanes == 1:
            cond = self.condition(expr.cond)
            if not isinstance(cond, Const):
                break
            expr = expr.a if cond.value else expr.b
        return expr

    def lazily(self, expr: Expr) -> str:
        """A value that may only be computed when it is needed: its loads stay where they are."""
        self._lazy += 1
        text = self(expr)
        self._lazy -= 1
        return text

    def _cast(self, expr: Cast) -> str:
        source, target = computed(expr.value.dtype), computed(expr.type)
        if is_rounded(expr):
            return self.words.widen(expr.type, narrowed(expr.type, self._cast_plain(expr, source, target)))
        return self._cast_plain(expr, source, target)

    def _cast_plain(self, expr: Cast, source: DType, target: DType) -> str:
        if source == target:
            return self(expr.value)
        if target.lanes == 1:
            value = self(expr.value)
            return f"({value} != 0)" if target.is_bool else f"(({self.words.types[target.name]}){value})"
        if target.is_bool:
            zero = self.words.splat(source, self.literal(0, source.scalar))
            return f"({self(expr.value)} != {zero})"
        if source.is_bool:
            bits = mask_bits(expr.value)
            ones = f"(-{self(expr.value)})"
            signed = dtype(f"i{bits}", target.lanes)
            return ones if signed == target else self.words.convert(target, ones)
        return self.words.convert(target, self(expr.value))

    def _call(self, expr: Call) -> str:
        if expr.name in ("min", "max"):
            return self._extremum(Binary(expr.name, expr.args[0], expr.args[1]))
        if expr.name == "bitcast":
            return f"{self.words.typed('bitcast', expr.dtype)}({self(expr.args[0])})"
        return f"{self.words.math(expr.name)}({', '.join(self.operands(expr))})"

    def operands(self, expr: Call) -> list[str]:
        """The operands of a call."""
        operand = self.as_in_memory if expr.name in self.words.helpers else self
        return [operand(item) for item in expr.args]

    def as_in_memory(self, expr: Expr) -> str:
        """A value without the conversion that loading it brings: what instructions of matrix units take."""
        kind = memory_type(expr.dtype)
        if isinstance(expr, Cast) and is_rounded(expr):
            return narrowed(
                expr.type, self._cast_plain(expr, computed(expr.value.dtype), computed(expr.type))
            )
        if not isinstance(expr, Load) or kind == expr.dtype:
            return self(expr)
        if kind.lanes == 1:
            return self.element(expr.buffer, expr.indices[0])
        text = self._vector_load(expr)
        return text if self._lazy else self.share(expr.buffer, kind, text)

    def _address_of(self, expr: AddressOf) -> str:
        return self.address(expr.buffer, expr.indices[0])

    def _ramp(self, expr: Ramp) -> str:
        return self.words.ramp(expr.dtype, self(expr.base), self(expr.stride))

    def _broadcast(self, expr: Broadcast) -> str:
        if expr.dtype.is_bool:
            return self.words.splat(dtype("i32", expr.lanes), f"-(int32_t){self(expr.value)}")
        scalar = self(expr.value)
        text = self.words.splat(computed(expr.dtype), scalar)
        if isinstance(expr.value, Load) and (expr.value.buffer, 0) not in self.registers and not self._lazy:
            return self.share(expr.value.buffer, expr.dtype, text)
        return text

    def _reduce_lanes(self, expr: ReduceLanes) -> str:
        return f"tk_reduce_{expr.op}({self(expr.value)})"

    def _shuffle(self, expr: Shuffle) -> str:
        if all(item.dtype.lanes == 1 for item in expr.vectors):
            parts = [self(expr.vectors[lane]) for lane in expr.lanes]
            kind = held_type(expr)
            if expr.dtype.is_bool:
                parts = [f"({self.words.types[kind.scalar.name]})-{part}" for part in parts]
            return self.words.build(computed(kind), parts)
        held = [
            self.mask(item, mask_bits(expr)) if item.dtype.is_bool else self(item) for item in expr.vectors
        ]
        return self.words.shuffle(expr.lanes, held[0], held[-1])

    # ------------------------------------------------------------ loads

    def _load(self, expr: Load) -> str:
        buffer, index = expr.buffer, expr.indices[0]
        if name := self.register(buffer, index if not isinstance(index, Ramp) else index.base):
            return name
        if expr.dtype.lanes == 1:
            return self.words.widen(buffer.dtype, self.element(buffer, index))
        if expr.mask is not None:
            return self._masked_load(expr)
        text = self.words.widen(expr.dtype, self._vector_load(expr))
        simple = isinstance(index, Ramp) or index.dtype.lanes == 1
        return self.share(buffer, held_type(expr), text) if simple and not self._lazy else text

    def _vector_load(self, expr: Load) -> str:
        buffer, index = expr.buffer, expr.indices[0]
        if index.dtype.lanes == 1:  # a buffer of vectors
            return self.element(buffer, index)
        if isinstance(index, Ramp) and index.stride == const(1):
            aligned = self.words.load_aligned if self.whole_vectors(index) else None
            return (aligned or self.words.load)(expr.dtype, self.address(buffer, index.base))
        if isinstance(index, Ramp):
            return self.words.load_strided(expr.dtype, self.address(buffer, index.base), self(index.stride))
        return self.words.gather(expr.dtype, self.pointers[buffer], self(index))

    def whole_vectors(self, index: Ramp) -> bool:
        """Whether consecutive lanes begin at a multiple of their number."""
        terms, offset = self._sum(index.base)
        return all(count % index.lanes == 0 for count in (*terms.values(), offset))

    def _masked_load(self, expr: Load) -> str:
        """Lane by lane: memory of the lanes that are off is not touched."""
        assert expr.mask is not None
        buffer, lanes, index = expr.buffer, expr.dtype.lanes, expr.indices[0]
        count = self.count(expr.mask)
        if isinstance(count, int) and count >= lanes:
            return self._load(expr.replace(mask=None, other=None))
        plain = memory_type(buffer.dtype) == buffer.dtype and expr.other is not None
        if count is not None and plain and isinstance(index, Ramp) and index.stride == const(1):
            assert expr.other is not None
            at, other = self.address(buffer, index.base), self(expr.other)
            return self.words.load_partial(expr.dtype, at, str(count), other)
        mask = self.named(expr.mask)
        other = self.literal(0, computed(buffer.dtype.scalar))
        if isinstance(expr.other, Broadcast):
            other = self(expr.other.value)
        is_bool = buffer.dtype.is_bool  # vectors of bool are made of the integers that lie in memory
        kind = memory_type(expr.dtype) if is_bool else expr.dtype
        small = kind.is_int and kind.bits < _SMALL_INT_BITS  # the choice is an int, too wide for the lane
        cast = f"({self.words.types[kind.scalar.name]})" if small else ""
        items = []
        for lane, element in enumerate(self.lane_elements(buffer, expr.indices[0], lanes)):
            here = element if is_bool else self.words.widen(buffer.dtype, element)
            chosen = f"{self.words.lane(mask, lane)} ? {here} : {other}"
            items.append(f"{cast}({chosen})" if cast else chosen)
        text = self.words.build(computed(kind), items)
        return self.words.widen(expr.dtype, text) if is_bool else text

    def lane_elements(self, buffer: Buffer, index: Expr, lanes: int) -> list[str]:
        """The elements that the lanes of an index refer to, as lvalues."""
        if isinstance(index, Ramp):
            return [self.element(buffer, index.base + index.stride * lane) for lane in range(lanes)]
        name = self.named(index)
        return [f"{self.pointers[buffer]}[{self.words.lane(name, lane)}]" for lane in range(lanes)]

    def named(self, expr: Expr) -> str:
        """A value that is written more than once: a variable in front of the statement."""
        name = self.writer.fresh("t")
        self.writer.line(f"const {self.words.type_of(held_type(expr))} {name} = {self(expr)};")
        return name

    def share(self, buffer: Buffer, kind: DType, text: str) -> str:
        """The name of a load from a buffer where it occurs often."""
        return self.writer.shared_load(self.pointers[buffer], self.words.type_of(kind), text)

    # ------------------------------------------------------------ masks

    def count(self, mask: Expr) -> int | str | None:
        """How many lanes, from the first, a mask has on (below 0: none); None for any other mask."""
        if not (isinstance(mask, Binary) and mask.op == "lt" and isinstance(mask.a, Ramp)):
            return None
        if mask.a.stride != const(1) or not isinstance(mask.b, Broadcast):
            return None
        terms, offset = self._sum(mask.b.value - mask.a.base)
        return sum_text(terms, offset) if terms else offset

    def mask(self, expr: Expr, bits: int) -> str:
        """A vector of bool as a vector of integers (0 or -1) of the given width."""
        count = self.count(expr)
        if isinstance(count, int):  # numbers of lanes fit any width, 64-bit indices are slow to compare
            lanes = dtype(f"i{bits}", expr.dtype.lanes)
            first = min(max(count, 0), lanes.lanes)
            return f"({self.words.ramp(lanes, '0', '1')} < {self.words.splat(lanes, str(first))})"
        text = self(expr)
        if mask_bits(expr) == bits:
            return text
        return self.words.convert(dtype(f"i{bits}", expr.dtype.lanes), text)

    def _mask_binary(self, expr: Binary) -> str:
        bits = max(mask_bits(expr.a), mask_bits(expr.b))
        operator = {"and": "&", "or": "|", "eq": "==", "ne": "!="}[expr.op]
        return f"({self.mask(expr.a, bits)} {operator} {self.mask(expr.b, bits)})"

    _EXPRESSIONS: ClassVar[dict[type[IRNode], Callable[..., Any]]] = {
        Var: _var,
        Const: _const,
        Binary: _binary,
        Unary: _unary,
        Select: _select,
        Cast: _cast,
        Call: _call,
        AddressOf: _address_of,
        Ramp: _ramp,
        Broadcast: _broadcast,
        ReduceLanes: _reduce_lanes,
        Shuffle: _shuffle,
        Load: _load,
    }


def _divides_safely(divisor: Expr) -> bool:
    """Whether C's own division by this integer has a result for every dividend."""
    value = divisor.value if isinstance(divisor, Broadcast) else divisor
    return isinstance(value, Const) and value.value not in (0, -1)


def _is_zero(expr: Expr) -> bool:
    if isinstance(expr, Broadcast):
        return _is_zero(expr.value)
    return isinstance(expr, Const) and expr.value == 0


def sum_text(terms: dict[str, int], offset: int = 0) -> str:
    """A sum of texts with their factors and a number."""
    parts: list[str] = []
    for text, factor in terms.items():
        size = abs(factor)
        term = text if size == 1 else f"{text} * {size}"
        if parts:
            parts.append(f"{'-' if factor < 0 else '+'} {term}")
        else:
            parts.append(f"-{term}" if factor < 0 else term)
    return " ".join([*parts, f"+ {offset}"] if offset else parts)
