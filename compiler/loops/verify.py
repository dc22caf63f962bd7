"""The verifier: what every loop program must satisfy at its stage, checked between passes.

Stages: `imported` and `scheduled` (work sits in blocks), `lowered` (no blocks), `flat` (no blocks, buffers of
one dimension, no vectorised loops left). All problems are found at once, each one sentence with its place.

Ranges are judged by interval arithmetic: an access is reported where it surely goes wrong in some iteration,
never on suspicion. The interpreter finds the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from compiler.core.diagnostics import BadInputError, InternalError
from compiler.core.passes import PassEvent
from compiler.loops.ir import Func
from compiler.loops.verify_stmts import Checker

Stage = Literal["imported", "scheduled", "lowered", "flat"]
STAGES: tuple[Stage, ...] = ("imported", "scheduled", "lowered", "flat")
SHOWN = 12
"""Problems in one message; the rest is counted."""


def problems_of(func: Func, stage: Stage = "scheduled") -> tuple[str, ...]:
    """All problems, each `place: what is wrong`; empty when the function is right."""
    checker = Checker(func, stage)
    checker.run()
    return tuple(dict.fromkeys(checker.problems))


def verify_func(func: Func, stage: Stage = "scheduled", *, after: str = "", edited: bool = False) -> None:
    """Raise when something is wrong.

    InternalError names the pass `after` which the program came; for an `edited` text it is BadInputError.
    """
    problems = problems_of(func, stage)
    if not problems:
        return
    shown = list(problems[:SHOWN])
    if len(problems) > SHOWN:
        shown.append(f"... and {len(problems) - SHOWN} more")
    kind = BadInputError if edited else InternalError
    raise kind(
        f"function `{func.name}` is not a valid {stage} loop program",
        where=f"after {after}" if after else f"function `{func.name}`",
        why="\n     ".join(shown),
        hint="" if edited else "this is a defect of the pass; dump the stages with --dump to see them",
    )


def verifying(stages: Mapping[str, Stage]) -> Callable[[PassEvent[Func]], None]:
    """An observer for `run_passes` that verifies after each pass; `stages` says where each pass leads to."""

    def observe(event: PassEvent[Func]) -> None:
        if event.changed:
            verify_func(event.after, stages[event.name], after=event.name)

    return observe
