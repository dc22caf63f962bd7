"""The process that runs candidates: one after the other, each checked before it is timed.

A line of JSON says which candidate is begun, the next one what became of it; a signal ends the process in
between. Outputs lie between guard zones and are poisoned; both inputs have to give what the default schedule
gives.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import Func
from compiler.loops.queries import extent_of, static_shape
from compiler.loops.text import parse_func
from compiler.runtime.loader import BoundRun, Model
from compiler.runtime.tensors import Array
from compiler.schedule.layout_changes import layouts_of
from compiler.verify.compare import compare
from compiler.verify.interpreted import pack_inputs, unpack_outputs
from compiler.verify.tolerance import tolerance_for

_GUARD_BYTES = 4096
_POISON = 0xFF
_SETS = 2
_MOST_COPIES = 12
_CALM_SECONDS, _WATCHED_SECONDS, _BUSY_SHARE = 0.005, 0.03, 0.1
"""How long the runtime's threads may go on waiting awake, for how long they are watched then, and the share of
that time on a processor which makes a candidate `busy`."""
_TURNS = 5


class Guarded:
    """An array with zones around it that nobody may write to."""

    def __init__(self, shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
        size = int(np.prod(shape)) * kind.itemsize
        self._raw = np.full(size + 2 * _GUARD_BYTES + 64, _POISON, np.uint8)
        begin = _GUARD_BYTES + -(self._raw.ctypes.data + _GUARD_BYTES) % 64
        self._begin, self._end = begin, begin + size
        self.array: Array = self._raw[begin : begin + size].view(kind).reshape(shape)

    @property
    def is_whole(self) -> bool:
        """Whether the zones are as they were made."""
        return bool((self._raw[: self._begin] == _POISON).all() and (self._raw[self._end :] == _POISON).all())


@dataclass(slots=True)
class Loaded:
    """A candidate, and its buffers: several sets of the same content."""

    func: Func
    model: Model
    inputs: list[dict[str, Guarded]]
    outputs: list[dict[str, Guarded]]
    bound: list[BoundRun]

    @classmethod
    def of(
        cls, one: Mapping[str, Any], feeds: Sequence[Mapping[str, Array]], copies: int, threads: int | None
    ) -> Loaded:
        func = parse_func(one["scheduled"])
        model = Model(Path(one["library"]), threads=threads)
        inputs: list[dict[str, Guarded]] = []
        outputs: list[dict[str, Guarded]] = []
        for number in range(max(copies, len(feeds))):
            packed = pack_inputs(func, feeds[number % len(feeds)])
            inputs.append({name: _guarded(array, func, name) for name, array in packed.items()})
            outputs.append(
                {
                    item.name: Guarded(static_shape(item), np.dtype(STORAGE[item.dtype.name]))
                    for item in map(func.buffer, (r.name for r in func.results))
                }
            )
        bound = [
            model.context().bind(
                {name: item.array for name, item in given.items()},
                out={name: item.array for name, item in made.items()},
            )
            for given, made in zip(inputs, outputs, strict=True)
        ]
        return cls(func, model, inputs, outputs, bound)

    def results(self, number: int) -> dict[str, Array]:
        """Run with one set of buffers; results in their shapes, layouts undone."""
        self.bound[number].run()
        made = {name: item.array.reshape(-1).copy() for name, item in self.outputs[number].items()}
        return unpack_outputs(self.func, made)

    def damaged(self) -> str:
        """Which buffer was written around."""
        for sets in (self.inputs, self.outputs):
            for one in sets:
                for name, item in one.items():
                    if not item.is_whole:
                        return name
        return ""


def _guarded(array: Array, func: Func, name: str) -> Guarded:
    made = Guarded(array.shape, np.dtype(STORAGE[func.buffer(name).dtype.name]))
    made.array[...] = array
    return made


def main() -> int:
    """Measure the candidates of one request."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.load(sys.stdin)

    def tell(**said: object) -> None:
        os.write(answers.fileno(), (json.dumps(said) + "\n").encode())

    limits = request["limits"]
    default_func = parse_func(request["default"]["scheduled"])
    feeds = [feed_of(default_func, request["seed"] + number) for number in range(_SETS)]
    size = sum(array.nbytes for array in feeds[0].values())
    copies = max(_SETS, min(_MOST_COPIES, -(-request["working_set"] // max(size, 1))))
    default = Loaded.of(request["default"], feeds, copies, request["threads"])
    expected = [default.results(number) for number in range(_SETS)]
    length = max(64, sum_length(default_func))
    for one in request["candidates"]:
        tell(begin=one["number"])
        signal.setitimer(signal.ITIMER_REAL, limits["seconds"])
        outcome = _outcome(one, default, feeds, copies, expected, length, request)
        tell(number=one["number"], **outcome)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if outcome["status"] == "busy":
            break  # what it left would disturb the next ones
    return 0


def _outcome(
    one: Mapping[str, Any],
    default: Loaded,
    feeds: Sequence[Mapping[str, Array]],
    copies: int,
    expected: Sequence[Mapping[str, Array]],
    length: int,
    request: Mapping[str, Any],
) -> dict[str, Any]:
    """What became of a candidate."""
    candidate = Loaded.of(one, feeds, copies, request["threads"])
    for number in range(_SETS):
        wrong = _differs(candidate.results(number), expected[number], length)
        if wrong:
            return {"status": "wrong", "message": wrong}
    if name := candidate.damaged():
        return {"status": "wrong", "message": f"memory around `{name}` was written to"}
    if _keeps_busy():
        return {"status": "busy", "message": "it left work behind"}
    seconds, pace = _timed(candidate, default, request["limits"]["timed"])
    if name := candidate.damaged():
        return {"status": "wrong", "message": f"memory around `{name}` was written to"}
    return {"status": "ok", "message": "", "seconds": seconds, "pace": pace}


def _differs(actual: Mapping[str, Array], expected: Mapping[str, Array], length: int) -> str:
    for name, wanted in expected.items():
        found = compare(name, actual[name], wanted, tolerance_for(wanted.dtype, length))
        if not found.passed:
            return found.problem or f"`{name}` differs by {found.needed:.2g} of its scale at {found.where}"
    return ""


def _keeps_busy() -> bool:
    """Whether this process works although nobody asks it to; the runtime's threads wait awake at first."""
    time.sleep(_CALM_SECONDS)
    before = time.process_time()
    time.sleep(_WATCHED_SECONDS)
    return time.process_time() - before > _BUSY_SHARE * _WATCHED_SECONDS


def _timed(candidate: Loaded, default: Loaded, seconds: float) -> tuple[list[float], float]:
    """Medians of turns of a candidate, and of the default schedule's turns between them."""
    mine: list[float] = []
    others: list[float] = []
    sets, other_sets = cycle(candidate.bound), cycle(default.bound)
    _turn(sets, seconds / 10)
    for _ in range(_TURNS):
        others.append(_turn(other_sets, seconds / _TURNS / 4))
        mine.append(_turn(sets, seconds / _TURNS))
    return mine, statistics.median(others)


def _turn(sets: Iterator[BoundRun], seconds: float) -> float:
    """Median seconds of a run, each on the next set of buffers."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 2 or time.perf_counter() < end:
        bound = next(sets)
        started = time.perf_counter()
        bound.run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def feed_of(func: Func, seed: int) -> dict[str, Array]:
    """Arrays for the inputs of a function, in their shapes before any layout; whole numbers are 0 or 1."""
    source = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for item in func.inputs:
        changes = layouts_of(func, item.name)
        shape = changes[0].shape if changes else static_shape(func.buffer(item.name))
        kind = np.dtype(STORAGE[item.dtype.name])
        if kind.kind == "f":
            feeds[item.name] = source.standard_normal(shape).astype(kind)
        else:
            feeds[item.name] = source.integers(0, 2, shape).astype(kind)
    return feeds


def sum_length(func: Func) -> int:
    """The lengths of all sums of a function together."""
    total = 0
    for block in func.blocks():
        length = 1
        for item in block.iters:
            if item.kind == "reduce":
                length *= extent_of(item.extent)
        total += length if block.is_reduction else 0
    return total


if __name__ == "__main__":
    sys.exit(main())
