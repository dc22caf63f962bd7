"""What NVIDIA's instructions for integers do to the values of lanes (`lanes.py`).

NVIDIA documents their names alone (CUDA Binary Utilities); tests compile C and compare what comes of it. An
instruction that is not here makes its results unknown.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence

from compiler.targets.lanes import (
    MASK,
    Get,
    Step,
    Value,
    Values,
    all_lanes,
    any_lane,
    first,
    guarded,
    lift,
    signed,
)
from compiler.targets.machine_code import MachineInstruction

_LINE = re.compile(r"^(?:@(?P<guard>!?U?P[T\d]+)\s+)?(?P<opcode>\S+)\s*(?P<operands>.*)$")
_NAME = re.compile(r"^(?P<sign>[-~!]?)(?P<name>U?[RP]\d+)(?:\.reuse)?$")
_ZERO = re.compile(r"^[-~!]?(?P<kind>U?RZ|SRZ|U?PT)(?:\.reuse)?$")
_NUMBER = re.compile(r"^-?(0x[0-9a-f]+|\d+)$")
_ADDRESS = re.compile(r"^\[(?P<parts>[^\]]*)\]$")

_Meaning = Callable[[MachineInstruction, Sequence[str], Sequence[Get]], "Step | None"]


def sass_step(one: MachineInstruction) -> Step:
    """What an instruction does to the values of registers."""
    found = _LINE.match(one.text)
    guard, operands = (found["guard"], found["operands"]) if found else (None, "")
    parts = [part.strip() for part in operands.split(",")] if operands else []
    base = one.opcode.partition(".")[0]
    base = base[1:] if base[:1] == "U" and base[1:] in _MEANINGS else base
    meaning = _MEANINGS.get(base)
    step = meaning(one, parts, [_operand(part) for part in parts]) if meaning else None
    return guarded(step, _operand(guard) if guard else None, one)


def sass_predicate(one: MachineInstruction) -> Get:
    """Whether lanes take a branch, or leave."""
    found = _LINE.match(one.text)
    guard = found["guard"] if found else None
    return _operand(guard) if guard else _constant(1)


def sass_address(one: MachineInstruction) -> Get:
    """The place in memory that each lane reads or writes: a register and a number."""
    inside = re.search(r"\[([^\]]*)\](?!.*\[)", one.text)
    parts = [part for part in inside[1].split("+") if part] if inside else []
    getters = [_operand(re.sub(r"\.X\d+$", "", part)) for part in parts]
    factors = [int(found[1]) if (found := re.search(r"\.X(\d+)$", part)) else 1 for part in parts]

    def total(*numbers: int) -> int:
        return sum(number * factor for number, factor in zip(numbers, factors, strict=True)) & MASK

    return (lambda values: lift(total, *(get(values) for get in getters))) if getters else _constant(None)


# ---------------------------------------------------------------- operands


def _constant(value: Value) -> Get:
    return lambda _values: value


def _operand(text: str) -> Get:
    if zero := _ZERO.match(text):
        negated = text[0] == "!" or (text[0] == "~")
        return _constant((0 if negated else 1) if "P" in zero["kind"] else MASK if text[0] == "~" else 0)
    if _NUMBER.match(text):
        return _constant(int(text, 0) & MASK)
    name = _NAME.match(text)
    if name is None:
        return _constant(None)
    register, sign = name["name"], name["sign"]
    if not sign:
        return lambda values: values.get(register)
    change = _SIGNS["!" if "P" in register else sign]
    return lambda values: lift(change, values.get(register))


_SIGNS: Mapping[str, Callable[[int], int]] = {
    "-": lambda value: -value & MASK,
    "~": lambda value: ~value & MASK,
    "!": lambda value: 0 if value else 1,
}


def _sets(target: str, function: Callable[..., int], getters: Sequence[Get]) -> Step:
    return lambda values: {target: lift(function, *(get(values) for get in getters))}


def _of(function: Callable[..., int], *places: int, target: int = 0) -> _Meaning:
    """An instruction whose result is a function of some operands."""

    def meaning(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
        if max(places) >= len(parts) or parts[target] not in one.defines:
            return None
        return _sets(parts[target], function, [get[place] for place in places])

    return meaning


# ---------------------------------------------------------------- meanings


def _imad(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    if not one.defines or len(parts) < 4:
        return None
    target = parts[0]
    if ".WIDE" in one.opcode or ".HI" in one.opcode:
        return _imad_wide(one, parts, get)
    if ".X" in one.opcode or len(one.defines) > 1:
        return None
    return _sets(target, lambda a, b, c: (a * b + c) & MASK, get[1:4])


def _imad_wide(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    if ".X" in one.opcode:
        return None
    high = _operand(_next(parts[3]))
    unsigned = ".U32" in one.opcode
    wide = ".WIDE" in one.opcode

    def product(a: int, b: int, low: int, top: int) -> int:
        factors = (a, b) if unsigned else (signed(a), signed(b))
        return factors[0] * factors[1] + (top << 32) + low & (1 << 64) - 1

    def step(values: Values) -> Values:
        whole = lift(product, get[1](values), get[2](values), get[3](values), high(values))
        top = lift(lambda value: value >> 32, whole)
        return (
            {parts[0]: lift(lambda value: value & MASK, whole), _next(parts[0]): top}
            if wide
            else {parts[0]: top}
        )

    return step


def _next(register: str) -> str:
    """The upper half of a pair."""
    found = re.match(r"^([-~]?U?R)(\d+)", register)
    return f"{found[1]}{int(found[2]) + 1}" if found else register


def _iadd3(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    if ".X" in one.opcode or len(parts) < 4:
        return None
    places = [place for place in range(1, len(parts)) if not re.match(r"^!?U?P", parts[place])]
    return _sets(parts[0], lambda *numbers: sum(numbers) & MASK, [get[place] for place in places])


def _lea(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    places = [place for place in range(1, len(parts)) if not re.match(r"^!?U?P", parts[place])]
    if ".X" in one.opcode or parts[0] not in one.defines:
        return None
    found = [get[place] for place in places]
    if ".SX32" in one.opcode:
        return _sets(parts[0], lambda a, b, bits: b + (signed(a) >> 32 - bits) & MASK, found[:3])
    if ".HI" in one.opcode:
        return _sets(parts[0], lambda a, b, c, bits: b + ((c << 32 | a) >> 32 - bits) & MASK, found[:4])
    return _sets(parts[0], lambda a, b, bits: b + (a << bits) & MASK, found[:3])


def _shf(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    if len(parts) < 4 or not one.defines:
        return None
    opcode = one.opcode.removeprefix("U")
    if opcode in ("SHF.R.S32.HI", "SHF.R.U32.HI"):
        convert = signed if "S32" in opcode else int
        return _sets(parts[0], lambda a, bits: convert(a) >> bits & MASK, [get[3], get[2]])
    if opcode in ("SHF.L.U32", "SHF.L.W.U32"):
        return _sets(parts[0], lambda a, bits: a << bits & MASK, [get[1], get[2]])
    return None


def _lop3(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    predicates = len(parts) == 7
    start = 2 if predicates else 1
    table = int(parts[start + 3], 0)
    bits = [(number >> 2 & 1, number >> 1 & 1, number & 1) for number in range(8) if table >> number & 1]

    def logic(a: int, b: int, c: int) -> int:
        made = 0
        for x, y, z in bits:
            made |= (a if x else ~a) & (b if y else ~b) & (c if z else ~c)
        return made & MASK

    def step(values: Values) -> Values:
        made = lift(logic, *(get[place](values) for place in range(start, start + 3)))
        holds = lift(lambda value: int(value != 0), made)
        return {name: holds if "P" in name else made for name in one.defines}

    return step


_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b, "LT": lambda a, b: a < b, "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b, "GE": lambda a, b: a >= b,
}  # fmt: skip
_JOIN: Mapping[str, Callable[[int, int], int]] = {
    "AND": lambda a, b: int(bool(a and b)), "OR": lambda a, b: int(bool(a or b)),
    "XOR": lambda a, b: int(bool(a) != bool(b)),
}  # fmt: skip


def _isetp(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    words = one.opcode.split(".")
    if "EX" in words or len(parts) < 5 or words[1] not in _COMPARE:
        return None
    compare, join = _COMPARE[words[1]], _JOIN[words[-1]]
    convert = int if "U32" in words else signed

    def step(values: Values) -> Values:
        a, b, other = (get[place](values) for place in (2, 3, 4))
        made = lift(lambda x, y: int(compare(convert(x), convert(y))), a, b)
        senses = zip(parts[:2], (made, lift(lambda x: 1 - x, made)), strict=True)
        return {name: _joined(sense, other, words[-1], join) for name, sense in senses if name in one.defines}

    return step


def _joined(made: Value, other: Value, word: str, join: Callable[[int, int], int]) -> Value:
    """Of two predicates, one of which may decide where the other one is not known."""
    for value in (made, other):
        if (word == "AND" and any_lane(value) is False) or (word == "OR" and all_lanes(value)):
            return first(value)
    return lift(join, made, other)


def _plop3(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    if len(parts) < 6:
        return None
    table = int(parts[5], 0)

    def function(a: int, b: int, c: int) -> int:
        return table >> (bool(a) << 2 | bool(b) << 1 | bool(c)) & 1

    return _sets(parts[0], function, get[2:5]) if parts[0] in one.defines else None


def _prmt(a: int, selector: int, b: int) -> int:
    made = 0
    for place in range(4):
        choice = selector >> 4 * place & 15
        byte = (b << 32 | a) >> 8 * (choice & 7) & 255
        if choice & 8:
            byte = 255 if byte >> 7 else 0
        made |= byte << 8 * place
    return made


def _halves(_one: MachineInstruction, parts: Sequence[str], _get: Sequence[Get]) -> Step | None:
    """A constant as two halves: how a number gets into a register through the port for floating point."""
    if len(parts) != 5 or not all(part.strip("-") == "RZ" for part in parts[1:3]):
        return None
    try:
        top, low = (struct.unpack("<H", struct.pack("<e", float(part)))[0] for part in parts[3:])
    except (ValueError, OverflowError):
        return None
    return _sets(parts[0], lambda: top << 16 | low, [])


def _minimum(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    convert = int if ".U32" in one.opcode else signed

    def function(a: int, b: int, least: int) -> int:
        return (min if least else max)(a, b, key=convert)

    return _sets(parts[0], function, get[1:4]) if len(parts) >= 4 else None


def _special(one: MachineInstruction, parts: Sequence[str], _get: Sequence[Get]) -> Step | None:
    name = parts[1] if len(parts) > 1 else ""
    return _sets(parts[0], int, [lambda values: values.get(name)]) if one.defines else None


def _zero(one: MachineInstruction, parts: Sequence[str], _get: Sequence[Get]) -> Step | None:
    if parts[1:] != ["SRZ"]:
        return None

    return lambda _values: dict.fromkeys(one.defines, 0)


def _vote(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    decide = all_lanes if ".ALL" in one.opcode else any_lane

    def step(values: Values) -> Values:
        found = decide(get[1](values))
        return {parts[0]: None if found is None else int(found)}

    return step if len(parts) > 1 and parts[0] in one.defines else None


def _uniform(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    def step(values: Values) -> Values:
        return {parts[0]: first(get[1](values))}

    return step if one.defines and parts[0] in one.defines else None


def _spilled(one: MachineInstruction, parts: Sequence[str], _get: Sequence[Get]) -> Step | None:
    """To or from a thread's own memory, word by word."""
    if parts[-1] == "RZ":
        return lambda _values: dict.fromkeys(one.defines, 0)
    if len(one.defines) > len(one.uses):
        return None
    pairs = tuple(zip(one.defines, one.uses, strict=False))
    return lambda values: {target: values.get(source) for target, source in pairs}


_MEANINGS: Mapping[str, _Meaning] = {
    "MOV": _of(int, 1),
    "MOV32I": _of(int, 1),
    "IMAD": _imad,
    "IADD3": _iadd3,
    "IADD": _of(lambda a, b: a + b & MASK, 1, 2),
    "VIADD": _of(lambda a, b: a + b & MASK, 1, 2),
    "LEA": _lea,
    "SHF": _shf,
    "LOP3": _lop3,
    "ISETP": _isetp,
    "PLOP3": _plop3,
    "SEL": _of(lambda a, b, p: a if p else b, 1, 2, 3),
    "PRMT": _of(_prmt, 1, 2, 3),
    "IABS": _of(lambda a: abs(signed(a)), 1),
    "IMNMX": _minimum,
    "VIMNMX": _minimum,
    "HFMA2": _halves,
    "S2R": _special,
    "S2UR": _special,
    "CS2R": _zero,
    "VOTE": _vote,
    "VOTEU": _vote,
    "R2UR": _uniform,
    "LDL": _spilled,
    "STL": _spilled,
}
