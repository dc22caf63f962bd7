"""Places in memory that move with a loop: strength reduction of what is derived from its variable.

    for (int i0 = 0, m0 = 5; i0 < 8; m0 = m0 == 5 ? 0 : m0 + 1, ++i0) {
      float * p1 = p0 + (uint32_t)(m0 * 1152);                           part m0 of 6, which take turns

Digits of the loop's number are carried along, as a remainder of division by six is five instructions or more;
powers of two are masks and stay as they are. Pointers are one number behind one from outside of the loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from compiler.loops.ir import Binary, Const, For, Var
from compiler.loops.linear import divisor, is_division, is_masked
from compiler.loops.simplify import Simplifier
from compiler.render.cstyle import FunctionPrinter, KernelPrinter
from compiler.render.expressions import sum_text

_COUNTS = re.compile(r"(?:[im]\d+|\d+|[ ()+*/%])*$")
"""Sums, products and quotients of loops' variables and numbers: none of them is negative."""


@dataclass(frozen=True, slots=True)
class Digit:
    """(variable + first) // times % size, or the whole quotient where size is 0."""

    var: str
    first: int
    times: int
    size: int

    @property
    def is_cheap(self) -> bool:
        """Whether it takes shifts and masks only."""
        return is_masked(self.times) and is_masked(self.size)

    @property
    def begin(self) -> int:
        """Its value where the variable is 0."""
        whole = self.first // self.times
        return whole % self.size if self.size else whole


def digit_of(expr: Binary, known: Simplifier) -> Digit | None:
    """What a floordiv or floormod says of one variable that is not negative; None of anything else."""
    if not isinstance(expr.b, Const):
        return None
    total, size = known.linear(expr.a), divisor(expr)
    if list(total.terms.values()) != [1] or total.constant < 0 or size < 1:
        return None
    (atom,) = total.terms
    if isinstance(atom, Var):
        times, size = (size, 0) if expr.op == "floordiv" else (1, size)
        return Digit(atom.name, total.constant, times, size)
    inner = digit_of(atom, known) if expr.op == "floormod" and is_division(atom, "floordiv") else None
    return inner and replace(inner, first=inner.first + total.constant * inner.times, size=size)


@dataclass(slots=True)
class LoopDigits:
    """The digits that one loop carries: `var` is its variable as text, `fresh` makes names.

    higher, lowest: what is done between two iterations; the former look at the latter.
    """

    var: str
    fresh: Callable[[], str]
    names: dict[Digit, str] = field(default_factory=dict)
    higher: list[str] = field(default_factory=list)
    lowest: list[str] = field(default_factory=list)

    def name(self, digit: Digit) -> str:
        """The variable that holds a digit."""
        if digit not in self.names:
            turn = self._turns(digit)
            name = self.names[digit] = self.fresh()
            following = f"{name} == {digit.size - 1} ? 0 : {name} + 1" if digit.size else f"{name} + 1"
            step = f"{name} = {turn} ? ({following}) : {name}" if turn else f"{name} = {following}"
            (self.higher if turn else self.lowest).append(step)
        return self.names[digit]

    def _turns(self, digit: Digit) -> str:
        """Whether a digit is another one in the next iteration; empty where it always is."""
        if digit.times == 1:
            return ""
        low = Digit(digit.var, digit.first % digit.times, 1, digit.times)
        text = f"({self.var} + {low.first}) % {low.size}" if low.is_cheap else self.name(low)
        return f"{text} == {low.size - 1}"

    @property
    def begins(self) -> str:
        """What stands behind the loop's variable where it begins."""
        return "".join(f", {name} = {digit.begin}" for digit, name in self.names.items())

    @property
    def steps(self) -> str:
        """What stands in front of its next value."""
        return "".join(f"{step}, " for step in (*self.higher, *self.lowest))


class IndexPrinter(FunctionPrinter):
    """Prints a function with such loops, but for processors, whose compilers make vectors of them."""

    def __init__(self, kernel: KernelPrinter, *, carries: bool) -> None:
        super().__init__(kernel, in_body=True)
        self._carries = carries
        self._digits: dict[str, LoopDigits] = {}

    def loop_head(self, item: For, var: str, extent: str) -> str:
        """The head of a loop, once its body is written."""
        own = self._digits.pop(item.var.name)
        begins, steps = f"{self.words.index} {var} = 0{own.begins}", f"{own.steps}++{var}"
        return f"for ({begins}; {var} < {extent}; {steps}) "

    def enter_loop(self, item: For, var: str) -> None:
        """A loop begins: its variable has its name."""
        self._digits[item.var.name] = LoopDigits(var, lambda: self.writer.fresh_beside("m", var))

    def based(self, base: str, terms: dict[str, int], kind: str) -> str:
        """The pointer to so many elements behind a base: loops add what is their own to one from outside.

        As one number without a sign, where that is known: else each part becomes 64 bits wide by itself. Not
        where indices are of 64 bits.
        """
        depths = {text: self.writer.depth(text) for text in terms} if self._carries else {}
        own = {text: terms[text] for text, depth in depths.items() if depth > min(depths.values())}
        if not own:
            return super().based(base, terms, kind)
        outer = super().based(base, {text: n for text, n in terms.items() if text not in own}, kind)
        offset = sum_text(own)
        if _COUNTS.match(offset) and self.words.index == "int":
            offset = f"({self.words.memory['u32']})({offset})"
        return self.writer.pointer(outer, offset, kind)

    def divided(self, expr: Binary) -> str:
        """A division; a name where a loop carries it."""
        digit = digit_of(expr, self.sim) if self._carries else None
        if digit is None or digit.is_cheap or digit.var not in self._digits:
            return super().divided(expr)
        return self._digits[digit.var].name(digit)
