"""How the stages about the whole model read in a dump: layouts, kernels, the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compiler.graph.fuse import FusedGraph
from compiler.graph.ir import Value
from compiler.loops.ir import Func
from compiler.loops.layout import Layout
from compiler.loops.text import print_func
from compiler.render.host import ArgKind, HostPlan, PlanArg, PlanGuard, PlanTurn
from compiler.stages.dump import kernel_file
from compiler.stages.kernels import Step


def layouts_text(layouts: Mapping[Value, Layout]) -> str:
    """One line for each tensor: its type and its index maps."""
    return "\n".join(f"{value}: {value.type} as {layout_text(layout)}" for value, layout in layouts.items())


def layout_text(layout: Layout) -> str:
    """The index maps of a layout, one after the other."""
    return "; ".join(item.text for item in layout.maps) or "row-major"


def kernels_text(steps: Sequence[Step]) -> str:
    """One line for each call: the kernel, and the group of the graph that it computes.

    After them the functions that make constants of constants, each with the tensors that it is applied to.
    """
    lines = [f"{number:4}  {kernel_file(step.kernel)}  {step.group}" for number, step in enumerate(steps)]
    makers: dict[Func, list[str]] = {}
    for step in steps:
        for value, made in step.derived.items():
            makers.setdefault(made.func, []).append(f"{value} of {', '.join(map(str, made.inputs))}")
    for func, uses in makers.items():
        lines += ["", f"at compile time: {'; '.join(uses)}", print_func(func).rstrip()]
    return "\n".join(lines)


def plan_text(
    fused: FusedGraph, steps: Sequence[Step], slots: Mapping[Value, PlanArg], plan: HostPlan
) -> str:
    """Sizes, where each tensor lies, and the calls with their arguments in order."""
    return "\n".join((*_sizes(plan), "", *_tensors(fused, slots), "", *_calls(steps, plan)))


def _sizes(plan: HostPlan) -> Iterator[str]:
    yield f"arena      {plan.arena_bytes} bytes"
    if plan.sample_bytes:
        yield f"           {plan.sample_bytes} bytes more for each sample"
    yield f"scratch    {plan.scratch_bytes} bytes a thread"
    yield f"constants  {plan.constants_bytes} bytes"


def _tensors(fused: FusedGraph, slots: Mapping[Value, PlanArg]) -> Iterator[str]:
    names = dict(zip(fused.graph.inputs, fused.graph.input_names, strict=True))
    names.update(zip(fused.graph.outputs, fused.graph.output_names, strict=True))
    for value, slot in slots.items():
        where = place_text(slot)
        name = f"  # {names[value]!r}" if value in names else ""
        yield f"{value}: {value.type} in {where}{name}"


def _calls(steps: Sequence[Step], plan: HostPlan) -> Iterator[str]:
    turns = plan.device.turns if plan.device is not None else ()
    for number, (step, call) in enumerate(zip(steps, plan.steps, strict=True)):
        places = ", ".join(place_text(item) for item in call.args)
        turn = _turn_text(turns[number]) if turns else ""
        yield f"{number:4}  {kernel_file(step.kernel)}({places}){_guard_text(call.guard)}{turn}"


def _turn_text(turn: PlanTurn) -> str:
    """` on branch 1 behind 3, 5`."""
    waits = f" behind {', '.join(map(str, turn.waits))}" if turn.waits else ""
    return f" on branch {turn.branch}{waits}"


def _guard_text(guard: PlanGuard | None) -> str:
    """` if any of arena+64`, ` unless all of 3 at arena+64`."""
    if guard is None:
        return ""
    what = place_text(guard.arg) if guard.elements == 1 else f"{guard.elements} at {place_text(guard.arg)}"
    return f" if any of {what}" if guard.expected else f" unless all of {what}"


def place_text(item: PlanArg) -> str:
    """Where an argument lies: `input 0`, `arena+4096`."""
    if item.kind in (ArgKind.CONST, ArgKind.ARENA, ArgKind.COUNTERS):
        samples = f"+samples*{item.sample_offset}" if item.sample_offset else ""
        return f"{item.kind.name.lower()}+{item.offset}{samples}"
    return f"{item.kind.name.lower()} {item.index}" + (f"+{item.offset}" if item.offset else "")
