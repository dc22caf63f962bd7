"""What a function becomes on its way to code, without a compiler: run as it is, lowered, printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.core.passes import PassEvent, run_passes
from compiler.core.units import counted
from compiler.loops.ir import Buffer, For, ForKind, Func, statements
from compiler.loops.queries import static_shape
from compiler.loops.text import print_func
from compiler.loops.verify import verify_func
from compiler.lower import lowering
from compiler.runtime.tensors import Array
from compiler.schedule.layout_changes import layouts_of
from compiler.schedule.schedule import Schedule
from compiler.stages.kernels import print_kernel
from compiler.targets import Target, get_target
from compiler.verify.interpreted import run_scheduled

Program = Schedule | Func
"""What is run, lowered or built: a schedule stands for what it made of its function."""


def func_of(program: Program) -> Func:
    """The function, checked: BadInputError where a text that was written by hand breaks a rule."""
    if isinstance(program, Schedule):
        return program.func
    verify_func(program, "scheduled", edited=True)
    return program


def operands_of(func: Func) -> tuple[Buffer, ...]:
    """The parameters that a caller gives."""
    return func.params[: len(func.params) - func.outputs]


def shape_of(func: Func, buffer: Buffer) -> tuple[int, ...]:
    """The shape of a parameter as it was before its layout was changed."""
    changes = layouts_of(func, buffer.name)
    return changes[0].shape if changes else static_shape(buffer)


def check_sizes(func: Func) -> None:
    """Raise UsageError where sizes of a function are not numbers."""
    if func.dims:
        raise UsageError(
            f"`{func.name}` has sizes that only a run knows",
            where=", ".join(dim.var.name for dim in func.dims),
            why="a function that is called by itself has numbers for sizes",
            hint="write the function with the numbers that it is to be run with",
        )


def check_axes(func: Func, target: Target) -> None:
    """Raise UsageError for loops that are bound to what a target does not have."""
    bound = [item for item in statements(func.body) if isinstance(item, For) and item.kind is ForKind.BOUND]
    if bound and not target.facts.binds_threads and not target.facts.launches:
        loop = bound[0]
        raise UsageError(
            f"loop {loop.var.name} of `{func.name}` is bound to {loop.tag}",
            why=f"{target.text} has no such axis: blocks and threads are those of GPUs",
            hint="name a GPU as the target, or leave out `bind` and make the loop parallel",
        )


def named(func: Func, arrays: Sequence[ArrayLike], by_name: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """The arguments of a call by the names of parameters, in order; UsageError for what does not fit."""
    operands = operands_of(func)
    names = [item.name for item in operands]
    if len(arrays) > len(names):
        raise UsageError(
            f"`{func.name}` takes {counted(len(names), 'array')}, not {len(arrays)}", why=_takes(func)
        )
    given = dict(zip(names, arrays, strict=False))
    for name in by_name:
        if name not in names:
            hint = did_you_mean(name, names)
            raise UsageError(f"`{func.name}` has no input `{name}`", why=_takes(func), hint=hint)
        if name in given:
            raise UsageError(f"`{func.name}` is given its input `{name}` twice", why=_takes(func))
    given |= by_name
    check_sizes(func)
    made = {name: np.asarray(array) for name, array in given.items()}
    for item in operands:
        if item.name not in given:
            raise UsageError(f"`{func.name}` needs its input `{item.name}`", why=_takes(func))
        wanted, found = shape_of(func, item), made[item.name].shape
        if wanted != found:
            what = f"the input `{item.name}` has shape {list(found)}, not {list(wanted)}"
            raise UsageError(what, where=f"`{func.name}`")
    return {name: made[name] for name in names}


def _takes(func: Func) -> str:
    return f"its inputs are {', '.join(item.name for item in operands_of(func)) or 'none'}"


def unwrapped(results: Mapping[str, Array]) -> Array | tuple[Array, ...]:
    """What a call gives: the one result, or all of them in order."""
    arrays = tuple(results.values())
    return arrays[0] if len(arrays) == 1 else arrays


def interpreted(program: Program, *arrays: ArrayLike, **by_name: ArrayLike) -> Array | tuple[Array, ...]:
    """What a function computes, by the interpreter: slow, and by definition right.

    The arrays are those of its inputs, in order or by name; the result is one array or a tuple of them.
    Iterations of parallel loops that touch what another one writes are refused with a ProgramError. Raises
    UsageError for arrays that do not fit.
    """
    func = func_of(program)
    return unwrapped(run_scheduled(func, named(func, arrays, by_name), races=True))


def lower(
    program: Program, target: str | None = None, observe: Callable[[str, Func], object] | None = None
) -> Func:
    """The flat loops that a target's code is printed from; `observe` is told of each pass that changes them.

    Raises UsageError for a target that there is not, and LimitError for what a device has no room for.
    """
    return lowered_for(func_of(program), get_target(target), observe)


def lowered_for(func: Func, target: Target, observe: Callable[[str, Func], object] | None = None) -> Func:
    """As `lower`, for a target that is known."""
    check_sizes(func)
    check_axes(func, target)

    def tell(event: PassEvent[Func]) -> None:
        if observe is not None and event.changed:
            observe(event.name, event.after)

    return run_passes(lowering(target.facts, custom=target.plugins.passes), func, [tell])


def lower_steps(program: Program, target: str | None = None) -> Iterator[tuple[str, str]]:
    """Each pass that changes the loops, with the text of the loops behind it."""
    seen: list[tuple[str, str]] = []
    lower(program, target, lambda name, func: seen.append((name, print_func(func))))
    return iter(seen)


def source(program: Program, target: str | None = None) -> str:
    """The text that a target's compiler is given: C++, or a device's language."""
    chosen = get_target(target)
    lowered = lowered_for(func_of(program), chosen)
    return print_kernel(0, lowered, chosen).text
