"""Reads the assembly of kernels: innermost loops, and vector registers spilled to the stack in them.

A loop is what lies between a label and a jump back to it; it is innermost when no other one lies inside.
For x86 in AT&T syntax, as g++ and clang++ write with `-S`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LABEL = re.compile(r"^([.\w$]+):")
_JUMP = re.compile(r"^\s+j\w+\s+([.\w$]+)")
_INSTRUCTION = re.compile(r"^\s+[^.\s]")
"""A directive begins with a dot; an operand such as `.LC1(%rip)` may, too."""
_FUNCTION = re.compile(r"^((?!\.)[\w$.]+):")
_MULTIPLY_ADD = re.compile(r"^\s+v?fn?m(add|sub)\w*[sp][sdh]\b|^\s+vdp\w+|^\s+tdp\w+")
_SPILL = re.compile(r"^\s+v?mov\w+\s+(?=.*\(%r[sb]p\))(?=.*%[xyz]mm\d)")
_STACK_OPERAND = re.compile(r"^\s+v\w+\s+.*-?\d*\(%r[sb]p\).*%[xyz]mm\d")


@dataclass(frozen=True, slots=True)
class Loop:
    """An innermost loop: its function, label, instructions, and those that touch the stack with a vector."""

    function: str
    label: str
    instructions: tuple[str, ...]

    @property
    def multiply_adds(self) -> int:
        """Fused multiply-add instructions in the loop."""
        return sum(1 for line in self.instructions if _MULTIPLY_ADD.match(line))

    @property
    def spills(self) -> tuple[str, ...]:
        """Instructions that move a vector register to or from the stack, or read it from there."""
        return tuple(
            line.strip() for line in self.instructions if _SPILL.match(line) or _STACK_OPERAND.match(line)
        )


def innermost_loops(text: str) -> Iterator[Loop]:
    """The innermost loops of an assembly file, in order."""
    lines = [line for line in text.splitlines() if line.strip()]
    labels: dict[str, int] = {}
    function = ""
    spans: list[tuple[int, int, str, str]] = []
    for number, line in enumerate(lines):
        if found := _LABEL.match(line):
            labels[found[1]] = number
            if _FUNCTION.match(line):
                function = found[1]
        elif (found := _JUMP.match(line)) and found[1] in labels:
            spans.append((labels[found[1]], number, function, found[1]))
    for begin, end, name, label in spans:
        if not any(begin <= b and e <= end and (b, e) != (begin, end) for b, e, _, _ in spans):
            body = tuple(item for item in lines[begin : end + 1] if _INSTRUCTION.match(item))
            yield Loop(name, label, body)


def spilling_loops(text: str, least: int = 4) -> list[Loop]:
    """Innermost loops that spill vectors and do at least `least` multiply-adds (convolutions, GEMM)."""
    return [loop for loop in innermost_loops(text) if loop.multiply_adds >= least and loop.spills]
