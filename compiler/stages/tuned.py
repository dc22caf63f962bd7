"""What a compile is told of tuned kernels: decisions to take, by workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:  # the loops behind it are slow to import, and a command line's help needs none
    from compiler.schedule.chooser import Option
    from compiler.stages.workload import Workload

Decisions = Mapping[str, tuple[int, ...]]
"""What a chooser took, by the names of the decisions."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a record says of a workload: the decisions to take, and the record's id."""

    decisions: Decisions = field(default_factory=dict)
    record: str = ""


class Layouts(IntEnum):
    """Where tensors between kernels get their layouts from.

    By cost; row-major all of them; by cost, but without copies between kernels; by costs that take what fills
    no vectors for half, or for twice as dear.
    """

    BY_COST = 0
    ROW_MAJOR = 1
    WITHOUT_COPIES = 2
    CHEAP_LANES = 3
    DEAR_LANES = 4


class BranchChoice(IntEnum):
    """Which launches of a recorded run are side by side.

    None; by cost; by cost where edges between branches cost nothing and launches leave room for each other.
    """

    NONE = 0
    BY_COST = 1
    FREE = 2


@dataclass(frozen=True, slots=True)
class GraphChoices:
    """What was decided about a graph.

    fusion: most operators of a kernel, None for as many as fit. attention: whether each is one kernel.
    depthwise: whether 1 x 1 convolutions may be one kernel with the depthwise ones in front of them.
    elementwise: whether convolutions may be with what makes their images element by element. chains: whether
    small layers that read each other may be one kernel. layout: where layouts come from. branches: which
    launches are side by side. record: the id of the tuning record behind that. decisions, offered: by name,
    what was taken and what else there was. workload: what the graph has to do.
    """

    fusion: int | None = None
    attention: bool = True
    depthwise: bool = True
    elementwise: bool = True
    chains: bool = True
    branches: BranchChoice = BranchChoice.BY_COST
    layout: Layouts = Layouts.BY_COST
    record: str = ""
    decisions: Decisions = field(default_factory=dict)
    offered: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)
    workload: Workload | None = None


Records: TypeAlias = "Callable[[Workload], Tuned]"
"""Finds what is known of a workload; decisions that are not there are the chooser's."""


def no_records(workload: Workload) -> Tuned:  # noqa: ARG001 - a Records
    """What is known where nothing was tuned."""
    return Tuned()


def changed_decisions(
    default: Decisions, taken: Decisions
) -> dict[str, tuple[tuple[int, ...] | None, tuple[int, ...] | None]]:
    """The decisions in which two schedules differ, as each has them; None where it was not asked."""
    names = dict.fromkeys((*default, *taken))
    pairs = {name: (default.get(name), taken.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
