"""Which pass of the compiler, or which decision of its schedules, is to blame for a fault."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from compiler.core.diagnostics import InternalError
from compiler.core.progress import Progress, Steps
from compiler.reduce.applications import Application, Counts, first_wrong_application
from compiler.reduce.candidate import Candidate, exposed
from compiler.reduce.checker import FaultChecker, OutOfTimeError, same_fault
from compiler.reduce.differential import ALONE, OPERATOR, RENDER, SMALLEST, first_difference, is_callable
from compiler.reduce.report import CRASH, HANG, SLOW, UNSUPPORTED, WRONG, Culprit, Fault
from compiler.reduce.trial import (
    COMPILING,
    OK,
    RUNNING,
    Outcome,
    count_applications,
    record_values,
    slowest_kernel,
)
from compiler.stages.optional import (
    BLOCK_LAYOUTS,
    CLUSTERS,
    FUSE,
    FUSION,
    GRAPH_REWRITE,
    IN_PLACE,
    LAST_BLOCKS,
    LAYOUT_CHOICE,
    LOWERING_PASS,
    OPTIONAL_PASSES,
    PARALLEL_BRANCHES,
    SCHEDULING,
    SHARE_MEMORY,
)
from compiler.targets import get_target

_PLANS = (PARALLEL_BRANCHES, IN_PLACE, SHARE_MEMORY, BLOCK_LAYOUTS)
"""What no interpreter runs: of these, one without which the fault is gone is to blame."""
_AMONG_BLOCKS = (CLUSTERS, LAST_BLOCKS)
"""Rules whose faults may be those of counters, fences and barriers of a device."""
_FOLDERS = {
    "frontend/": "import",
    "graph/rewrites/": GRAPH_REWRITE,
    "graph/fuse": FUSION,
    "graph/": LAYOUT_CHOICE,
    "schedule/": SCHEDULING,
    "lower/": LOWERING_PASS,
    "render/": RENDER,
    "core/compilers.py": RENDER,
}
RUNTIME = "runtime"
UNKNOWN = Culprit().kind
_ORIGINAL = "the original model"
_NO_HELP = "nothing that can be left out makes it faster"
_INTERPRETER_PART = 0.1
"""Of the time for a model, what a run in an interpreter may take where the fault is that there is no end."""
_GONE = "the fault is gone without it"
_ALL_RIGHT = "every step keeps the meaning, and kernels called one by one are right"


def find_culprit(
    candidate: Candidate, original: Candidate, fault: Fault, checker: FaultChecker, progress: Progress
) -> Culprit:
    """Who is to blame for what a model shows, by all means that suit the kind of fault.

    `original` is the model that it was reduced from: there a pass is applied more often.
    """
    if fault.kind == UNSUPPORTED:
        return Culprit(OPERATOR, fault.detail.partition(":")[0], fault.detail)
    blame = _Blame(candidate, original, fault, checker, progress)
    try:
        return blame.find()
    except OutOfTimeError:
        return replace(blame.culprit, not_run=(*blame.culprit.not_run, "passes and decisions: no time left"))


@dataclass(slots=True)
class _Blame:
    candidate: Candidate
    original: Candidate
    fault: Fault
    checker: FaultChecker
    progress: Progress
    culprit: Culprit = Culprit()  # noqa: RUF009 - a frozen record, so that all may share it

    def find(self) -> Culprit:
        outcome = self.checker.outcome(self.candidate)
        if _at_run(self.fault, outcome):
            self._differential()
            if self.culprit.kind == UNKNOWN:
                self._from_the_plan(outcome)
        elif outcome.where:
            self.culprit = Culprit(_part(outcome), outcome.where, outcome.message)
        self._leave_out(outcome)
        if self.fault.kind == SLOW and self.culprit.kind == UNKNOWN:
            self._slowest_kernel()
        self._which_application()
        return self.culprit

    def _differential(self) -> None:
        """The first step after which the meaning is another one."""
        self.progress("comparing the steps of the compiler", 0, 0)
        checker, candidate = self.checker, self.candidate
        names = [name for node in candidate.nodes for name in node.output if name]
        model = checker.place(exposed(candidate, names))
        feeds = candidate.arrays(checker.store)
        reference = checker.setup.reference
        recorded = checker.forked(lambda _: record_values(model, names, feeds, reference, checker.store.put))
        values = {name: np.asarray(checker.store.get(one)) for name, one in (recorded.answer or {}).items()}
        model = checker.place(candidate)
        seconds = checker.request.seconds * _INTERPRETER_PART if self.fault.kind == HANG else None

        def walk(tell: Any) -> dict[str, Any]:
            found = first_difference(model, feeds, values, checker.setup, tell, seconds)
            return {"culprit": None if found is None else asdict(found)}

        try:
            done = checker.forked(walk)
        except InternalError as error:  # the model that was found is worth more than who is to blame
            said = (error.why.strip().splitlines() or [error.what])[-1]
            self._not_run(f"comparing the steps of the compiler: {said[:300]}")
            return
        if done.signal and not done.timed_out and done.told == ALONE:
            self.culprit = Culprit(RENDER, "the text of a kernel", "it crashes when it is called by itself")
        elif done.timed_out and self.fault.kind == HANG and done.told == ALONE:
            evidence = "it does not end when it is called by itself, and its loops do"
            self.culprit = Culprit(RENDER, "the text of a kernel", evidence)
        elif done.answer is None:
            why = "it took too long" if done.timed_out else f"it ended by signal {done.signal}"
            self._not_run(f"comparing the steps of the compiler, at {done.told or 'its start'}: {why}")
        elif done.answer["culprit"] is not None:
            self.culprit = _read(done.answer["culprit"])

    def _leave_out(self, outcome: Outcome) -> None:
        """Decisions with whose smallest option the fault is gone; passes, too, where nothing is known."""
        known = self.culprit.kind != UNKNOWN
        passes = () if known else tuple(OPTIONAL_PASSES)
        steps = Steps(self.progress, "leaving passes out", len(passes) + len(outcome.decisions))
        decisions = tuple(one for one in outcome.decisions if self._gone(steps, conservative=(one,)))
        gone = tuple(one for one in passes if self._gone(steps, without=(*self.checker.setup.without, one)))
        self.culprit = replace(self.culprit, passes=self.culprit.passes or gone, decisions=decisions)
        if not known and (decisions or gone):
            kind, name = ("decision", decisions[0]) if decisions else (OPTIONAL_PASSES[gone[-1]], gone[-1])
            rule = outcome.rules[decisions[0]] if decisions else ""
            self.culprit = replace(self.culprit, kind=kind, name=name, evidence=_GONE, rule=rule)

    def _slowest_kernel(self) -> None:
        """Nothing that can be left out helps: where the time goes."""
        model, feeds = self.checker.place(self.candidate), self.candidate.arrays(self.checker.store)
        done = self.checker.forked(lambda _: slowest_kernel(model, feeds, self.checker.setup))
        if done.answer:
            nodes = ", ".join(done.answer["nodes"])
            evidence = f"it takes {done.answer['share']:.0%} of the time, for {nodes}; {_NO_HELP}"
            self.culprit = replace(
                self.culprit, kind="kernel", name=str(done.answer["name"]), evidence=evidence
            )

    def _which_application(self) -> None:
        """Of the pass that is to blame: the first application that is wrong, here and in the original."""
        name = FUSE if self.culprit.kind == FUSION else self.culprit.name
        if name not in OPTIONAL_PASSES:
            return
        self.progress("counting applications of the pass", 0, 0)
        models = {_ORIGINAL: self.original} if len(self.original.nodes) > len(self.candidate.nodes) else {}
        models |= {} if self.culprit.applications else {SMALLEST: self.candidate}
        for told, candidate in models.items():
            found = self._application(name, candidate)
            if found is not None:
                applications = (*self.culprit.applications, found.text(told))
                self.culprit = replace(self.culprit, applications=applications)

    def _application(self, name: str, candidate: Candidate) -> Application | None:
        checker = self.checker

        def limits(most: int | None) -> tuple[tuple[str, int], ...]:
            return () if most is None else ((name, most),)

        def shows(most: int) -> bool:
            found = checker.outcome(candidate, limits=limits(most))
            return same_fault(self.fault, found, checker.request.slower)

        def count(most: int | None) -> Counts:
            return self._counts(candidate, limits=limits(most))

        return first_wrong_application(name, shows, count)

    def _counts(self, candidate: Candidate, **changes: Any) -> Counts:
        """How often a compile of a model applies each pass, with some of the set-up changed."""
        model, setup = self.checker.place(candidate), replace(self.checker.setup, **changes)
        done = self.checker.forked(lambda _: {"counts": count_applications(model, setup)})
        found = (done.answer or {"counts": {}})["counts"]
        return {one: (int(number), str(what)) for one, (number, what) in found.items()}

    def _gone(self, steps: Steps, **changes: Any) -> bool:
        """Whether the model is right with a change."""
        found = self.checker.outcome(self.candidate, **changes)
        steps.advance()
        return found.kind == OK

    def _from_the_plan(self, outcome: Outcome) -> None:
        """Every step keeps the meaning, and kernels are right one by one: plan, decision or runtime."""
        setup, decisions = self.checker.setup, outcome.decisions
        # Where a result is wrong by chance, it may be right without a plan that has nothing to do with it.
        counts = self._counts(self.candidate)
        plans = [one for one in _PLANS if not counts or counts.get(one, (0, ""))[0]]
        steps = Steps(self.progress, "leaving plans out", len(plans) + len(decisions) + 1)
        gone = tuple(one for one in plans if self._gone(steps, without=(*setup.without, one)))
        alone = [one for one in gone if one != BLOCK_LAYOUTS]
        if not alone and any(self._gone(steps, conservative=(one,)) for one in decisions):
            return  # a decision is to blame, which is told later; without blocks there may be less to decide
        if gone:
            name = (alone or gone)[0]
            kind, not_run = OPTIONAL_PASSES[name], self.culprit.not_run
            self.culprit = Culprit(kind, name, _GONE, passes=gone, not_run=not_run)
        elif self.culprit.not_run or self._from_a_rule():
            return
        elif self._gone(steps, threads=1):
            self.culprit = Culprit(RUNTIME, "threads", "it is right with one thread")
        else:
            self.culprit = Culprit(RUNTIME, "plan or runtime", _ALL_RIGHT)
            if not is_callable(get_target(setup.target, setup.arch)):
                self.culprit = Culprit(RENDER, "text, plan or runtime", "every step keeps the meaning")
                self._not_run("calling kernels one by one: they are no code of this machine's processor")

    def _from_a_rule(self) -> bool:
        """Whether the fault is gone without a rule whose blocks wait for each other, which no loops show."""
        setup = self.checker.setup
        if get_target(setup.target, setup.arch).device is None:
            return False
        gone = tuple(
            one
            for one in _AMONG_BLOCKS
            if self.checker.outcome(self.candidate, without=(*setup.without, one)).kind == OK
        )
        if gone:
            self.culprit = Culprit(OPTIONAL_PASSES[gone[0]], gone[0], _GONE, passes=gone)
        return bool(gone)

    def _not_run(self, what: str) -> None:
        self.culprit = replace(self.culprit, not_run=(*self.culprit.not_run, what))


def _at_run(fault: Fault, outcome: Outcome) -> bool:
    """Whether it is what runs that is wrong, not the compile."""
    return fault.kind == WRONG or (fault.kind in (CRASH, HANG) and RUNNING in outcome.detail)


def _part(outcome: Outcome) -> str:
    """The kind of part that an error while compiling came from: of the pass, or of the file."""
    passes, _, file = outcome.where.rpartition(" at ")
    first = passes.partition(",")[0]
    if first in OPTIONAL_PASSES:
        return OPTIONAL_PASSES[first]
    return next((kind for folder, kind in _FOLDERS.items() if file.startswith(folder)), COMPILING)


def _read(data: dict[str, Any]) -> Culprit:
    lists = {name: tuple(data[name]) for name in ("passes", "decisions", "applications", "not_run")}
    return Culprit(**{**data, **lists})
