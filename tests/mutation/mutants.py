"""Mutants of rendered kernels: where a text can be broken in the ways that GPU code is broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

_BARRIER = re.compile(r"^\s*(__syncthreads\(\)|TK_SUBGROUP_BARRIER\(\));$")
_FACTOR = re.compile(r"\bi\d+\)* \* (\d+)(?![\d.])")
_BOUND = re.compile(r"<=? (\d+)(?![\d.])")
_ELEMENT = re.compile(r"\bp\d+\[(-?\d+)\]")
_THREAD = re.compile(r"const int (i\d+) = \(int\)threadIdx")
_POINTER = re.compile(r"^\s*(?!const)\w+ \* p\d+ = ")
_SHARED = re.compile(r"__shared__ \w+ s\d+\[(\d+)\]")

Change = tuple[int, int, str]
"""Characters of a line from, up to, and what takes their place."""


@dataclass(frozen=True)
class Mutant:
    """A changed module: the kind of change, the line (from 1) as it was and as it is, the whole text."""

    kind: str
    line: int
    before: str
    after: str
    text: str


def _barriers(line: str, _threads: list[str]) -> Iterator[Change]:
    if found := _BARRIER.match(line):
        yield (*found.span(1), "")


def _strides(line: str, _threads: list[str]) -> Iterator[Change]:
    for found in _FACTOR.finditer(line):
        for step in (-1, 1):
            yield (*found.span(1), str(int(found[1]) + step))


def _one_off(line: str, _threads: list[str]) -> Iterator[Change]:
    for pattern in (_BOUND, _ELEMENT):
        for found in pattern.finditer(line):
            for step in (-1, 1):
                yield (*found.span(1), str(int(found[1]) + step))


def _races(line: str, threads: list[str]) -> Iterator[Change]:
    """A thread's position is missing from the place that it writes to."""
    if not _POINTER.match(line):
        return
    for name in threads:
        for found in re.finditer(rf"\b{name}\b", line):
            yield (*found.span(), "0")


def _overflows(line: str, _threads: list[str]) -> Iterator[Change]:
    if found := _SHARED.search(line):
        size = int(found[1])
        for smaller in {size - 1, size // 2, size - size // 8}:
            if 0 < smaller < size:
                yield (*found.span(1), str(smaller))


KINDS: dict[str, Callable[[str, list[str]], Iterator[Change]]] = {
    "missing barrier": _barriers,
    "wrong stride": _strides,
    "off by one": _one_off,
    "race": _races,
    "overflowing shared array": _overflows,
}


def draw(text: str, kind: str, rng: np.random.Generator) -> Mutant | None:
    """One change of a kind at a place of the kernels that `rng` draws; None where there is no such place."""
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines) if line.startswith("// tk_k"))
    sites: list[tuple[int, Change]] = []
    threads: list[str] = []
    for number in range(first, len(lines)):
        line = lines[number]
        if line.startswith('extern "C"'):
            threads = []
        threads += _THREAD.findall(line)
        sites += [(number, change) for change in KINDS[kind](line, threads)]
    if not sites:
        return None
    number, (start, end, new) = sites[int(rng.integers(len(sites)))]
    before = lines[number]
    after = before[:start] + new + before[end:]
    lines[number] = after
    return Mutant(kind, number + 1, before.strip(), after.strip(), "\n".join(lines))
