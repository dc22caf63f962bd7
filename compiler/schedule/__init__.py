"""The schedule language: write a function, rearrange its loops by hand, run it, look at its code, time it.

    from compiler.schedule import Builder, Schedule, build
    b = Builder("scale")
    x = b.input("x", (4, 8))
    schedule = Schedule(b.finish([b.compute("y", (4, 8), lambda i, j: x[i, j] * 2.0)]))
    schedule.vectorize("y_i1")
    y = build(schedule)(array)

These names are what programs outside of the compiler may use; `docs/schedules.md` shows all of them at work.
Each is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.core.lazy import lazy_names

if TYPE_CHECKING:  # the same names as in _HOMES, for type checkers and editors
    from compiler.core.target import TargetFacts as TargetFacts
    from compiler.core.types import DType as DType
    from compiler.core.types import dtype as dtype
    from compiler.loops.build import Builder as Builder
    from compiler.loops.build import region_at as region_at
    from compiler.loops.index_map import IndexMap as IndexMap
    from compiler.loops.ir import Block as Block
    from compiler.loops.ir import Buffer as Buffer
    from compiler.loops.ir import Cast as Cast
    from compiler.loops.ir import Expr as Expr
    from compiler.loops.ir import For as For
    from compiler.loops.ir import Func as Func
    from compiler.loops.ir import If as If
    from compiler.loops.ir import Select as Select
    from compiler.loops.ir import Store as Store
    from compiler.loops.ir import call as call
    from compiler.loops.ir import const as const
    from compiler.loops.ir import maximum as maximum
    from compiler.loops.ir import minimum as minimum
    from compiler.loops.ir import seq as seq
    from compiler.loops.text import parse_func as parse_func
    from compiler.loops.text import print_func as print_func
    from compiler.schedule.chooser import AnalyticChooser as AnalyticChooser
    from compiler.schedule.chooser import Chooser as Chooser
    from compiler.schedule.chooser import Option as Option
    from compiler.schedule.chooser import RandomChooser as RandomChooser
    from compiler.schedule.chooser import ReplayChooser as ReplayChooser
    from compiler.schedule.errors import ScheduleError as ScheduleError
    from compiler.schedule.primitives import PRIMITIVES as PRIMITIVES
    from compiler.schedule.primitives.base import Primitive as Primitive
    from compiler.schedule.rules import schedule_func as schedule_func
    from compiler.schedule.schedule import Schedule as Schedule
    from compiler.schedule.schedule import replay as replay
    from compiler.schedule.tensor_intrinsics import TensorIntrinsic as TensorIntrinsic
    from compiler.schedule.tensor_intrinsics import register_tensor_intrinsic as register_tensor_intrinsic
    from compiler.schedule.trace import Trace as Trace
    from compiler.targets import Target as Target
    from compiler.targets import get_target as get_target
    from compiler.verify.timing import Percentiles as Percentiles
    from compiler.verify.timing import difference as difference
    from compiler.verify.timing import measure as measure
    from compiler.workbench.build import BuiltKernel as BuiltKernel
    from compiler.workbench.build import build as build
    from compiler.workbench.steps import interpreted as interpreted
    from compiler.workbench.steps import lower as lower
    from compiler.workbench.steps import lower_steps as lower_steps
    from compiler.workbench.steps import source as source

_HOMES = {
    "compiler.core.target": ("TargetFacts",),
    "compiler.core.types": ("DType", "dtype"),
    "compiler.loops.build": ("Builder", "region_at"),
    "compiler.loops.index_map": ("IndexMap",),
    "compiler.loops.ir": (
        "Block",
        "Buffer",
        "Cast",
        "Expr",
        "For",
        "Func",
        "If",
        "Select",
        "Store",
        "call",
        "const",
        "maximum",
        "minimum",
        "seq",
    ),
    "compiler.loops.text": ("parse_func", "print_func"),
    "compiler.schedule.chooser": (
        "AnalyticChooser",
        "Chooser",
        "Option",
        "RandomChooser",
        "ReplayChooser",
    ),
    "compiler.schedule.errors": ("ScheduleError",),
    "compiler.schedule.primitives": ("PRIMITIVES",),
    "compiler.schedule.primitives.base": ("Primitive",),
    "compiler.schedule.rules": ("schedule_func",),
    "compiler.schedule.schedule": ("Schedule", "replay"),
    "compiler.schedule.tensor_intrinsics": ("TensorIntrinsic", "register_tensor_intrinsic"),
    "compiler.schedule.trace": ("Trace",),
    "compiler.targets": ("Target", "get_target"),
    "compiler.verify.timing": ("Percentiles", "difference", "measure"),
    "compiler.workbench.build": ("BuiltKernel", "build"),
    "compiler.workbench.steps": ("interpreted", "lower", "lower_steps", "source"),
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
