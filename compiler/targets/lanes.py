"""Integer values of a sub-group's lanes, as far as they are known before anything runs.

A value is a number that all lanes share, a tuple of one for each lane, or None where it is not known: what
depends on memory, on arguments or on floating point. Numbers are of 32 bits and unsigned; predicates are
truth values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler.targets.machine_code import MachineInstruction

Value = int | tuple[int, ...] | None
Values = dict[str, Value]
Get = Callable[[Values], Value]
Step = Callable[[Values], Values]
"""The values of registers that an instruction changes."""

MASK = 0xFFFFFFFF


def signed(value: int) -> int:
    """The number that 32 bits stand for in two's complement."""
    value &= MASK
    return value - (1 << 32) if value >> 31 else value


def lift(function: Callable[..., int], *values: Value) -> Value:
    """A function of numbers, lane by lane; None where one of them is not known."""
    if None in values:
        return None
    lanes = next((len(value) for value in values if isinstance(value, tuple)), 0)
    if not lanes:
        return function(*values)
    columns: list[Any] = [value if isinstance(value, tuple) else (value,) * lanes for value in values]
    made = tuple(map(function, *columns))
    return made[0] if made.count(made[0]) == lanes else made


def all_lanes(value: Value) -> bool | None:
    """Whether a predicate holds for all lanes."""
    return None if value is None else all(value) if isinstance(value, tuple) else bool(value)


def any_lane(value: Value) -> bool | None:
    """Whether a predicate holds for a lane."""
    return None if value is None else any(value) if isinstance(value, tuple) else bool(value)


def first(value: Value) -> Value:
    """That of the first lane."""
    return value[0] if isinstance(value, tuple) else value


def guarded(step: Step | None, guard: Get | None, one: MachineInstruction) -> Step:
    """An instruction of those lanes for which `guard` holds; without `step` its results are unknown."""
    unknown = dict.fromkeys(one.defines)
    if step is None:
        return lambda _values: unknown
    if guard is None:
        return step if len(unknown) < 2 else lambda values: {**unknown, **step(values)}

    def made(values: Values) -> Values:
        holds = guard(values)
        if any_lane(holds) is False:
            return {}
        after = {**unknown, **step(values)}
        if all_lanes(holds):
            return after
        return {
            name: lift(lambda p, a, b: a if p else b, holds, value, values.get(name))
            for name, value in after.items()
        }

    return made


def wavefronts(addresses: Value, lane_bytes: int, *, merges: bool) -> int | None:
    """Passes through shared memory that a request of all lanes takes; None where addresses are not known.

    Each of 32 banks of 4 bytes gives one word a pass, to any number of lanes. Wider accesses go in as many
    groups of lanes as their words fill the banks; where the hardware `merges`, in fewer if their words allow.
    """
    if not isinstance(addresses, tuple):
        return None if addresses is None else 1
    words = max(1, lane_bytes // 4)
    group = max(1, _BANKS // words)
    parts = (addresses[start : start + group] for start in range(0, len(addresses), group))
    passes = sum(_passes(part, words) for part in parts)
    return min(passes, _passes(addresses, words)) if merges else passes


_BANKS = 32


def _passes(addresses: tuple[int, ...], words: int) -> int:
    touched: dict[int, set[int]] = {}
    for address in set(addresses):
        for word in range(address // 4, address // 4 + words):
            touched.setdefault(word % _BANKS, set()).add(word)
    return max(len(one) for one in touched.values())
