"""Helpers of CUDA and HIP for instructions of matrix units, made from their records.

    tk_f32x4 tk_mma_m16n8k16_f16(tk_f32x4 c, tk_u16x2 a0, ..., tk_u16x2 b1)

Each is the instruction where the compiler has it, and the emulator's product of what the lanes hold where the
emulator runs it. Anywhere else it stops the kernel: no schedule uses what an architecture lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from compiler.core.diagnostics import InternalError
from compiler.core.types import TF32, DType
from compiler.loops.matrix_units import UNITS, MatrixUnit, Modes, Text, wmma
from compiler.loops.matrix_units.tile_calls import CALLS
from compiler.render.vocabulary import Vocabulary, memory_type

_NATIVE = {"f16": "_Float16", "bf16": "short", "f32": "float", "i32": "int"}
"""Elements of the vectors that builtins of AMD's compilers take."""


def matrix_helpers(language: str, words: Vocabulary) -> Mapping[str, str]:
    """By the name of its call, the helper of every unit that a language can ask for."""
    found = {
        name: _helper(unit, text, words)
        for name, unit in UNITS.items()
        if (text := unit.text(language)) is not None
    }
    return MappingProxyType(found)


def wmma_helpers(header: str, words: Vocabulary) -> Mapping[str, str]:
    """By the name of each call, the header with all of them, behind the record that the emulator reads."""
    unit = wmma.PRODUCT
    total = words.type_of(unit.total.with_lanes(unit.c.registers))
    record = _record(unit, words.math(unit.name), total, words)
    text = f"#if defined(TK_EMULATOR)\n{record}\n#endif\n{header}"
    return MappingProxyType(dict.fromkeys(CALLS, text))


_JOINT_ELEMENTS = {"f16": "sycl::half", "bf16": "sycl::ext::oneapi::bfloat16", "f32": "float"}


def check_tile(lane_map: str, language: str) -> None:
    """Raise InternalError where an opaque fragment is of a unit that a language has no text for."""
    found = wmma.unit_of(lane_map)
    if found is not None and found[0].text(language) is None:
        raise InternalError(f"{language} has no {found[0].name}", where=lane_map)


def joint_matrix_type(lane_map: str) -> tuple[str, int]:
    """The type of a tile in SYCL, from the name of its lane map, and how many elements of it a lane holds."""
    found = wmma.unit_of(lane_map)
    if found is None:
        raise InternalError("joint_matrix has no such tiles", where=lane_map)
    unit, part = found
    rows, columns = wmma.tile_shape(unit, "b" if part == "bt" else part)
    element = unit.total if part == "c" else unit.factor
    kind = f"tk_wmma_{part}<{_JOINT_ELEMENTS[element.name]}, {rows}, {columns}>"
    return kind, wmma.fragment_of(unit, part).registers


def _helper(unit: MatrixUnit, text: Text, words: Vocabulary) -> str:
    name = words.math(unit.name)
    total = words.type_of(unit.total.with_lanes(unit.c.registers))
    kind = memory_type(unit.factor).with_lanes(unit.pack)
    operand = words.vector(kind) if unit.pack > 1 else words.memory[unit.factor.name]
    counts = unit.operands()
    a, b = ([f"{side}{n}" for n in range(count)] for side, count in zip("ab", counts, strict=True))
    params = ", ".join([f"{total} c", *(f"{operand} {item}" for item in (*a, *b))])
    builtin = text.call.startswith("__builtin")
    do = _builtin(unit, text, total) if builtin else _products(unit, text, total, a, b)
    stop = "__builtin_trap();" if builtin else 'asm volatile("trap;");'
    return f"""\
#if defined(TK_EMULATOR)
{_record(unit, name, total, words)}
TK_INLINE {total} {name}({params}, int line = __builtin_LINE()) {{
{_emulated(unit, total, f"{name}_record", operand, a, b)}
    return c;
}}
#else
TK_INLINE {total} {name}({params}) {{
#if {text.where}
{do}
#else
    {stop}
    return c;
#endif
}}
#endif
"""


def _parts(unit: MatrixUnit, a: list[str], b: list[str]) -> list[tuple[list[str], list[str]]]:
    """The operands of each instruction: three products for factors in two parts, the smallest first."""
    if unit.made_of is None:
        return [(a, b)]
    low, high = (
        [[f"tk_{unit.made_of.factor}_{part}({item})" for item in side] for side in (a, b)]
        for part in ("low", "high")
    )
    counts = unit.made_of.operands()
    steps = range(len(a) // counts[0])
    return [
        (left[n * counts[0] : (n + 1) * counts[0]], right[n * counts[1] : (n + 1) * counts[1]])
        for left, right in ((low[0], high[1]), (high[0], low[1]), (high[0], high[1]))
        for n in steps
    ]


def _summed(unit: MatrixUnit, total: str, instructions: Iterable[str]) -> str:
    """Instructions that add to `sum`, which is `c`; of factors in parts, what threads add to it.

    Tensor cores cut off what they add, always towards zero: over a long sum that is more than what three
    products of tf32 leave (Ootomo and Yokota, 2022). On an H100 ResNet-50 was off by 9e-5 of its scale.
    """
    if unit.made_of is None:
        return "\n".join((f"    {total} &sum = c;", *instructions))
    added = [f"    c.at[{n}] += sum.at[{n}];" for n in range(unit.c.registers)]
    return "\n".join((f"    {total} sum = {{}};", *instructions, *added))


def _emulated(unit: MatrixUnit, total: str, record: str, operand: str, a: list[str], b: list[str]) -> str:
    """The same by the emulator, one instruction after the other."""
    kind = f"{record}::element" if unit.made_of else operand
    instructions = (
        f"    {{\n        const {kind} a[] = {{{', '.join(left)}}}, b[] = {{{', '.join(right)}}};\n"
        f"        sum = tk_emu_matrix<{record}>(sum, a, b, line);\n    }}"
        for left, right in _parts(unit, a, b)
    )
    return _summed(unit, total, instructions)


def _products(unit: MatrixUnit, text: Text, total: str, a: list[str], b: list[str]) -> str:
    instructions = (_asm(unit, text, left, right) for left, right in _parts(unit, a, b))
    return f"{_summed(unit, total, instructions)}\n    return c;"


def _asm(unit: MatrixUnit, text: Text, a: list[str], b: list[str]) -> str:
    """Not volatile: the result follows from the operands alone, so that loads around it may be shared."""
    count = unit.c.registers
    numbers = iter(range(count + len(a) + len(b)))
    c, left, right = (
        "{" + ", ".join(f"%{next(numbers)}" for _ in range(size)) + "}" for size in (count, len(a), len(b))
    )
    kind = "f" if unit.total.is_float else "r"
    outputs = ", ".join(f'"+{kind}"(sum.at[{n}])' for n in range(count))
    inputs = ", ".join(f'"r"(tk_bitcast<uint32_t>({item}))' for item in (*a, *b))
    lines = [
        f'asm("{text.call} {c}, {left}, {right}, {c};"',
        f"    : {outputs}",
        f"    : {inputs});",
    ]
    return "\n".join(f"    {line}" for line in lines)


def _builtin(unit: MatrixUnit, text: Text, total: str) -> str:
    """Sums element by element: copied as bytes, those of 32 x 32 stay in memory (clang 15)."""

    def native(kind: DType, lanes: int) -> str:
        return f"{_NATIVE[kind.name]} __attribute__((ext_vector_type({lanes})))"

    own = "float" if unit.factor.is_float else "int"  # bytes come four to an integer
    own = "factors" if unit.factor.is_float and unit.pack > 1 else own
    lines = [f"    typedef {native(unit.total, unit.c.registers)} totals;"]
    if own == "factors":
        lines.append(f"    typedef {native(unit.factor, unit.pack)} factors;")
    sides = ", ".join(f"tk_bitcast<{own}>({side}0)" for side in "ab")
    before, after = (
        ", ".join(item.format(n) for n in range(unit.c.registers)) for item in ("c.at[{}]", "sums[{}]")
    )
    lines.append(f"    const totals sums = {text.call}({sides}, totals{{{before}}}, 0, 0, 0);")
    lines.append(f"    return {total}{{{{{after}}}}};")
    return "\n".join(lines)


def _record(unit: MatrixUnit, name: str, total: str, words: Vocabulary) -> str:
    """The record as the emulator reads it: sizes, and where each element lies."""
    unit = unit.made_of or unit
    factor = unit.factor
    element = words.memory[factor.name]
    value = words.widen(factor, "x")
    if factor == TF32:  # the instruction does not look at the other bits
        value = words.widen(factor, "x & ~0x1fffu")
    places = [
        f"    static int {side}_{what}(int lane, int i) {{ return (void)lane, (void)i, {_place(modes)}; }}"
        for side, fragment in (("a", unit.a), ("b", unit.b), ("c", unit.c))
        for what, modes in (("row", fragment.rows), ("column", fragment.columns))
    ]
    sizes = {
        **{key: getattr(unit, key) for key in ("rows", "columns", "steps", "lanes")},
        **{f"held_{side}": part.registers for side, part in (("a", unit.a), ("b", unit.b), ("c", unit.c))},
    }
    return "\n".join(
        [
            f"struct {name}_record {{",
            f"    typedef {total} totals;",
            f"    typedef {words.types[unit.total.name]} total;",
            f"    typedef {element} element;",
            *(f"    static constexpr int {key} = {value};" for key, value in sizes.items()),
            f"    static total factor(element x) {{ return (total){value}; }}",
            *places,
            "};",
        ]
    )


def _place(modes: Modes) -> str:
    text = "0"
    for item in modes:
        number = f"lane / {item.lane}" if item.lane else f"i / {item.register}"
        mode = f"{number} % {item.extent}"
        text = mode if text == "0" else f"({text}) * {item.extent} + {mode}"
    return text
