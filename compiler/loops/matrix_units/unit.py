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
from compiler.loops.matrix_units.modes import (
    Mode,
    Modes,
    digit_of_lane,
    digits_of,
    number_text,
    place_of,
    size_of,
)


@dataclass(frozen=True)
class Fragment:
    """A tile over the lanes. Lanes whose numbers differ in no mode hold the same elements."""

    rows: Modes
    columns: Modes

    @cached_property
    def registers(self) -> int:
        """Elements that each lane holds."""
        return math.prod(item.extent for item in (*self.rows, *self.columns) if item.register)

    @cached_property
    def lane_modes(self) -> Modes:
        """The modes of rows, then of columns, that lanes tell apart: the first dimensions of its buffer."""
        return tuple(item for item in (*self.rows, *self.columns) if item.lane)

    def place(self, lane: int, register: int) -> tuple[int, int]:
        """Row and column of the element in a register of a lane."""
        return place_of(self.rows, lane, register), place_of(self.columns, lane, register)

    def held_at(self, rows: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
        """Where the element with these digits lies: lanes, register."""
        digits = list(zip((*rows, *columns), (*self.rows, *self.columns), strict=True))
        registers = [
            f"({text}) * {item.register}" if item.register > 1 else text
            for text, item in digits
            if item.register
        ]
        return (*(text for text, item in digits if item.lane), " + ".join(registers) or "0")

    def tiles_at(self, row: str, column: str) -> tuple[str, ...]:
        """Where the element (row, column) of a matrix of such tiles lies: tile, lanes, register."""
        tile = f"{row} // {size_of(self.rows)}", f"{column} // {size_of(self.columns)}"
        return (*tile, *self.held_at(digits_of(row, self.rows), digits_of(column, self.columns)))


@dataclass(frozen=True, slots=True)
class Text:
    """How a language asks for the instruction, and when its compiler knows it.

    call: the mnemonic of PTX, a builtin, or a function. where: condition of the preprocessor, if there is
    one.
    """

    language: str
    call: str
    where: str = ""


_LDMATRIX = 750
"""The first `__CUDA_ARCH__` that has it."""


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

    @cached_property
    def reads_columns(self) -> bool:
        """Whether lanes can read factors whose rows, not steps, lie side by side: eight of 16 bits at a time.

        PTX ISA: ldmatrix with .trans, from sm_75 on.
        """
        text = self.text("cuda")
        since = text is not None and int(text.where.rpartition(" ")[2]) >= _LDMATRIX
        eight = (Mode(8, lane=4), Mode(4, lane=1), Mode(2, register=1))
        ends = (((*item.rows[-1:], *item.columns[-2:]) == eight) for item in (self.a, self.b))
        return since and self.made_of is None and self.staged.bits == 16 and all(ends)

    # ------------------------------------------------------------ loops

    def row_loops(self) -> tuple[str, ...]:
        """Loops over the modes of a row, as the description names them."""
        return tuple(f"r{number}" for number in range(len(self.c.rows)))

    def column_loops(self) -> tuple[str, ...]:
        """Loops over the modes of a column."""
        return tuple(f"c{number}" for number in range(len(self.c.columns)))

    def _signature(self) -> str:
        shape = ", ".join(str(item.extent) for item in self.c.lane_modes)
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
            number_text([f"v{name}" for name in names], modes)
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
        lanes = ", ".join(digit_of_lane(item, self.lanes) for item in self.c.lane_modes)
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


def _at(modes: Modes, register: int, lanes: int) -> str:
    """A row or step in terms of `lane`, for one register."""
    terms, weight, constant = [], size_of(modes), 0
    for item in modes:
        weight //= item.extent
        if item.register:
            constant += register // item.register % item.extent * weight
        else:
            text = digit_of_lane(item, lanes)
            terms.append(f"{text} * {weight}" if weight > 1 else text)
    if constant or not terms:
        terms.append(str(constant))
    return " + ".join(terms)
