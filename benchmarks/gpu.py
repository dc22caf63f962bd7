"""Everything that needs a GPU, in one command: networks verified and timed, sanitizers, the peers beside.

    python benchmarks/gpu.py [--target cuda-nvidia] [--jobs mnist resnet50+f16 ...] [--minutes 10]
        [--stages verify time rules conform peers sanitize]

A job is a network of the zoo with a precision, f32 where none is named. The plan is made for machines that
are lent for minutes, the most valuable first: all jobs are compiled and verified at once on all processors;
then, on a quiet machine, those that were right are timed one by one, each kernel beside what its machine
code predicts; rules of the compiler are timed on and off, in turns (gpu_rules.py); then come ONNX's own
cases, the peers of gpu_peers.py, which takes finer options, and compute-sanitizer. What would begin behind
the time given is listed as not run. Files are written as results come in, and what they hold of the same
state of the project is not done again. Without a GPU of the target it says `not run`, with the reason, and
ends: nothing is counted as passed. `--plan` prints what would be done here, with minutes for each stage by
what jobs take on an H100, and ends; it needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import gpu_rules
from gpu_jobs import Job, Kernel, Row, answered, child, joined, library_path
from gpu_peers import ENGINES, NETWORKS, TARGETS, Case, cases_of, measure_all
from support import ROOT, WORK, machine, markdown_table, save

import compiler
from compiler import run
from toolchain import zoo

STAGES = ("verify", "time", "rules", "conform", "peers", "sanitize")
FIRST = ("mnist", "squeezenet", "resnet50", "mobilenetv2", "transformer-encoder", "bert-base")
"""Networks that are worth every precision, and come first."""
PRECISIONS = ("f32", "tf32", "f16")
SANITIZED = ("mnist", "mnist+f16", "transformer-encoder", "transformer-encoder+f16")
SANITIZERS = ("memcheck", "racecheck", "initcheck")
_VERIFY_SECONDS, _TIME_SECONDS = 40.0, 2.0
"""Of a job on an H100 with 16 processors: to compile and verify it beside 14 others, to start timing it."""
_SANITIZE_SECONDS = 12.0
_PEER_SECONDS = {"tk": 15.0, "eager": 5.0, "graph": 15.0, "compile": 120.0, "onnxruntime": 10.0}
"""Guesses: a run with a sanitizer; to make an engine of a case. torch.compile: by its parts."""
_CONFORM_SECONDS = 1500.0
"""Of one processor, for all of ONNX's cases: a guess."""
_SHARE = 0.55
"""Of the time given, what compiling and verifying may take where more stages follow."""


@dataclass
class Record:
    """Rows by job, and the files that hold them."""

    target: str
    device: str
    facts: Mapping[str, Any]
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of its files."""
        return f"gpu-{self.target}"

    def add(self, row: Row) -> None:
        """Keep a row, on file, too."""
        self.rows[row.job] = row
        rows = list(self.rows.values())
        self.keep(self.name, rows, f"{self.target}: {self.device}\n\n{table(rows)}")

    def keep(self, name: str, rows: Sequence[Any], text: str) -> None:
        """Write a file of rows that `kept` finds again."""
        content = {"machine": self.facts, "device": self.device, "rows": [asdict(one) for one in rows]}
        save(name, content, text)

    def kept(self, name: str) -> list[dict[str, Any]]:
        """The rows without a problem of a file of the same state of the project and of this device."""
        path = WORK / f"{name}.json"
        if not path.exists():
            return []
        found = json.loads(path.read_text(encoding="utf-8"))
        same = found["machine"]["commit"] == self.facts["commit"] != ""
        return [
            one for one in found["rows"] if same and found["device"] == self.device and not one["problem"]
        ]

    def resume(self) -> None:
        """Take what the file holds of the same state of the project, but for what had a problem."""
        for one in self.kept(self.name):
            kernels = tuple(Kernel(**item) for item in one.pop("kernels"))
            self.rows[one["job"]] = Row(**one, kernels=kernels)


def table(rows: Sequence[Row]) -> str:
    """One row per job."""
    lines = [
        [
            row.job,
            "-" if row.needed is None else f"{row.needed:.1e}",
            *(_ms(value) for value in (row.p50_ms, row.kernels_ms, row.predicted_ms)),
            "-" if row.gflops is None else f"{row.gflops:.0f}",
            row.problem[:160],
        ]
        for row in rows
    ]
    head = ["network", "error", "end to end ms", "kernels ms", "predicted ms", "GFLOP/s", "problem"]
    return markdown_table(head, lines)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


# ---------------------------------------------------------------- the stages


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, and until when (`time.monotonic`)."""

    target: str
    jobs: tuple[Job, ...]
    stages: tuple[str, ...]
    end: float
    seconds: float
    models: Path

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.end - time.monotonic()


def verify_all(plan: Plan, record: Record) -> None:
    """Compile and verify all jobs, as many at once as there are processors."""
    verify_jobs(plan, record, plan.jobs, _SHARE if len(plan.stages) > 1 else 1.0)


def verify_jobs(plan: Plan, record: Record, jobs: Sequence[Job], share: float) -> None:
    """Compile and verify those of some jobs that were not before, in a share of the time that is left."""
    end = time.monotonic() + share * plan.left
    plan.models.mkdir(parents=True, exist_ok=True)
    where = [plan.target, str(plan.models)]

    def one(job: Job) -> Row:
        left = end - time.monotonic()
        if left < 2:
            return Row(str(job), problem="not run: no time was left")
        return answered(job, "verify", where, left)

    wanted = [job for job in jobs if str(job) not in record.rows]
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1)) as pool:
        for future in as_completed([pool.submit(one, job) for job in wanted]):
            row = future.result()
            print(f"{row.job}: {row.problem or f'error {row.needed:.1e}'}", flush=True)
            record.add(row)


def time_all(plan: Plan, record: Record) -> None:
    """Time what was right, one by one, kernels, too (in the JSON)."""
    for job in plan.jobs:
        row = record.rows.get(str(job))
        library = library_path(job, plan.target, plan.models)
        if row is None or row.problem or row.p50_ms is not None or not library.exists():
            continue
        if plan.left < 3:
            record.add(replace(row, problem="not timed: no time was left"))
            continue
        found = answered(job, "time", [plan.target, str(plan.models), str(plan.seconds)], plan.left)
        record.add(replace(found, needed=row.needed, kernels=joined(row.kernels, found.kernels)))
        print(
            f"{job}: end to end {_ms(found.p50_ms)} ms, kernels {_ms(found.kernels_ms)} ms {found.problem}",
            flush=True,
        )


def compare_all(plan: Plan, record: Record) -> None:
    """Time what rules of the compiler change with and without them."""
    name, wanted = f"gpu-rules-{plan.target}", gpu_rules.comparisons()
    known = {(one["rule"], one["job"]): gpu_rules.Comparison(**one) for one in record.kept(name)}
    wanted = tuple((rule, job) for rule, job in wanted if (rule, str(job)) not in known)
    verify_jobs(plan, record, gpu_rules.jobs_of(wanted), _SHARE)

    def time_job(job: Job) -> Row:
        row = record.rows[str(job)]
        if row.problem:
            return row
        if plan.left < 3:
            return replace(row, problem="not timed: no time was left")
        return answered(job, "whole", [plan.target, str(plan.models), str(plan.seconds)], plan.left)

    rows = list(known.values())
    for rule, job in wanted:
        rows.append(gpu_rules.compared(rule, job, time_job))
        record.keep(name, rows, gpu_rules.table(rows))
        print(f"{rule}, {job}: {rows[-1].ratio or rows[-1].problem}", flush=True)


def sanitized(tool: str, kind: str, library: Path, left: float) -> str:
    """What a tool of compute-sanitizer says of one run of a library, or why it was not run."""
    if not library.exists():
        return "not run: it was not compiled"
    if left < 5:
        return "not run: no time was left"
    before = [tool, "--tool", kind, "--error-exitcode", "9", "--print-limit", "3"]
    text, problem = child(["run", str(library)], seconds=left, before=before)
    said = [line.strip("= ") for line in text.splitlines() if " SUMMARY" in line]
    return "; ".join(filter(None, (*said[-1:], problem[:300]))) or "not run: it said nothing"


def sanitize_all(plan: Plan, _record: Record) -> None:
    """Run small libraries under compute-sanitizer's tools."""
    tool = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if tool is None:
        print("not run: compute-sanitizer: it is not installed")
        return
    lines = []
    for name in SANITIZED:
        library = library_path(Job.parse(name), plan.target, plan.models)
        for kind in SANITIZERS:
            lines.append([name, kind, sanitized(tool, kind, library, plan.left)])
            print(*lines[-1], flush=True)
    save("gpu-sanitizers", {"lines": lines}, markdown_table(["network", "tool", "found"], lines))


def conform_all(plan: Plan, _record: Record) -> None:
    """ONNX's own cases on the device; what has an outcome of this state of the project is not run again."""
    if plan.left < 10:
        print("not run: ONNX's cases: no time was left")
        return
    argv = [sys.executable, "-W", "ignore", "-m", "tests.conformance", plan.target]
    try:
        done = run(argv, cwd=ROOT, timeout=plan.left)
    except compiler.TkError as error:
        print(f"not run to their end: ONNX's cases: {error}")
        return
    (WORK / "gpu-conformance.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    last = (done.stdout.strip() or done.stderr.strip() or "nothing was said").splitlines()[-1]
    print(f"ONNX's cases: {last}; what did not pass: {WORK / 'gpu-conformance.txt'}", flush=True)


def peer_device(target: str) -> str | None:
    """What gpu_peers.py calls the device of a target; None where it knows none."""
    name = target.partition(":")[0]
    return next((key for key, one in TARGETS.items() if one == name), None)


def peer_cases(device: str | None) -> list[Case]:
    """The cases for a device: rounded factors where there are matrix units for them."""
    if device is None:
        return []
    return cases_of(NETWORKS, (1, 16), PRECISIONS if device == "cuda" else ("f32",))


def peers_all(plan: Plan, _record: Record) -> None:
    """The peers beside, for what gpu_peers.py knows of this device."""
    device = peer_device(plan.target)
    if device is None:
        print(f"not run: peers: none for {plan.target}")
        return
    cases = peer_cases(device)
    measure_all(device, cases, ENGINES, plan.seconds, plan.models, f"gpu-peers-{device}", end=plan.end)


def foreseen(
    device: str | None, stages: Sequence[str], jobs: Sequence[Job], seconds: float, processors: int
) -> str:
    """A table of what a plan does on a device of gpu_peers.py, with minutes for each stage."""
    at_once, cases = max(1, processors - 1), peer_cases(device)
    engine = sum(_PEER_SECONDS[name] + seconds for name in ENGINES)
    runs, pairs = len(SANITIZED) * len(SANITIZERS), gpu_rules.comparisons()
    libraries, times = len(gpu_rules.jobs_of(pairs)), len(gpu_rules.TURNS) * len(pairs)
    known = {
        "verify": (f"{len(jobs)} jobs, {at_once} at once", _VERIFY_SECONDS * -(-len(jobs) // at_once)),
        "time": (f"{len(jobs)} jobs, one by one", (_TIME_SECONDS + seconds) * len(jobs)),
        "rules": (
            f"{len(pairs)} comparisons, {times} runs",
            _VERIFY_SECONDS * -(-libraries // at_once) + (_TIME_SECONDS + seconds) * times,
        ),
        "conform": (f"ONNX's cases, {at_once + 1} at once", _CONFORM_SECONDS / (at_once + 1)),
        "peers": (f"{len(cases)} cases of {len(ENGINES)} engines", engine * len(cases)),
        "sanitize": (f"{len(SANITIZED)} jobs, {len(SANITIZERS)} tools", _SANITIZE_SECONDS * runs),
    }
    rows = [[stage, known[stage][0], f"{known[stage][1] / 60:.1f}"] for stage in stages]
    return markdown_table(["stage", "what", "minutes, about"], rows)


_RUN = {
    "verify": verify_all,
    "time": time_all,
    "rules": compare_all,
    "conform": conform_all,
    "peers": peers_all,
    "sanitize": sanitize_all,
}


def default_jobs() -> list[str]:
    """The first networks in every precision, then all others."""
    first = [str(Job(name, mode)) for mode in PRECISIONS for name in FIRST]
    large = "perceptron-2gb"  # 2 GB of constants: behind all others
    return [*first, *(name for name in zoo.networks() if name not in (*FIRST, large)), large]


def main() -> None:
    """Carry out the plan, or say why not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="cuda-nvidia", metavar="NAME")
    parser.add_argument("--jobs", nargs="*", default=default_jobs(), metavar="NETWORK[+PRECISION]")
    parser.add_argument("--stages", nargs="*", choices=STAGES, default=list(STAGES))
    parser.add_argument("--minutes", type=float, default=30.0, help="for everything")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--models", type=Path, default=WORK / "models", help="where the networks are kept")
    parser.add_argument("--plan", action="store_true", help="print what would be done, and end")
    arguments = parser.parse_args()
    target, _, arch = arguments.target.partition(":")
    jobs = tuple(Job.parse(one) for one in arguments.jobs)
    try:
        for job in jobs:
            zoo.network(job.network)
    except compiler.TkError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        sys.exit(2)
    stages = tuple(stage for stage in STAGES if stage in arguments.stages)
    found = next(one for one in compiler.list_targets() if target in (one.name, *one.aliases))
    if arguments.plan:
        print(foreseen(peer_device(found.name), stages, jobs, arguments.seconds, os.cpu_count() or 1))
        return
    if not found.runs:
        print(f"not run: {found.name}: {found.runs.reason}")
        return
    plan = Plan(
        f"{found.name}:{arch or found.arch}",
        jobs,
        stages,
        time.monotonic() + 60 * arguments.minutes,
        arguments.seconds,
        arguments.models,
    )
    record = Record(found.name, found.runs.reason, machine())
    record.resume()
    for stage in plan.stages:
        _RUN[stage](plan, record)
    print(f"\n{found.name}: {record.device}\n\n{table(list(record.rows.values()))}")


if __name__ == "__main__":
    main()
