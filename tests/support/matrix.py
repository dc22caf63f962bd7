"""Runs of a matrix whose trials are made by a stand-in for `tk`, also as a program that can be killed.

`python -m tests.support.matrix DIR STEPS NETWORK ...` makes the trials of these networks at two places.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import compiler
from compiler.core.answer import no, yes
from tests.support.command import ROOT
from toolchain.matrix.loop import Agenda, MatrixRun, agenda_of
from toolchain.matrix.plan import MatrixPlan, PlanSource
from toolchain.matrix.trials import Machine
from toolchain.records.record import Record
from toolchain.records.store import RecordStore

_STAND_IN = ROOT / "tests" / "support" / "matrix_stand_in.py"


def machine(toolchain: str = "g++ 1", **changes: Any) -> Machine:
    """Two targets that compile and run here, one that only compiles, one without a toolchain."""
    ready = yes(toolchain)
    rows = {
        "cpu": (ready, yes("cores")),
        "opencl-cpu": (ready, yes("PoCL 3.1")),
        "cuda-nvidia": (ready, no("there is no GPU")),
        "rocm-amd": (no("hipcc was not found", "install hipcc"), no("there is no GPU")),
    }
    return Machine(
        [
            compiler.TargetReport(name, (), "C", name, f"arch-{name}", (), compiles, yes("driver"), runs)
            for name, (compiles, runs) in (rows | changes).items()
        ]
    )


def tell(folder: Path, told: Mapping[str, Any]) -> None:
    """Say what becomes of `MODEL COMMAND`."""
    folder.mkdir(exist_ok=True)
    (folder / "told.json").write_text(json.dumps(told))


def calls(folder: Path) -> list[list[str]]:
    """Process id, `began` or `ended`, model and command of each call."""
    path = folder / "calls"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def plan_of(networks: Sequence[str], do: Sequence[str] = ("compile", "verify"), **fields: Any) -> MatrixPlan:
    """A plan of networks of the zoo at two places."""
    places = fields.pop("targets", ("cpu", "opencl-cpu"))
    targets = [{"target": one} if isinstance(one, str) else one for one in places]
    content = {"models": {"networks": list(networks)}, "targets": targets, "do": list(do), **fields}
    return MatrixPlan.model_validate(content)


def agenda(folder: Path, plan: MatrixPlan, here: Machine | None = None, *, again: bool = False) -> Agenda:
    """What is to be made, beside the records in a folder."""
    store = RecordStore(folder / "records")
    return agenda_of(plan, PlanSource(), store, again=again, machine=here or machine())


def make(folder: Path, plan: MatrixPlan, here: Machine | None = None, *, again: bool = False) -> list[Record]:
    """Make what is to be made; what each trial ended with."""
    if not (folder / "told.json").exists():
        tell(folder, {})
    tk = (sys.executable, "-I", "-S", str(_STAND_IN), str(folder))
    whole = agenda(folder, plan, here, again=again)
    run = MatrixRun(whole, RecordStore(folder / "records"), 2, lambda *_: None, tk=tk, again=again)
    return run.make()


if __name__ == "__main__":
    make(Path(sys.argv[1]), plan_of(sys.argv[3:], sys.argv[2].split(",")))
