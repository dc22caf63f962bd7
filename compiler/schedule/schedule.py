"""A Schedule is a Func and the trace of what was done to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec

from compiler.core.diagnostics import BadInputError
from compiler.loops.ir import Block, For, Func
from compiler.loops.text import print_func
from compiler.schedule.errors import ScheduleError
from compiler.schedule.known_steps import KnownSteps
from compiler.schedule.primitives.algebra import FactorOut
from compiler.schedule.primitives.base import Made, Primitive, Value
from compiler.schedule.primitives.cache import CacheInplace, CacheRead, CacheWrite
from compiler.schedule.primitives.inline import ComputeInline, ReverseComputeInline
from compiler.schedule.primitives.layout import TransformBlockLayout, TransformLayout
from compiler.schedule.primitives.loops import (
    Annotate,
    Bind,
    Fuse,
    Parallel,
    Reorder,
    Tile,
    Unannotate,
    Unroll,
    Vectorize,
)
from compiler.schedule.primitives.online import OnlineSoftmax
from compiler.schedule.primitives.operand import CacheOperand
from compiler.schedule.primitives.padding import DecomposePadding, PadEinsum
from compiler.schedule.primitives.pipeline import SoftwarePipeline, VThread
from compiler.schedule.primitives.placement import ComputeAt, ReverseComputeAt
from compiler.schedule.primitives.reduction import DecomposeReduction, RFactor
from compiler.schedule.primitives.root import ComputeRoot
from compiler.schedule.primitives.sampling import (
    SampleCategorical,
    SampleComputeLocation,
    SampleTile,
    Sampling,
)
from compiler.schedule.primitives.split import Split
from compiler.schedule.primitives.storage import SetScope, StorageAlign
from compiler.schedule.primitives.tensor import Blockize, Tensorize
from compiler.schedule.program import Program, Site
from compiler.schedule.trace import Instruction, Outputs, Ref, Trace, record, referable

Arguments = ParamSpec("Arguments")


def method(
    make: Callable[Arguments, Primitive[Made]],
) -> Callable[Concatenate[Schedule, Arguments], Made]:
    """A primitive as a method of `Schedule`: it takes the arguments of the class and gives what it makes."""

    def apply(self: Schedule, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Made:
        return self.apply(make(*args, **kwargs))

    apply.__doc__ = make.__doc__
    return apply


Observe = Callable[[Instruction], object]


class Schedule:
    """Rewrites a Func step by step and records each step.

    `func` is the program now, `trace` what was done to `origin`; as text a schedule is its program. `source`
    is where sampling steps draw from; without one they need a decision. `observe` hears each instruction when
    it is applied, whether it is kept or not. `known` are steps that other schedules took, which are not taken
    again.
    """

    split = method(Split)
    fuse = method(Fuse.of)
    reorder = method(Reorder.of)
    tile = method(Tile)
    parallel = method(Parallel)
    vectorize = method(Vectorize)
    unroll = method(Unroll)
    bind = method(Bind)
    annotate = method(Annotate)
    unannotate = method(Unannotate)
    compute_inline = method(ComputeInline)
    reverse_compute_inline = method(ReverseComputeInline)
    decompose_reduction = method(DecomposeReduction)
    rfactor = method(RFactor)
    factor_out = method(FactorOut)
    online_softmax = method(OnlineSoftmax)
    sample_tile = method(SampleTile)
    sample_categorical = method(SampleCategorical)
    sample_compute_location = method(SampleComputeLocation)
    compute_at = method(ComputeAt)
    reverse_compute_at = method(ReverseComputeAt)
    cache_read = method(CacheRead)
    cache_write = method(CacheWrite)
    cache_inplace = method(CacheInplace)
    cache_operand = method(CacheOperand)
    set_scope = method(SetScope)
    storage_align = method(StorageAlign)
    transform_layout = method(TransformLayout.of)
    transform_block_layout = method(TransformBlockLayout.of)
    decompose_padding = method(DecomposePadding)
    pad_einsum = method(PadEinsum)
    blockize = method(Blockize)
    tensorize = method(Tensorize)
    software_pipeline = method(SoftwarePipeline)
    vthread = method(VThread)
    compute_root = method(ComputeRoot)

    def __init__(
        self,
        func: Func,
        source: random.Random | None = None,
        observe: Observe | None = None,
        known: KnownSteps | None = None,
    ) -> None:
        self.func = self.origin = func
        self.trace = Trace()
        self._source = source
        self._observe = observe
        self._known = known
        self._program: Program | None = None

    def __str__(self) -> str:
        return print_func(self.func)

    def apply(self, primitive: Primitive[Made]) -> Made:
        """Apply any primitive; the program is unchanged when it refuses with a ScheduleError."""
        if isinstance(primitive, Sampling) and primitive.decision is None and self._source is not None:
            primitive = primitive.sampled(self.program, self._source)
        program: Program | None = None
        if self._known is not None and not isinstance(primitive, Sampling):
            program, made = self._known.apply(primitive, self.program)
            func = program.func
        else:
            func, made = primitive.apply(self.program)
        instruction = record(primitive, made)
        self.trace = self.trace.then(instruction)
        if self._observe is not None:
            self._observe(instruction)
        if func is not self.func:
            self.func, self._program = func, program
        return self._referable(made) if isinstance(primitive, Sampling) else made

    def _referable(self, made: Any) -> Any:
        """What a sampling step gave, as arguments that are recorded as references to it."""
        step = len(self.trace) - 1
        if isinstance(made, tuple):
            return tuple(referable(value, Ref(step, number)) for number, value in enumerate(made))
        return referable(made, Ref(step, 0))

    def copy(self) -> Schedule:
        """An independent schedule that starts from what this one did."""
        other = Schedule(self.func, self._source, self._observe, self._known)
        other.origin, other.trace, other._program = self.origin, self.trace, self._program
        return other

    def adopt(self, other: Schedule) -> None:
        """Take over the program and the trace of a schedule that was copied from this one."""
        self.func, self.trace, self._program = other.func, other.trace, other._program

    def attempt(
        self,
        steps: Callable[Concatenate[Schedule, Arguments], bool | None],
        /,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> bool:
        """Take over what steps do to a copy; False, and no change, where one refuses or they give False."""
        other = self.copy()
        try:
            done = steps(other, *args, **kwargs) is not False
        except ScheduleError:
            return False
        if done:
            self.adopt(other)
        return done

    # ------------------------------------------------------------ looking

    @property
    def program(self) -> Program:
        """The index of the current Func."""
        if self._program is None:
            self._program = Program(self.func)
        return self._program

    def loops(self, block: str) -> tuple[str, ...]:
        """Names of the loops around a block, outermost first."""
        return tuple(loop.var.name for loop in self.site(block).loops)

    def loop(self, name: str) -> For:
        """The loop called `name`."""
        return self.program.loop(name)

    def block(self, name: str) -> Block:
        """The block called `name`."""
        return self.program.block(name)

    def site(self, name: str) -> Site:
        """The block called `name` in its place."""
        return self.program.site(name)

    def blocks(self) -> tuple[str, ...]:
        """Names of all blocks, in program order."""
        return tuple(self.program.sites)


def replay(trace: Trace, func: Func, decisions: Mapping[int, Value] | None = None) -> Schedule:
    """Apply a trace to the Func it was made for; `decisions` replaces those of sampling steps, by number.

    BadInputError when a step gives other names than were recorded although no decision was replaced: the
    trace belongs to another program.
    """
    for step, decision in (decisions or {}).items():
        trace = trace.with_decision(step, decision)
    schedule = Schedule(func)
    outputs: list[Outputs] = []
    for number, item in enumerate(trace.instructions):
        schedule.apply(item.primitive(outputs))
        outputs.append(schedule.trace.instructions[-1].outputs)
        if not decisions and outputs[-1] != item.outputs:
            why = f"step {number} ({item.name}) gave {outputs[-1]}, recorded is {item.outputs}"
            raise BadInputError("the trace belongs to another program", why=why)
    return schedule
