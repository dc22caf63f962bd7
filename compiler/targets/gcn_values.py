"""What AMD's instructions for integers do to the values of lanes (`lanes.py`).

Source: "CDNA 2 Instruction Set Architecture". A mask of lanes (`vcc`, `exec`, pairs of scalar registers) is a
truth value for each lane under the name of its first register. An instruction that is not here makes its
results unknown.
"""

from __future__ import annotations

import re
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

_NUMBER = re.compile(r"^-?(0x[0-9a-f]+|\d+)$")
_REGISTER = re.compile(r"^([vsa])(?:(\d+)|\[(\d+):\d+\])$")
_SUFFIX = re.compile(r"_(e32|e64)$")


def gcn_step(one: MachineInstruction) -> Step:
    """What an instruction does to the values of registers."""
    opcode = _SUFFIX.sub("", one.opcode)
    parts = _parts(one)
    meaning = _SPECIAL.get(opcode) or _comparison(opcode) or _PLAIN.get(opcode)
    return guarded(meaning(one, parts, [_operand(part) for part in parts]) if meaning else None, None, one)


def gcn_taken(one: MachineInstruction) -> Get:
    """Whether a branch is taken; a wave takes it as a whole."""
    test = _BRANCHES.get(one.opcode)
    if test is None:
        return lambda _values: 1
    flag, decide = test

    def get(values: Values) -> Value:
        found = decide(values.get(flag))
        return None if found is None else int(found)

    return get


def _none(value: Value) -> bool | None:
    found = any_lane(value)
    return None if found is None else not found


_BRANCHES: Mapping[str, tuple[str, Callable[[Value], bool | None]]] = {
    "s_cbranch_scc1": ("scc", any_lane),
    "s_cbranch_scc0": ("scc", _none),
    "s_cbranch_vccnz": ("vcc", any_lane),
    "s_cbranch_vccz": ("vcc", _none),
    "s_cbranch_execnz": ("exec", any_lane),
    "s_cbranch_execz": ("exec", _none),
}


def gcn_address(one: MachineInstruction) -> Get:
    """The place in the LDS that each lane reads or writes; of two places the first one."""
    parts = _parts(one)
    place = parts[0] if one.store else parts[1] if len(parts) > 1 else ""
    offset = re.search(r"\boffset:(\d+)", one.text)
    shift = int(offset[1]) if offset else 0
    get = _operand(place.split(" ")[0])
    return lambda values: lift(lambda address: address + shift & MASK, get(values))


def gcn_start(
    instructions: Sequence[MachineInstruction],
    group: Sequence[int],
    threads: Sequence[tuple[int, int, int]],
    *,
    packed: bool,
) -> Values:
    """Registers at the beginning of a kernel: the block's position behind the pointer to the arguments.

    Positions of threads are in the first vector registers; packed into one of them from gfx90a on, where a
    kernel that asks for more than x takes them apart.
    """
    first = _argument_register(instructions)
    places: Values = {f"s{first + 2 + axis}": place for axis, place in enumerate(group)}
    x, y, z = (tuple(one[axis] for one in threads) for axis in range(3))
    if not packed:
        return {**places, "v0": x, "v1": y, "v2": z, "exec": 1}
    apart = any(_APART.search(one.text) for one in instructions)
    return {**places, "v0": tuple(a | b << 10 | c << 20 for a, b, c in threads) if apart else x, "exec": 1}


_APART = re.compile(r"^v_and_b32\S* \w+, 0x3ff, v0$|^v_bfe_u32 \w+, v0, [12]?0, 10$")


def _argument_register(instructions: Sequence[MachineInstruction]) -> int:
    """The first of the registers that point to the arguments: what the first load of constants reads."""
    for one in instructions:
        if one.opcode.startswith("s_load") and (found := _REGISTER.match(_parts(one)[1])):
            return int(found[3] or 4)
    return 4


# ---------------------------------------------------------------- operands


def _parts(one: MachineInstruction) -> list[str]:
    rest = one.text.partition(" ")[2]
    return [part.strip() for part in rest.split(",")] if rest else []


def _name(part: str) -> str:
    found = _REGISTER.match(part)
    return f"{found[1]}{found[2] or found[3]}" if found else part


def _operand(part: str) -> Get:
    if _NUMBER.match(part):
        value = int(part, 0) & MASK
        return lambda _values: value
    name = _name(part)
    return lambda values: values.get(name)


_Meaning = Callable[[MachineInstruction, Sequence[str], Sequence[Get]], "Step | None"]


def _plain(function: Callable[..., int], count: int) -> _Meaning:
    """A result that is a function of the operands behind it."""

    def meaning(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
        # A carry stands behind the result, and is a mask.
        start = 2 if "_co_" in one.opcode else 1
        found = get[start : start + count]
        if len(found) < count or "sdwa" in one.opcode:
            return None
        target = _name(parts[0])
        return lambda values: {target: lift(function, *(each(values) for each in found))}

    return meaning


def _with_scc(function: Callable[..., int]) -> _Meaning:
    """A scalar result whose being zero decides the condition."""

    def meaning(_one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
        target = _name(parts[0])

        def step(values: Values) -> Values:
            made = lift(function, *(each(values) for each in get[1:]))
            return {target: made, "scc": lift(lambda value: int(value != 0), made)}

        return step

    return meaning


def _in_place(function: Callable[[int, int], int]) -> _Meaning:
    """A register with a constant."""

    def meaning(_one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
        return lambda values: {_name(parts[0]): lift(function, get[0](values), get[1](values))}

    return meaning


_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "lg": lambda a, b: a != b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_COMPARISON = re.compile(r"^(?:s_cmpk?|v_cmp)_(\w\w)_([ui])(?:16|32)$")


def _comparison(opcode: str) -> _Meaning | None:
    found = _COMPARISON.match(opcode)
    if found is None or found[1] not in _COMPARE:
        return None
    compare, convert = _COMPARE[found[1]], signed if found[2] == "i" else int
    scalar = opcode.startswith("s_")

    def meaning(_one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
        a, b = get[-2:]
        target = "scc" if scalar else _name(parts[0])

        def step(values: Values) -> Values:
            made = lift(lambda x, y: int(compare(convert(x), convert(y))), a(values), b(values))
            return {target: made if scalar else _and(made, values.get("exec"))}

        return step

    return meaning


def _and(a: Value, b: Value) -> Value:
    if any_lane(a) is False or any_lane(b) is False:
        return 0
    return lift(lambda x, y: int(bool(x and y)), a, b)


def _or(a: Value, b: Value) -> Value:
    if all_lanes(a) or all_lanes(b):
        return 1
    return lift(lambda x, y: int(bool(x or y)), a, b)


def _not(a: Value) -> Value:
    return lift(lambda x: 0 if x else 1, a)


_MASKS: Mapping[str, Callable[[Value, Value], Value]] = {
    "and": _and,
    "or": _or,
    "xor": lambda a, b: lift(lambda x, y: int(bool(x) != bool(y)), a, b),
    "andn2": lambda a, b: _and(a, _not(b)),
    "orn2": lambda a, b: _or(a, _not(b)),
}


def _masks(function: Callable[[Value, Value], Value]) -> _Meaning:
    def meaning(_one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
        target = _name(parts[0])

        def step(values: Values) -> Values:
            made = function(get[1](values), get[2](values))
            found = any_lane(made)
            return {target: made, "scc": None if found is None else int(found)}

        return step

    return meaning


def _save_exec(function: Callable[[Value, Value], Value]) -> _Meaning:
    def meaning(_one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
        target = _name(parts[0])

        def step(values: Values) -> Values:
            old = values.get("exec")
            made = function(get[1](values), old)
            found = any_lane(made)
            return {target: old, "exec": made, "scc": None if found is None else int(found)}

        return step

    return meaning


def _move_pair(one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    names = one.defines

    def step(values: Values) -> Values:
        made = get[1](values)
        rest = dict.fromkeys(names, made if _NUMBER.match(parts[1]) else None)
        return {**rest, _name(parts[0]): made}

    return step


def _select_mask(_one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    target = _name(parts[0])
    return lambda values: {
        target: lift(lambda p, a, b: a if p else b, values.get("scc"), get[1](values), get[2](values))
    }


def _select_lane(_one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    target, mask = _name(parts[0]), get[3] if len(get) > 3 else _operand("vcc")
    return lambda values: {
        target: lift(lambda p, a, b: b if p else a, mask(values), get[1](values), get[2](values))
    }


def _first_lane(_one: MachineInstruction, parts: Sequence[str], get: Sequence[Get]) -> Step | None:
    return lambda values: {_name(parts[0]): first(get[1](values))}


def _add(a: int, b: int) -> int:
    return a + b & MASK


def _high(convert: Callable[[int], int]) -> Callable[[int, int], int]:
    return lambda a, b: convert(a) * convert(b) >> 32 & MASK


def _u24(a: int, b: int) -> int:
    return (a & 0xFFFFFF) * (b & 0xFFFFFF) & MASK


_PLAIN: Mapping[str, _Meaning] = {
    "v_mov_b32": _plain(int, 1),
    "s_mov_b32": _plain(int, 1),
    "s_movk_i32": _plain(int, 1),
    "v_accvgpr_read_b32": _plain(int, 1),
    "v_accvgpr_write_b32": _plain(int, 1),
    "v_not_b32": _plain(lambda a: ~a & MASK, 1),
    "v_add_u32": _plain(_add, 2),
    "v_add_co_u32": _plain(_add, 2),
    "v_sub_u32": _plain(lambda a, b: a - b & MASK, 2),
    "v_sub_co_u32": _plain(lambda a, b: a - b & MASK, 2),
    "v_subrev_u32": _plain(lambda a, b: b - a & MASK, 2),
    "v_add3_u32": _plain(lambda a, b, c: a + b + c & MASK, 3),
    "v_add_u16": _plain(lambda a, b: a + b & 0xFFFF, 2),
    "v_sub_u16": _plain(lambda a, b: a - b & 0xFFFF, 2),
    "v_mul_lo_u16": _plain(lambda a, b: a * b & 0xFFFF, 2),
    "v_lshrrev_b16": _plain(lambda bits, a: (a & 0xFFFF) >> (bits & 15), 2),
    "v_lshlrev_b32": _plain(lambda bits, a: a << (bits & 31) & MASK, 2),
    "v_lshrrev_b32": _plain(lambda bits, a: a >> (bits & 31), 2),
    "v_ashrrev_i32": _plain(lambda bits, a: signed(a) >> (bits & 31) & MASK, 2),
    "v_and_b32": _plain(lambda a, b: a & b, 2),
    "v_or_b32": _plain(lambda a, b: a | b, 2),
    "v_xor_b32": _plain(lambda a, b: a ^ b, 2),
    "v_or3_b32": _plain(lambda a, b, c: a | b | c, 3),
    "v_and_or_b32": _plain(lambda a, b, c: a & b | c, 3),
    "v_lshl_add_u32": _plain(lambda a, bits, c: (a << (bits & 31)) + c & MASK, 3),
    "v_add_lshl_u32": _plain(lambda a, b, bits: a + b << (bits & 31) & MASK, 3),
    "v_lshl_or_b32": _plain(lambda a, bits, c: (a << (bits & 31) | c) & MASK, 3),
    "v_bfe_u32": _plain(lambda a, at, bits: a >> (at & 31) & (1 << (bits & 31)) - 1, 3),
    "v_mul_lo_u32": _plain(lambda a, b: a * b & MASK, 2),
    "v_mul_hi_u32": _plain(_high(int), 2),
    "v_mul_hi_i32": _plain(_high(signed), 2),
    "v_mul_u32_u24": _plain(_u24, 2),
    "v_mad_u32_u24": _plain(lambda a, b, c: _u24(a, b) + c & MASK, 3),
    "v_min_u32": _plain(min, 2),
    "v_max_u32": _plain(max, 2),
    "v_min_i32": _plain(lambda a, b: min(a, b, key=signed), 2),
    "v_max_i32": _plain(lambda a, b: max(a, b, key=signed), 2),
    "s_mul_i32": _plain(lambda a, b: a * b & MASK, 2),
    "s_mul_hi_u32": _plain(_high(int), 2),
    "s_mul_hi_i32": _plain(_high(signed), 2),
}
_SPECIAL: Mapping[str, _Meaning] = {
    "s_add_i32": _with_scc(_add),
    "s_addk_i32": _in_place(_add),
    "s_mulk_i32": _in_place(lambda a, b: a * b & MASK),
    "s_sub_i32": _with_scc(lambda a, b: a - b & MASK),
    "s_add_u32": _with_scc(_add),
    "s_sub_u32": _with_scc(lambda a, b: a - b & MASK),
    "s_lshl_b32": _with_scc(lambda a, bits: a << (bits & 31) & MASK),
    "s_lshr_b32": _with_scc(lambda a, bits: a >> (bits & 31)),
    "s_ashr_i32": _with_scc(lambda a, bits: signed(a) >> (bits & 31) & MASK),
    "s_and_b32": _with_scc(lambda a, b: a & b),
    "s_or_b32": _with_scc(lambda a, b: a | b),
    "s_xor_b32": _with_scc(lambda a, b: a ^ b),
    **{f"s_{name}_b64": _masks(function) for name, function in _MASKS.items()},
    **{f"s_{name}_saveexec_b64": _save_exec(function) for name, function in _MASKS.items()},
    "s_mov_b64": _move_pair,
    "s_cselect_b32": _select_mask,
    "s_cselect_b64": _select_mask,
    "v_cndmask_b32": _select_lane,
    "v_readfirstlane_b32": _first_lane,
}
