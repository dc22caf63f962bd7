"""The source of a model's plan: the tables of `tk_plan.h`.

Numbers only: names and constants are data that the linking step adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate

from compiler.core.types import DType

PLAN_VERSION = 12
_DLPACK_CODES = {
    "i": 0, "u": 1, "f": 2, "b": 6, "bf16": 4, "f8e4m3": 10, "f8e4m3fnuz": 11, "f8e5m2": 12, "f8e5m2fnuz": 13,
    "f8e8m0": 14, "f4e2m1": 17,
}  # fmt: skip
"""By the name of a type, else by its first letter."""


class ArgKind(IntEnum):
    """Where an argument of a step lies; the values are those of `tk_plan.h`."""

    INPUT = 0
    OUTPUT = 1
    CONST = 2
    ARENA = 3
    COUNTERS = 4


@dataclass(frozen=True, slots=True)
class PlanArg:
    """One argument of a step: input or output `index` of the model (else 0), plus `offset` bytes.

    And `sample_offset` bytes for each sample of a free batch.
    """

    kind: ArgKind
    index: int = 0
    offset: int = 0
    sample_offset: int = 0


@dataclass(frozen=True, slots=True)
class PlanGuard:
    """A call is left out unless one of so many truth values, of any sample, is `expected`.

    sample_stride: bytes from those of a sample of a free batch to the next one's.
    """

    arg: PlanArg
    elements: int
    expected: bool
    sample_stride: int = 0


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One call: the kernel function `tk_k<function>`, its arguments, its entry in the manifest's list."""

    function: int
    args: tuple[PlanArg, ...]
    kernel: int
    guard: PlanGuard | None = None

    @property
    def all_args(self) -> tuple[PlanArg, ...]:
        """The arguments, and what the guard reads behind them."""
        return self.args if self.guard is None else (*self.args, self.guard.arg)


@dataclass(frozen=True, slots=True)
class PlanDim:
    """So many elements; with factors, one for each symbol, a run has a part of them, from the first on.

    That is (offset + each factor times its symbol) // divisor. extent -1: a free batch, of which kernels,
    too, find as many as a run has.
    """

    extent: int
    factors: tuple[int, ...] = ()
    offset: int = 0
    divisor: int = 1


@dataclass(frozen=True, slots=True)
class PlanTensor:
    """An input or output of the model."""

    dtype: DType
    dims: tuple[PlanDim, ...]


@dataclass(frozen=True, slots=True)
class PlanSymbol:
    """A symbolic dimension: its range and what divides it."""

    minimum: int
    maximum: int
    divisor: int = 1


@dataclass(frozen=True, slots=True)
class PlanState:
    """Input number `input` is extended along `axis` to an output, in the output's memory."""

    input: int
    output: int
    axis: int


@dataclass(frozen=True, slots=True)
class PlanLaunch:
    """One launch of device function number `function` for a step; `args` number the arguments of all steps.

    grid: blocks along x, y, z; block: threads of one; shared_bytes: what a block shares, dynamic_bytes: what
    of these the launch asks for. elastic: grid[0] is the most that make sense, fewer do the same work.
    block_bytes: global memory of each block to itself; its address is one more argument. ends: where a run
    may need fewer blocks.
    """

    function: int
    step: int
    args: tuple[int, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    dynamic_bytes: int = 0
    elastic: bool = False
    block_bytes: int = 0
    ends: tuple[PlanGridEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanGridEnd:
    """A run needs `times` the places that `end` says, by `step`, rounded up, of the blocks along an axis."""

    axis: int
    times: int
    step: int
    end: PlanDim


@dataclass(frozen=True, slots=True)
class PlanTurn:
    """Where a step's launches come in a recorded run: on a branch, behind those of other steps besides."""

    branch: int
    waits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """What a device executes instead of calls: launches in order. functions: names in the module.

    sample_alignment: of a free batch, bytes of which the distance of samples in tensors is a multiple; a run
    has as many times the blocks along z as there are samples. 0: no batch is free. counter_bytes: of counters
    that are zero between runs, for each sample. turns: one for each step, where a recorded run may have some
    of them side by side.
    """

    target: str
    functions: tuple[str, ...]
    launches: tuple[PlanLaunch, ...]
    sample_alignment: int = 0
    counter_bytes: int = 0
    turns: tuple[PlanTurn, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanSpecialisation:
    """A plan for some sizes, with symbols, steps and memory of its own.

    ranges: of each symbol of the general plan; it is for runs whose values are all in them.
    """

    plan: HostPlan
    ranges: tuple[PlanSymbol, ...]


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What the runtime executes: steps in order, on memory given by their arguments.

    device: the launches that take the place of the steps' calls; None where kernels are host code.
    features: names of processor features that the kernels need. threads: default, 0 = one per core.
    All sizes are in bytes; scratch_bytes is for each thread, sample_bytes what the arena has besides for each
    sample of a free batch, the first of the symbols. The last `checks` outputs are for the runtime alone; the
    last `sizes` inputs come from it: the values of the symbols from number `first_size` on. The `counts`
    outputs before the checks are the values of the last symbols, which a run finds out.

    specialisations: of which a run takes the first that holds its sizes, else this plan, the general one.
    """

    inputs: tuple[PlanTensor, ...]
    outputs: tuple[PlanTensor, ...]
    steps: tuple[PlanStep, ...]
    arena_bytes: int
    scratch_bytes: int
    constants_bytes: int
    features: tuple[str, ...] = ()
    symbols: tuple[PlanSymbol, ...] = ()
    threads: int = 0
    device: DevicePlan | None = None
    sample_bytes: int = 0
    checks: int = 0
    sizes: int = 0
    first_size: int = 0
    counts: int = 0
    states: tuple[PlanState, ...] = ()
    specialisations: tuple[PlanSpecialisation, ...] = ()

    @property
    def plans(self) -> tuple[HostPlan, ...]:
        """This one, then the specialised ones."""
        return (self, *(item.plan for item in self.specialisations))


def render_plan(plan: HostPlan) -> str:
    """The C++ source that defines `tk_plan_model`; the same plan gives the same text."""
    steps = [step for one in plan.plans for step in one.steps] if plan.device is None else []
    functions = sorted({step.function for step in steps})
    parts = ['#include "tk_plan.h"', ""]
    parts += [f'extern "C" TK_HIDDEN void tk_k{n}(void *const *bufs, tk_exec *exec);' for n in functions]
    parts += ["", "namespace {"]
    if plan.device is not None:
        names = [f'"{_checked(name)}"' for name in plan.device.functions]
        parts += _table("char *const", "functions", names)
    rows = []
    for number, item in enumerate(plan.specialisations):
        prefix = f"s{number}_"
        parts += _tables(item.plan, prefix)
        parts += ["const tk_plan " + _initialised(f"{prefix}plan", item.plan, prefix)]
        parts += _table("tk_symbol", f"{prefix}ranges", list(map(_symbol, item.ranges)))
        rows.append(_braces(f"&{prefix}plan", f"{prefix}ranges"))
    parts += _table("tk_specialisation", "specialisations", rows)
    parts += _tables(plan)
    parts += ["}", "", 'extern "C" {', "const tk_plan " + _initialised("tk_plan_model", plan), "}", ""]
    return "\n".join(parts)


def _initialised(name: str, plan: HostPlan, prefix: str = "") -> str:
    return "\n".join((f"{name} = {{", *(f"  {text}," for text in _fields(plan, prefix)), "};"))


def _tables(plan: HostPlan, prefix: str = "") -> list[str]:
    """What a plan points to."""
    parts: list[str] = []
    for name, items in (("inputs", plan.inputs), ("outputs", plan.outputs)):
        parts += _tensors(prefix + name, items)
    parts += _table("tk_symbol", f"{prefix}symbols", list(map(_symbol, plan.symbols)))
    args = [
        _braces(int(arg.kind), arg.index, arg.offset, arg.sample_offset)
        for step in plan.steps
        for arg in step.all_args
    ]
    parts += _table("tk_arg", f"{prefix}args", args)
    guards = [step.guard for step in plan.steps if step.guard is not None]
    rows = [_braces(one.elements, int(one.expected), one.sample_stride) for one in guards]
    parts += _table("tk_guard", f"{prefix}guards", rows)
    parts += _table("tk_step", f"{prefix}steps", _steps(plan))
    rows = [_braces(one.input, one.output, one.axis, 0) for one in plan.states]
    parts += _table("tk_state", f"{prefix}states", rows)
    parts += _table("char *const", f"{prefix}features", [f'"{_checked(name)}"' for name in plan.features])
    return parts + (_device(plan.device, prefix) if plan.device is not None else [])


def _symbol(symbol: PlanSymbol) -> str:
    return _braces(symbol.minimum, symbol.maximum, symbol.divisor)


def _fields(plan: HostPlan, prefix: str) -> list[str]:
    """The initialiser of tk_plan, field by field in the order of the header."""
    args = sum(len(step.all_args) for step in plan.steps)
    counts = (PLAN_VERSION, len(plan.inputs), len(plan.outputs), len(plan.symbols), len(plan.steps), args)
    pointers = [
        prefix + name if items else "nullptr"
        for name, items in (
            ("inputs", plan.inputs),
            ("outputs", plan.outputs),
            ("symbols", plan.symbols),
            ("steps", plan.steps),
            ("guards", [step for step in plan.steps if step.guard is not None]),
            ("args", range(args)),
            ("features", plan.features),
        )
    ]
    numbers = (*counts, len(plan.features), plan.threads)
    sizes = (plan.arena_bytes, plan.scratch_bytes, plan.constants_bytes)
    device = "nullptr" if plan.device is None else f"&{prefix}device"
    rest = (plan.sample_bytes, plan.checks, plan.sizes, plan.first_size, plan.counts)
    states = (f"{prefix}states" if plan.states else "nullptr", str(len(plan.states)))
    specialised = "specialisations" if plan.specialisations else "nullptr"
    more = (str(len(plan.specialisations)), specialised)
    return [*map(str, numbers), *pointers, *map(str, sizes), device, *map(str, rest), *states, *more]


def _tensors(name: str, items: Sequence[PlanTensor]) -> list[str]:
    lines: list[str] = []
    rows: list[str] = []
    for number, item in enumerate(items):
        dims = []
        for axis, dim in enumerate(item.dims):
            factors = f"{name}_{number}_{axis}" if dim.factors else "nullptr"
            lines += _table("int64_t", factors, dim.factors)
            dims.append(_braces(dim.extent, factors, dim.offset, dim.divisor))
        lines += _table("tk_plan_dim", f"{name}_{number}", dims)
        code, bits = _dlpack(item.dtype)
        rows.append(_braces(code, bits, 1, len(dims), f"{name}_{number}" if dims else "nullptr"))
    return lines + _table("tk_plan_tensor", name, rows)


def _device(plan: DevicePlan, prefix: str) -> list[str]:
    """The tables of a device: launches, and which arguments each takes."""
    args = [str(arg) for item in plan.launches for arg in item.args]
    lines = _table("int32_t", f"{prefix}launch_args", args)
    rows, first = [], 0
    for item in plan.launches:
        grid, block = _braces(*item.grid), _braces(*item.block)
        numbers = (item.function, item.step, first, len(item.args))
        rows.append(
            _braces(
                *numbers,
                grid,
                block,
                item.shared_bytes,
                item.dynamic_bytes,
                int(item.elastic),
                item.block_bytes,
            )
        )
        first += len(item.args)
    lines += _table("tk_launch", f"{prefix}launches", rows)
    ends = [(number, one) for number, item in enumerate(plan.launches) for one in item.ends]
    lines += _grid_ends(ends, prefix)
    lines += _turns(plan.turns, prefix)
    waits = [step for turn in plan.turns for step in turn.waits]
    functions = "functions" if plan.functions else "nullptr"
    named = (
        ("launches", plan.launches),
        ("launch_args", range(first)),
        ("grid_ends", ends),
        ("turns", plan.turns),
        ("waits", waits),
    )
    *tables, turns, waited = [prefix + name if items else "nullptr" for name, items in named]
    counts = (len(plan.functions), len(plan.launches))
    branches = max((turn.branch for turn in plan.turns), default=0) + 1
    sizes = (plan.sample_alignment, plan.counter_bytes)
    more = (len(ends), *sizes, turns, waited, len(waits), branches)
    fields = (f'"{_checked(plan.target)}"', *counts, functions, *tables, *more)
    return [*lines, f"const tk_device_plan {prefix}device = {_braces(*fields)};"]


def _turns(turns: Sequence[PlanTurn], prefix: str) -> list[str]:
    """The branch of each step, and which others it waits for."""
    firsts = accumulate((len(turn.waits) for turn in turns), initial=0)
    rows = [_braces(turn.branch, first, len(turn.waits)) for turn, first in zip(turns, firsts, strict=False)]
    waits = [step for turn in turns for step in turn.waits]
    return [*_table("tk_turn", f"{prefix}turns", rows), *_table("int32_t", f"{prefix}waits", waits)]


def _grid_ends(ends: Sequence[tuple[int, PlanGridEnd]], prefix: str) -> list[str]:
    """Where launches end in a run, by their numbers."""
    lines: list[str] = []
    rows = []
    for number, (launch, one) in enumerate(ends):
        factors = f"{prefix}grid_end_{number}"
        lines += _table("int64_t", factors, one.end.factors)
        end = _braces(one.end.extent, factors, one.end.offset, one.end.divisor)
        rows.append(_braces(launch, one.axis, one.times, one.step, end))
    return lines + _table("tk_grid_end", f"{prefix}grid_ends", rows)


def _steps(plan: HostPlan) -> list[str]:
    rows, first, guards = [], 0, 0
    for step in plan.steps:
        call = f"tk_k{step.function}" if plan.device is None else "nullptr"
        guards += step.guard is not None
        rows.append(_braces(call, first, len(step.args), step.kernel, guards if step.guard else 0))
        first += len(step.all_args)
    return rows


def _dlpack(kind: DType) -> tuple[int, int]:
    return _DLPACK_CODES.get(kind.name, _DLPACK_CODES[kind.name[0]]), kind.bits


def _table(kind: str, name: str, rows: Sequence[object]) -> list[str]:
    """An array; nothing when it would be empty, which C++ does not allow."""
    if not rows:
        return []
    return [f"const {kind} {name}[] = {{", *(f"  {row}," for row in rows), "};"]


def _braces(*items: object) -> str:
    return f"{{{', '.join(str(item) for item in items)}}}"


def _checked(name: str) -> str:
    """A feature's name, which goes into a string literal; it comes from our own table."""
    assert all(char.isalnum() or char in ".-_:+," for char in name), name
    return name
