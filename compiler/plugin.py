"""The words that a plugin is written in; docs/schedules.md shows plugins at work.

A plugin is a file with a constant `PLUGIN`, given to `tk compile --plugin FILE`, or a package with an entry
point of the group `tk.plugins`. It is code that runs as the user.

    from compiler.plugin import Plugin, ScheduleRule
    PLUGIN = Plugin(rules=(ScheduleRule("mine", schedule_mine),))
"""

from __future__ import annotations

from compiler.core.node import IRNode as IRNode
from compiler.core.node import rewrite_nodes as rewrite_nodes
from compiler.core.plugins import LoweringPass as LoweringPass
from compiler.core.plugins import Plugin as Plugin
from compiler.core.plugins import ScheduleRule as ScheduleRule
from compiler.core.target import TargetFacts as TargetFacts
from compiler.graph.attrs import Attrs as Attrs
from compiler.graph.ir import NodeInfo as NodeInfo
from compiler.graph.ir import TensorType as TensorType
from compiler.graph.op import Form as Form
from compiler.graph.op import InvalidError as InvalidError
from compiler.graph.op import Kind as Kind
from compiler.graph.op import Op as Op
from compiler.graph.op import Signature as Signature
from compiler.graph.op import UnsupportedError as UnsupportedError
from compiler.loops.build import Builder as Builder
from compiler.loops.ir import Buffer as Buffer
from compiler.loops.ir import Const as Const
from compiler.loops.ir import For as For
from compiler.loops.ir import ForKind as ForKind
from compiler.loops.ir import Func as Func
from compiler.schedule.chooser import Chooser as Chooser
from compiler.schedule.chooser import Option as Option
from compiler.schedule.schedule import Schedule as Schedule
