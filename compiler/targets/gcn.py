"""AMD's machine code (GCN, CDNA, RDNA): what an instruction of `llvm-objdump`'s text is.

AMD: "Vega", "CDNA 1", "CDNA 2" and "CDNA 3 Instruction Set Architecture", reference guides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler.targets.machine_code import Flow, MachineInstruction, Unit
from compiler.targets.sass import is_magic

_KINDS: tuple[tuple[re.Pattern[str], Unit], ...] = tuple(
    (re.compile(pattern), unit)
    for pattern, unit in (
        (r"v_s?mfma|v_wmma", Unit.MATRIX),
        (r"(global|flat|s_buffer_atomic)_|buffer_load\w+ .* offen", Unit.GLOBAL),
        (r"ds_b?permute|ds_swizzle|v_permlane|v_readlane", Unit.SHUFFLE),
        (r"ds_", Unit.SHARED),
        (r"buffer_(wb|inv|gl)", Unit.BARRIER),
        (r"scratch_|buffer_", Unit.LOCAL),
        (r"s_(load|buffer_load)", Unit.CONSTANT),
        (r"s_(c?branch|endpgm|setpc|swappc|call)", Unit.BRANCH),
        (r"s_barrier", Unit.BARRIER),
        (r"s_(waitcnt|nop|sleep|inst_prefetch|delay_alu|clause)", Unit.WAIT),
        (r"s_", Unit.SCALAR),
        (r"v_(rcp|rsq|sqrt|exp|log|sin|cos)_", Unit.SPECIAL),
        (r"v_(?!cmp|cvt)\w*_f64|v_div_\w+_f64", Unit.F64),
        (r"v_(mul_lo_u32|mul_hi_[ui]32|mad_[ui]64_[ui]32)", Unit.MULTIPLY),
        (r"v_(pk_)?(dot\d\w*|dual_fmac|(fma|fmac|fmaak|fmamk|mac|mad|mul|add|sub|subrev)(_legacy)?)_(mix\w*_)?(f32|f16)",
         Unit.FMA),
    )
)  # fmt: skip
_PRODUCT = re.compile(r"v_mfma_\w+?_(\d+)x(\d+)x(\d+)_?(f32|f16|bf16|i8)")
_WIDTHS = {"byte": 1, "ubyte": 1, "sbyte": 1, "short": 2, "ushort": 2, "sshort": 2, "b8": 1, "u8": 1,
           "b16": 2, "u16": 2, "dword": 4, "b32": 4, "u32": 4, "dwordx2": 8, "b64": 8, "dwordx3": 12,
           "b96": 12, "dwordx4": 16, "b128": 16}  # fmt: skip
_REGISTER = re.compile(r"\b([vsa])(?:(\d+)|\[(\d+):(\d+)\])|\b(vcc|exec|scc|m0)\b")
_LAST_GOAL = re.compile(r"(\.L\S+)$")
_COUNTED = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_TWICE = re.compile(r"ds_(read|write)2|ds_(load|store)_2addr")
_STORE = re.compile(r"(global|flat|buffer|scratch)_store|ds_write|ds_store")
_WRITES_SCC = re.compile(r"s_(cmp|bitcmp|add|addc|sub|subb|and|or|xor|andn2|orn2|lshl|lshr|ashr|bfe|min|max)")
_READS_SCC = re.compile(r"s_(cbranch_scc|cselect|addc|subb)")
_SAVES_EXEC = re.compile(r"s_\w+_saveexec")


def read_gcn(text: str) -> MachineInstruction:
    """What one line means."""
    opcode, _, rest = text.partition(" ")
    unit = next((unit for pattern, unit in _KINDS if pattern.match(text)), Unit.ALU)
    product = _PRODUCT.match(opcode)
    defines, uses = _registers(opcode, unit, rest)
    goal = _LAST_GOAL.search(rest) if unit is Unit.BRANCH else None
    return MachineInstruction(
        text=text,
        opcode=opcode,
        unit=unit,
        flow=_flow(opcode),
        goal=goal[1] if goal else "",
        defines=defines,
        uses=uses,
        lane_bytes=_lane_bytes(opcode) if unit in (Unit.GLOBAL, Unit.SHARED, Unit.LOCAL) else 0,
        places=2 if _TWICE.match(opcode) else 1,
        store=bool(_STORE.match(opcode)),
        operation="mfma.m{}n{}k{}.{}".format(*product.groups()) if product else "",
        queue=_QUEUES.get(unit, ""),
        waits={_COUNTERS[name]: int(number) for name, number in _COUNTED.findall(rest)}
        if opcode == "s_waitcnt"
        else None,
        constant=_constant(opcode, rest),
    )


def _constant(opcode: str, rest: str) -> int | None:
    last = rest.rpartition(",")[2].strip()
    moves = opcode in ("s_mov_b32", "s_movk_i32", "v_mov_b32_e32")
    return int(last, 0) if moves and _NUMBER.match(last) else None


_QUEUES = {
    Unit.GLOBAL: "vm",
    Unit.LOCAL: "vm",
    Unit.SHARED: "lgkm",
    Unit.CONSTANT: "lgkm",
    Unit.SHUFFLE: "lgkm",
}
_COUNTERS = {"vmcnt": "vm", "lgkmcnt": "lgkm"}


def _flow(opcode: str) -> Flow:
    if opcode in ("s_endpgm", "s_setpc_b64"):
        return Flow.END
    if opcode == "s_branch":
        return Flow.JUMP
    return Flow.BRANCH if opcode.startswith("s_cbranch") else Flow.NEXT


def _lane_bytes(opcode: str) -> int:
    width = next((_WIDTHS[part] for part in reversed(opcode.split("_")) if part in _WIDTHS), 4)
    return 2 * width if _TWICE.match(opcode) else width


def _registers(opcode: str, unit: Unit, rest: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What an instruction writes and reads: the result stands first, a carry behind it."""
    parts = [part.strip() for part in rest.split(",")]
    count = 0 if _STORE.match(opcode) or unit in (Unit.BRANCH, Unit.WAIT, Unit.BARRIER) else 1
    if opcode.startswith(("s_cmp", "s_bitcmp")):
        count = 0
    if re.match(r"v_(add|sub|subrev|addc|subb|subbrev)_co_|v_mad_[ui]64|v_div_scale", opcode):
        count = 2
    defines = [name for part in parts[:count] for name in _names(part)]
    uses = [name for part in parts[count:] for name in _names(part)]
    if _WRITES_SCC.match(opcode) or _SAVES_EXEC.match(opcode):
        defines.append("scc")
    if _SAVES_EXEC.match(opcode):
        defines.append("exec")
        uses.append("exec")
    if _READS_SCC.match(opcode):
        uses.append("scc")
    uses += [flag for flag in ("vcc", "exec") if f"s_cbranch_{flag}" in opcode]
    if re.match(r"v_fmac|v_mac|s_(add|mul)k_", opcode):
        uses += defines
    return tuple(defines), tuple(uses)


def _names(part: str) -> list[str]:
    names: list[str] = []
    for kind, one, first, last, special in _REGISTER.findall(part):
        if special or one:
            names.append(special or f"{kind}{one}")
        else:
            names += [f"{kind}{number}" for number in range(int(first), int(last) + 1)]
    return names


# ---------------------------------------------------------------- divisions

_HIGH = re.compile(r"[vs]_mul_hi_[ui]32")
_LOW = re.compile(r"[vs]_mul_(lo_u32|i32)|v_mul_lo_u32")
_SMALL = re.compile(r"(v_mul_(lo_u16|u32_u24|i32_i24|hi_u32_u24)|s_mul_i32|v_mul_lo_u32)")
_SHIFT = re.compile(r"(v_lshrrev_b(16|32)|s_lshr_b32|v_ashrrev_i32)")
_NUMBER = re.compile(r"^-?(?:0x[0-9a-f]+|\d+)$")


def mark_gcn(
    instructions: Sequence[MachineInstruction], known: Mapping[str, int]
) -> Sequence[MachineInstruction]:
    """Marks divisions: multiplications whose high half is taken (unless the low half is, too), or shifted.

    A division by a divisor that is not known takes two such multiplications behind a reciprocal; it counts
    once.
    """
    whole = {one.uses for one in instructions if _LOW.match(one.opcode)}
    made: list[MachineInstruction] = []
    products: dict[str, tuple[int, tuple[int, ...]]] = {}
    reciprocals = 0
    for one in instructions:
        reciprocals += one.opcode.startswith("v_rcp_iflag")
        divides = False
        if _HIGH.match(one.opcode) and "_u24" not in one.opcode:
            divides = reciprocals == 0 and one.uses not in whole
            reciprocals = max(0, reciprocals - 1)
        elif _SHIFT.match(one.opcode):
            for name in one.uses:
                place, factors = products.get(name, (0, ()))
                if any(is_magic(factor, bits) for factor in factors for bits in _numbers(one, known)):
                    made[place] = replace(made[place], divides=True)
        for name in one.defines:
            products.pop(name, None)
        if _SMALL.match(one.opcode) and one.defines:
            products |= dict.fromkeys(one.defines[:1], (len(made), tuple(_numbers(one, known))))
        made.append(replace(one, divides=divides))
    return made


def _numbers(one: MachineInstruction, known: Mapping[str, int]) -> list[int]:
    parts = (part.strip().split(" ")[0] for part in one.text.partition(" ")[2].split(","))
    found = [int(part, 0) for part in parts if _NUMBER.match(part)]
    return found + [known[name] for name in one.uses if name in known]
