"""What the stages of one finished compile made, for whoever wants to look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.graph.convert import LaidOut
from compiler.stages.kernels import Kernel, Step
from compiler.stages.storage import Storage
from compiler.stages.tuned import GraphChoices


@dataclass(frozen=True, slots=True)
class Compilation:
    """A model on its way to a library.

    objects: of the kernels, where the host runs them; several kernels may share one. graph: what was decided
    about it.
    """

    laid_out: LaidOut
    kernels: Sequence[Kernel]
    steps: Sequence[Step]
    storage: Storage
    objects: Sequence[Path]
    graph: GraphChoices
