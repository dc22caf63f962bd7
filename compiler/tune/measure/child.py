"""The process that runs candidates: one after the other, each checked before it is timed.

A line of JSON says which candidate is begun, the next one what became of it; a signal ends the process in
between. Outputs lie between guard zones and are poisoned; on each of two inputs a candidate has to give what
the reference gives.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from compiler.core.diagnostics import TkError
from compiler.loops.interp import interpret
from compiler.loops.text import parse_func
from compiler.runtime.tensors import Array
from compiler.tune.measure.buffers import SETS, Loaded, feeds_of
from compiler.tune.measure.timed import settled, timed
from compiler.tune.measure.watch import MemoryWatch, adopt_orphans, left_behind
from compiler.tune.record import OK
from compiler.verify.compare import compare
from compiler.verify.tolerance import tolerance_for

Tell = Callable[..., None]
_LOST = ("device_not_available", "device_lost", "device lost", "fallen off the bus", "requires a reset")
"""What drivers say of a device that cannot go on, in small letters."""
_OWN = os.getpid()


def main() -> int:
    """Carry out one request: `measure` candidates, `settle` their order, or make the `reference`."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    adopt_orphans()

    def tell(**said: object) -> None:
        os.write(answers.fileno(), (json.dumps(said) + "\n").encode())

    {"measure": _measure, "settle": _settle, "reference": _reference}[request["do"]](request, tell)
    return 0


def _reference(request: Mapping[str, Any], tell: Tell) -> None:
    """Write what a function computes of its inputs, by the interpreter or a library, to a file."""
    func = parse_func(request["func"])
    feeds = feeds_of(func, request["seed"])
    if request["by"] is None:
        results = [interpret(func, feed) for feed in feeds]
    else:
        loaded = Loaded.of(request["by"], feeds, threads=request["threads"])
        results = [loaded.results(number) for number in range(SETS)]
    np.savez(Path(request["results"]), *(_plain(array) for one in results for array in one.values()))
    tell(done=True)


def _plain(array: Array) -> Array:
    """As bytes: numpy's files do not know every type."""
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


class _Form:
    """One form of the work: inputs for it, and the right results."""

    def __init__(self, one: Mapping[str, Any], seed: int) -> None:
        self.func = parse_func(one["func"])
        self.feeds = feeds_of(self.func, seed)
        self.tolerance_length = int(one["length"])
        with np.load(one["results"]) as stored:
            arrays = [stored[name] for name in stored.files]
        names = [item.name for item in self.func.results]
        places = [(number, name) for number in range(SETS) for name in names]
        self._right = dict(zip(places, arrays, strict=True))

    def wrong(self, number: int, results: Mapping[str, Array]) -> str:
        """What differs from the right results on one of the inputs; empty where nothing does."""
        for name, array in results.items():
            wanted = self._right[number, name].view(array.dtype).reshape(array.shape)
            found = compare(name, array, wanted, tolerance_for(wanted.dtype, self.tolerance_length))
            if not found.passed:
                return (
                    found.problem or f"`{name}` differs by {found.needed:.2g} of its scale at {found.where}"
                )
        return ""


def _measure(request: Mapping[str, Any], tell: Tell) -> None:
    forms = [_Form(one, request["seed"]) for one in request["forms"]]
    default = _loaded(request["default"], forms, request)
    for one in request["candidates"]:
        tell(begin=one["number"])

        def too_much(held: int, number: int = one["number"]) -> None:
            tell(number=number, status="memory", message=f"{held:,} bytes are held")
            os._exit(1)

        outcome = _outcome(one, default, forms, request, too_much)
        tell(number=one["number"], **outcome)
        if outcome["status"] != OK:
            break  # what it left in memory or on the processors would be the next one's fault


def _outcome(
    one: Mapping[str, Any],
    default: Loaded,
    forms: Sequence[_Form],
    request: Mapping[str, Any],
    too_much: Callable[[int], object],
) -> dict[str, Any]:
    """What became of a candidate."""
    limits = request["limits"]
    try:
        candidate = _loaded(one, forms, request)
        signal.setitimer(signal.ITIMER_REAL, limits["seconds"])
        with MemoryWatch(limits["memory"], too_much):
            wrong = _wrong(candidate, forms[one["form"]])
        if os.getpid() != _OWN:
            os._exit(1)  # a copy that the candidate made of this process
        if left := left_behind():
            return {"status": "busy", "message": left}
        if wrong:
            return {"status": "wrong", "message": wrong}
        seconds, others = timed(candidate, default, limits["timed"])
    except TkError as error:
        said = f"{error.what}\n{error.why}"
        lost = any(word in said.lower() for word in _LOST)
        return {"status": "device-lost" if lost else "crash", "message": said.strip().splitlines()[0]}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if damage := candidate.damage():
        return {"status": "wrong", "message": damage}
    return {"status": OK, "message": "", "seconds": seconds, "others": others}


def _wrong(candidate: Loaded, form: _Form) -> str:
    for number in range(SETS):
        if wrong := form.wrong(number, candidate.results(number)):
            return wrong
    return candidate.damage()


def _settle(request: Mapping[str, Any], tell: Tell) -> None:
    forms = [_Form(one, request["seed"]) for one in request["forms"]]
    loaded = [_loaded(one, forms, request) for one in request["candidates"]]
    table = settled(loaded, request["time"])
    tell(differences=[[asdict(one) for one in row] for row in table])


def _loaded(one: Mapping[str, Any], forms: Sequence[_Form], request: Mapping[str, Any]) -> Loaded:
    feeds = forms[one["form"]].feeds
    return Loaded.of(one, feeds, threads=request["threads"], working_set=request["working_set"])


if __name__ == "__main__":
    sys.exit(main())
