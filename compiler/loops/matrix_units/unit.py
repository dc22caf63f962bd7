"""What an instruction of a matrix unit is, and everything that follows from it.

A sub-group holds tiles of a product spread over the registers of its lanes. The record of an instruction
says where each element lies; its description and implementation as loops, its meaning for the interpreter
(`meaning.py`), its text in each language and its stand-in for the emulator are made from that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from compiler.core.types import F32, TF32, DType


@dataclass(frozen=True, slots=True)
class Mode:
    """A part of a row, column or step, and its stride in the numbers of lanes or registers (CuTe: a mode)."""

    extent: int
    lane: int = 0
    register: int = 0


Modes = tuple[Mode, ...]
"""A row, column or step as modes, the one with the highest value first."""


def size_of(modes: Modes) -> int:
    """How many values the modes count."""
    return math.prod(item.extent for item in modes)


def place_of(modes: Modes, lane: int, register: int) -> int:
    """The row, column or step of what a register of a lane holds."""
    total = 0
    for item in modes:
        own = lane // item.lane if item.lane else register // item.register
        total = total * item.extent + own % item.extent
    return total


@dataclass(frozen=True)
class Fragment:
    """A tile over the lanes. Lanes whose numbers differ in no mode hold the same elements."""

    rows: Modes
    columns: Modes

    @cached_property
    def registers(self) -> int:
        """Elements that each lane holds."""
        return math.prod(item.extent for item in (*self.rows, *self.columns) if item.register)

    def place(self, lane: int, register: int) -> tuple[int, int]:
        """Row and column of the element in a register of a lane."""
        return place_of(self.rows, lane, register), place_of(self.columns, lane, register)


@dataclass(frozen=True, slots=True)
class Text:
    """How a language asks for the instruction, and when its compiler knows it.

    call: the mnemonic of PTX, a builtin, or a function. where: condition of the preprocessor, if there is
    one.
    """

    language: str
    call: str
    where: str = ""


@dataclass(frozen=True)
class MatrixUnit:
    """One instruction: c += a @ b, by all lanes of a sub-group together.

    A target that has it names it in `TargetFacts.matrix_rates`. factor, total: element types of a and b,
    and of c. a, c: fragments of [row, step] and [row, column]; b: of [column, step]. pack: neighbouring steps
    that one operand of the instruction holds. precision: the `--precision` that has to be asked for it, where
    its products are not those of f32. made_of: instead of one instruction, those of another unit, one
    behind the other along the steps: each factor is taken as the sum of two of that unit's. opaque: which
    lane holds what is the device's matter; fragments are filled, loaded and stored as whole tiles.
    """

    name: str
    lanes: int
    factor: DType
    total: DType
    a: Fragment
    b: Fragment
    c: Fragment
    pack: int
    texts: tuple[Text, ...]
    precision: str = ""
    made_of: MatrixUnit | None = None
    opaque: bool = False

    @cached_property
    def converts(self) -> bool:
        """Whether lanes convert the factors that they read from shared memory."""
        return self.factor != self.staged or self.made_of is not None

    @cached_property
    def rows(self) -> int:
        return size_of(self.c.rows)

    @cached_property
    def columns(self) -> int:
        return size_of(self.c.columns)

    @cached_property
    def steps(self) -> int:
        return size_of(self.a.columns)

    def text(self, language: str) -> Text | None:
        """How a language says it; None where it cannot."""
        return next((item for item in self.texts if item.language == language), None)

    @property
    def staged(self) -> DType:
        """The type of factors in shared memory: f32 is rounded to tf32 once, where a lane reads it."""
        return F32 if self.factor == TF32 else self.factor

    # ------------------------------------------------------------ loops

    def row_loops(self) -> tuple[str, ...]:
        """Loops over the modes of a row, as the description names them."""
        return tuple(f"r{number}" for number in range(len(self.c.rows)))

    def column_loops(self) -> tuple[str, ...]:
        """Loops over the modes of a column."""
        return tuple(f"c{number}" for number in range(len(self.c.columns)))

    def lane_modes(self) -> tuple[Mode, ...]:
        """The modes of rows, then of columns, that lanes tell apart: the first dimensions of c."""
        return tuple(item for item in (*self.c.rows, *self.c.columns) if item.lane)

    def total_map(self, row: str, column: str) -> tuple[str, ...]:
        """Where the element (row, column) of a matrix of such tiles lies: tile, lanes, register."""
        modes = [
            *_modes_text(row, self.c.rows, self.rows),
            *_modes_text(column, self.c.columns, self.columns),
        ]
        lanes = [text for text, item in modes if item.lane]
        registers = [
            f"{text} * {item.register}" if item.register > 1 else text
            for text, item in modes
            if item.register
        ]
        return (f"{row} // {self.rows}", f"{column} // {self.columns}", *lanes, " + ".join(registers))

    def _signature(self) -> str:
        shape = ", ".join(str(item.extent) for item in self.lane_modes())
        return (
            f"func {self.name.replace('.', '_')}("
            f"c: {self.total}[{shape}, {self.c.registers}] @register, "
            f"a: {self.staged}[{self.rows}, {self.steps}] @shared, "
            f"b: {self.staged}[{self.columns}, {self.steps}] @shared) -> ()"
        )

    def description(self) -> str:
        """What it computes, as loops around one block."""
        axes = [*zip(self.row_loops(), self.c.rows, strict=True)]
        axes += zip(self.column_loops(), self.c.columns, strict=True)
        lines = [self._signature()]
        for depth, (name, item) in enumerate((*axes, ("k", Mode(self.steps)))):
            lines.append(f"{'  ' * (depth + 1)}for {name} in 0..{item.extent}")
        indent = "  " * (len(axes) + 2)
        iters = [f"v{name}: spatial {item.extent} = {name}" for name, item in axes]
        lanes = [f"v{name}" for name, item in axes if item.lane]
        registers = [f"v{name} * {item.register}" for name, item in axes if item.register]
        own = f"c[{', '.join(lanes)}, {' + '.join(registers)}]"
        row, column = (
            _number([f"v{n}" for n, _ in zip(names, modes, strict=True)], modes)
            for names, modes in ((self.row_loops(), self.c.rows), (self.column_loops(), self.c.columns))
        )
        left, right = f"a[{row}, vk]", f"b[{column}, vk]"
        lines += [
            f"{indent}block product({', '.join(iters)}, vk: reduce {self.steps} = k)",
            f"{indent}  reads {left}, {right}",
            f"{indent}  writes {own}",
            f"{indent}  {own} += {self._widened(left)} * {self._widened(right)}",
        ]
        return "\n".join(lines) + "\n"

    def _widened(self, text: str) -> str:
        text = self._rounded(text)
        return text if self.factor == self.total else f"{self.total}({text})"

    def _rounded(self, text: str) -> str:
        return text if self.staged == self.factor else f"{self.factor}({text})"

    def implementation(self) -> str:
        """The same by one call of the instruction, each lane with its own operands."""
        lanes = ", ".join(_of_lane(item, self.lanes) for item in self.lane_modes())
        own = f"c[{lanes}, ramp(0, 1, {self.c.registers})]"
        kind = self.total.with_lanes(self.c.registers)
        operands = [*self._operands("a", self.a), *self._operands("b", self.b)]
        return (
            f"{self._signature()}\n"
            f"  for lane in 0..{self.lanes} bound(threadIdx.x)\n"
            f"    {own} = {self.name}:{kind}({', '.join([own, *operands])})\n"
        )

    def _operands(self, name: str, fragment: Fragment) -> list[str]:
        found = []
        for register in range(0, fragment.registers, self.pack):
            row = _at(fragment.rows, register, self.lanes)
            step = _at(fragment.columns, register, self.lanes)
            steps = step if self.pack == 1 else f"ramp({step}, 1, {self.pack})"
            found.append(self._rounded(f"{name}[{row}, {steps}]"))
        return found

    def operands(self) -> tuple[int, int]:
        """How many operands hold a, and how many b."""
        return self.a.registers // self.pack, self.b.registers // self.pack


def _modes_text(name: str, modes: Modes, size: int) -> list[tuple[str, Mode]]:
    found, weight = [], size
    for item in modes:
        weight //= item.extent
        text = f"{name} // {weight} % {item.extent}" if weight > 1 else f"{name} % {item.extent}"
        found.append((text, item))
    return found


def _number(names: Sequence[str], modes: Modes) -> str:
    terms, weight = [], size_of(modes)
    for name, item in zip(names, modes, strict=True):
        weight //= item.extent
        terms.append(f"{name} * {weight}" if weight > 1 else name)
    return " + ".join(terms)


def _of_lane(item: Mode, lanes: int) -> str:
    """A mode from the number of the lane."""
    text = f"lane // {item.lane}" if item.lane > 1 else "lane"
    return text if item.lane * item.extent == lanes else f"{text} % {item.extent}"


def _at(modes: Modes, register: int, lanes: int) -> str:
    """A row or step in terms of `lane`, for one register."""
    terms, weight, constant = [], size_of(modes), 0
    for item in modes:
        weight //= item.extent
        if item.register:
            constant += register // item.register % item.extent * weight
        else:
            text = _of_lane(item, lanes)
            terms.append(f"{text} * {weight}" if weight > 1 else text)
    if constant or not terms:
        terms.append(str(constant))
    return " + ".join(terms)
