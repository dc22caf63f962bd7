"""NVIDIA's machine code: what an instruction of `nvdisasm`'s text is.

Names of instructions: CUDA Binary Utilities, "Instruction Set Reference". Which unit executes one: Jia et
al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking" (2018), and NVIDIA's Nsight Compute
documentation, "Pipelines".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler.targets.machine_code import Flow, MachineInstruction, Unit

_UNITS: Mapping[Unit, str] = {
    Unit.FMA: "FFMA FFMA32I FMUL FMUL32I FADD FADD32I HFMA2 HMUL2 HADD2",
    Unit.F64: "DFMA DADD DMUL DSETP",
    Unit.MULTIPLY: "IMAD IMUL IDP XMAD",
    Unit.SPECIAL: "MUFU I2F F2I F2F FRND POPC FLO BREV S2R",
    Unit.MATRIX: "HMMA IMMA DMMA BMMA QMMA",
    Unit.GLOBAL: "LDG STG LD ST RED ATOM ATOMG LDGSTS",
    Unit.SHARED: "LDS STS LDSM STSM ATOMS",
    Unit.LOCAL: "LDL STL",
    Unit.SHUFFLE: "SHFL",
    Unit.CONSTANT: "LDC",
    Unit.SCALAR: "R2UR S2UR",
    Unit.BRANCH: "BRA BRX JMP JMX EXIT BSSY BSYNC BREAK BMOV CALL RET WARPSYNC YIELD KILL BPT",
    Unit.BARRIER: "BAR MEMBAR ERRBAR SYNCS CGAERRBAR UCGABAR_ARV UCGABAR_WAIT CCTL",
    Unit.WAIT: "NOP DEPBAR LDGDEPBAR ARRIVES",
}
_UNIT = {name: unit for unit, names in _UNITS.items() for name in names.split()}
_UNIFORM = re.compile(r"U[A-Z]")
_LINE = re.compile(r"^(?:@(?P<guard>!?U?P[T\d]+)\s+)?(?P<opcode>\S+)\s*(?P<operands>.*)$")
_REGISTER = re.compile(r"\b(U?[RP])(\d+)(\.64)?\b")
_PREDICATE = re.compile(r"^!?U?P(\d|T)$")
_GOAL = re.compile(r"^[.$]\S+$")
_HALF = re.compile(r"^\s*(U?R)(\d+)")
_PRODUCTS = {
    "HMMA.16816.F32": "mma.m16n8k16.f16",
    "HMMA.16816.F16": "mma.m16n8k16.f16",
    "HMMA.16816.F32.BF16": "mma.m16n8k16.bf16",
    "HMMA.1688.F32": "mma.m16n8k8.f16",
    "HMMA.1688.F16": "mma.m16n8k8.f16",
    "HMMA.1688.F32.TF32": "mma.m16n8k8.tf32",
    "HMMA.884.F32.F32": "mma.m8n8k4.f16",
    "IMMA.16832.S8.S8": "mma.m16n8k32.i8",
    "IMMA.8816.S8.S8": "mma.m8n8k16.i8",
}
_STORES = frozenset({"STG", "ST", "RED", "STS", "STSM", "STL", "LDGSTS"})
_NO_RESULT = _STORES | {
    "BAR", "BSSY", "BSYNC", "MEMBAR", "ERRBAR", "DEPBAR", "LDGDEPBAR", "NOP",
}  # fmt: skip
_JUMPS = frozenset({"BRA", "JMP", "BRX", "JMX", "CALL"})
_BYTES = re.compile(r"\.(8|16|32|64|128|U8|S8|U16|S16)(?=\.|$)")
_ACCUMULATORS = 4


def read_sass(text: str) -> MachineInstruction:
    """What one line means."""
    found = _LINE.match(text)
    guard, opcode, operands = found.groups() if found else (None, text, "")
    base = opcode.partition(".")[0]
    unit = _unit(base, guard, operands)
    parts = [part.strip() for part in operands.split(",")] if operands else []
    defines, uses = _registers(base, opcode, parts) if guard != "!PT" else ((), ())
    if unit is Unit.LOCAL:
        defines, uses = _local(base, opcode, parts, defines, uses)
    goal = next((part for part in parts if _GOAL.match(part)), "")
    if guard and guard.strip("!") not in ("PT", "UPT"):
        uses = (*uses, guard.strip("!"))
    return MachineInstruction(
        text=text,
        opcode=opcode,
        unit=unit,
        flow=_flow(base, guard, goal),
        goal=goal if base in _JUMPS else "",
        defines=defines,
        uses=uses,
        lane_bytes=_lane_bytes(base, opcode) if unit in _MEMORY else 0,
        store=base in _STORES,
        operation=_PRODUCTS.get(opcode, ""),
        divides=base == "CALL" and ("_div_" in goal or "_rem_" in goal) and "64" in goal,
        queue="copy" if base == "LDGSTS" else "group" if base == "LDGDEPBAR" else "",
        joins="copy" if base == "LDGDEPBAR" else "",
        waits={"group": int(parts[1], 0)} if opcode == "DEPBAR.LE" and len(parts) > 1 else None,
        constant=_constant(base, parts),
    )


def _constant(base: str, parts: Sequence[str]) -> int | None:
    moves = base in ("MOV", "UMOV", "MOV32I") and len(parts) == 2
    return int(parts[1], 16) if moves and _NUMBER.match(parts[1]) else None


_MEMORY = frozenset({Unit.GLOBAL, Unit.SHARED, Unit.LOCAL})


def _unit(base: str, guard: str | None, operands: str) -> Unit:
    """That of what has an effect; a product with zero is how constants get into registers."""
    if guard == "!PT":
        return Unit.WAIT
    return Unit.ALU if base == "HFMA2" and "-RZ, RZ," in operands else _unit_of(base)


def _unit_of(base: str) -> Unit:
    if base in _UNIT:
        return _UNIT[base]
    return Unit.SCALAR if _UNIFORM.match(base) or base.startswith("VOTEU") else Unit.ALU


def _flow(base: str, guard: str | None, goal: str) -> Flow:
    """A call of a label within the function is a jump: nothing returns from there."""
    if base in ("EXIT", "RET", "KILL", "BPT"):
        return Flow.BRANCH if guard else Flow.END
    if base in _JUMPS and (base != "CALL" or goal.startswith(".L")):
        return Flow.BRANCH if guard else Flow.JUMP
    return Flow.NEXT


def _lane_bytes(base: str, opcode: str) -> int:
    if base in ("LDSM", "STSM"):
        matrices = opcode.rpartition(".")[2]
        return 4 * (int(matrices) if matrices.isdigit() else 1)
    found = _BYTES.search(opcode)
    return int(found[1].lstrip("US")) // 8 if found else 4


def _registers(base: str, opcode: str, parts: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What an instruction writes and reads: results stand first, predicates before or behind the register."""
    count = 0 if base in _NO_RESULT else _results(base, parts)
    defines = tuple(name for part in parts[:count] for name in _wide(part, _width(base, opcode)))
    uses = tuple(name for part in parts[count:] for name in _read(part))
    return defines, uses


_STACK = re.compile(r"^\[R1(?:\+(0x[0-9a-f]+))?\]$")


def _local(
    base: str, opcode: str, parts: Sequence[str], defines: tuple[str, ...], uses: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """With the words of a thread's own memory, where those have fixed places: registers are spilled there."""
    words = max(1, _lane_bytes(base, opcode) // 4)
    place = next((found for part in parts if (found := _STACK.match(part))), None)
    if place is None:
        return defines, uses
    at = int(place[1] or "0", 0)
    names = tuple(f"M{at + 4 * word}" for word in range(words))
    return (names, _wide(parts[-1], words)) if base == "STL" else (defines, names)


def _results(base: str, parts: Sequence[str]) -> int:
    if _unit_of(base) is Unit.BRANCH or not parts:
        return 0
    if base.startswith("VOTE"):
        return 1
    if _PREDICATE.match(parts[0]):
        return min(2, len(parts))
    more = 1
    while more < len(parts) - 1 and _PREDICATE.match(parts[more]) and not parts[more].startswith("!"):
        more += 1
    return more if base in _CARRIES else 1


_CARRIES = frozenset({"IADD3", "UIADD3", "LEA", "ULEA", "IMAD", "UIMAD", "SHFL", "LOP3", "ULOP3", "VIADD"})


def _width(base: str, opcode: str) -> int:
    if base in ("HMMA", "IMMA"):
        return _ACCUMULATORS
    if base == "LDSM":
        return _lane_bytes(base, opcode) // 4
    if "WIDE" in opcode or base == "DFMA" or (base == "CS2R" and not opcode.endswith("32")):
        return 2
    return max(1, _lane_bytes(base, opcode) // 4) if base.startswith(("LD", "ULD", "ATOM")) else 1


def _wide(part: str, width: int) -> tuple[str, ...]:
    found = _HALF.match(part)
    if found is None:
        return (part,) if _PREDICATE.match(part) and part[-1].isdigit() else ()
    return tuple(f"{found[1]}{int(found[2]) + number}" for number in range(width))


def _read(part: str) -> tuple[str, ...]:
    names = []
    for kind, number, wide in _REGISTER.findall(part):
        names.append(f"{kind}{number}")
        if wide:
            names.append(f"{kind}{int(number) + 1}")
    return tuple(names)


# ---------------------------------------------------------------- divisions

_HIGH = re.compile(r"^U?IMAD\.HI\b")
_WIDE = re.compile(r"^U?IMAD\.WIDE\b")
_SHIFTS = re.compile(r"^U?SHF\.R\b")
_NUMBER = re.compile(r"^-?0x[0-9a-f]+$")
_LEAST_MAGIC = 1 << 24
_SIGN_BITS = 31
"""Shifted so far, a product leaves its sign: the upper half of an offset."""
_RECIPROCAL = re.compile(r"^I2F\b.*\.RP\b")


def mark_sass(
    instructions: Sequence[MachineInstruction], known: Mapping[str, int]
) -> Sequence[MachineInstruction]:
    """Marks divisions: by a constant a multiplication whose high half is taken, else one by the reciprocal.

    A division by a divisor that is not known takes two such multiplications behind a reciprocal; it counts
    once.
    """
    made: list[MachineInstruction] = []
    products: dict[str, tuple[int, tuple[int, ...]]] = {}
    reciprocals = 0
    for one in instructions:
        reciprocals += bool(_RECIPROCAL.match(one.opcode))
        divides = one.divides
        if _HIGH.match(one.opcode):
            divides, reciprocals = reciprocals == 0, max(0, reciprocals - 1)
        elif _WIDE.match(one.opcode):
            divides = any(abs(number) >= _LEAST_MAGIC for number in _numbers(one, known))
        elif _SHIFTS.match(one.opcode) and (product := _shifted(one, products, known)) is not None:
            made[product] = replace(made[product], divides=True)
        for name in one.defines:
            products.pop(name, None)
        if one.unit in (Unit.MULTIPLY, Unit.SCALAR) and "MAD" in one.opcode and one.defines:
            products |= dict.fromkeys(one.defines[:1], (len(made), tuple(_numbers(one, known))))
        made.append(replace(one, divides=divides))
    return made


def _numbers(one: MachineInstruction, known: Mapping[str, int]) -> list[int]:
    parts = (part.strip() for part in one.text.partition(one.opcode)[2].split(","))
    found = [int(part, 16) for part in parts if _NUMBER.match(part)]
    return found + [known[name] for name in one.uses if name in known]


def _shifted(
    one: MachineInstruction, products: Mapping[str, tuple[int, tuple[int, ...]]], known: Mapping[str, int]
) -> int | None:
    """The number of the multiplication whose product is shifted so that it is a quotient."""
    for name in one.uses:
        place, factors = products.get(name, (0, ()))
        shifts = [bits for bits in _numbers(one, known) if bits < _SIGN_BITS]
        if any(is_magic(factor, bits) for factor in factors for bits in shifts):
            return place
    return None


def is_magic(factor: int, bits: int) -> bool:
    """Whether `x * factor >> bits` is `x / d` for an integer d that is no power of two.

    Granlund and Montgomery, "Division by Invariant Integers using Multiplication".
    """
    if factor < 3 or bits < 8 or factor >= 1 << bits:
        return False
    divisor = round((1 << bits) / factor)
    return divisor >= 3 and divisor & (divisor - 1) != 0 and factor == (1 << bits) // divisor + 1
