"""What a record says, in words and numbers for people; the same in every form of a report."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator

from compiler import counted
from toolchain.records.cells import STATE_MEANINGS, mark_of
from toolchain.records.record import FAILED, Accuracy, Latency, Record, State
from toolchain.report.content import RecordReport, ReportCell, Speed, needs_device, target_title
from toolchain.report.families import state_words

MOST_LOG = 16 * 1024
"""Characters of a log that a page shows: its end, where the error is."""


def why_words(record: Record) -> str:
    """Why a trial ended as it did; of what cannot be compiled the operators."""
    operators = "; ".join(
        f"{one.operator}, {counted(one.count, 'time')}: {one.why}" for one in record.operators
    )
    return record.why or operators


def state_class(state: State) -> str:
    """By which a state is coloured: passed, unproven, failed or not-run."""
    if state in FAILED:
        return "failed"
    return {"✓": "passed", "○": "unproven"}.get(mark_of(state), state.value)


def milliseconds(value: float) -> str:
    """Three digits that count."""
    return f"{value:.3g}" if not math.isfinite(value) or abs(value) < 1000 else f"{value:.0f}"


def latency_words(latency: Latency) -> str:
    """Median, and the interval that it lies in."""
    interval = f"{milliseconds(latency.low_ms)} to {milliseconds(latency.high_ms)}"
    noisy = f"; decides nothing: {latency.noisy}" if latency.noisy else ""
    return f"{milliseconds(latency.p50_ms)} ms ({interval}){noisy}"


def speed_words(speed: Speed) -> str:
    """A speed-up with its interval."""
    return f"{speed.ratio:.2f} ({speed.low:.2f} to {speed.high:.2f})"


def device_words(record: Record) -> str:
    """What ran the kernels: a device, or the cores of a machine; `no device` where none ran."""
    if record.place.device or needs_device(record.place.target):
        return record.place.device or "no device"
    return f"cores of {record.place.machine or 'this machine'}"


def facts(trial: ReportCell, report: RecordReport) -> Iterator[tuple[str, str]]:
    """All that is known of a cell, as labels and texts, but for its log; what is empty is left out."""
    yield from ((label, text) for label, text in _facts(trial, report) if text)


def _facts(trial: ReportCell, report: RecordReport) -> Iterator[tuple[str, str]]:
    record = trial.record
    subject, place, versions = record.subject, record.place, record.versions
    yield "state", f"{state_words(record.state)}: {STATE_MEANINGS[record.state]}"
    yield "why", record.why
    yield "causes", "\n".join(f"{one.issue}: {one.cause} What to do: {one.action}" for one in record.causes)
    yield (
        "not supported",
        "\n".join(f"{o.operator}, {counted(o.count, 'time')}: {o.why}" for o in record.operators),
    )
    yield "accuracy", accuracy_words(record.accuracy) if record.accuracy else ""
    yield "latency", _latency_facts(trial)
    yield f"speed-up to {report.baseline}", speed_words(trial.speed) if trial.speed else ""
    yield "beside", "\n".join(f"{b.engine}: {latency_words(b)}" for b in _baselines(trial))
    yield "model", ", ".join(filter(None, [subject.network, subject.revision, subject.model]))
    yield "model's sha256", subject.model_sha256
    yield "target", ", ".join(filter(None, [target_title(place.target), place.arch, place.precision]))
    yield "device", device_words(record)
    yield "threads", str(place.threads or "")
    yield "machine", place.machine
    yield "image", place.image
    yield "worker", place.worker
    yield "versions", "\n".join(f"{name}: {text}" for name, text in versions if text)
    yield "seconds", ", ".join(f"{name} {value:.3g}" for name, value in record.seconds.items())
    yield "library", f"{record.library_bytes:,} bytes {record.library_sha256}" if record.library_bytes else ""
    yield "peak memory", f"{record.peak_memory:,} bytes" if record.peak_memory else ""
    yield "machine before", _device_state(record, after=False)
    yield "machine after", _device_state(record, after=True)
    yield "when", f"{record.when.isoformat(timespec='seconds')}"
    yield "run", record.run
    yield "command", shlex.join(record.command)
    yield "record", record.id


def accuracy_words(worst: Accuracy) -> str:
    """The worst element of the worst output."""
    where = ", ".join(map(str, worst.where))
    problem = f"; {worst.problem}" if worst.problem else ""
    return (
        f"worst of output {worst.output} at [{where}]: {worst.actual:.7g}, {worst.reference} has "
        f"{worst.expected:.7g}; needs {worst.needed:.3g} of the output's scale, allowed "
        f"{worst.tolerance:.3g}{problem}"
    )


def log_end(log: str) -> str:
    """The end of a log, which has the error."""
    if len(log) <= MOST_LOG:
        return log
    return f"[... {len(log) - MOST_LOG} characters are in the record ...]\n{log[-MOST_LOG:]}"


def _latency_facts(trial: ReportCell) -> str:
    latency = trial.latency
    if latency is None:
        return ""
    slower = "; slower than the run before, beyond both intervals" if trial.slower else ""
    more = f"p90 {milliseconds(latency.p90_ms)}, p99 {milliseconds(latency.p99_ms)}, {latency.runs} runs"
    return f"{latency_words(latency)}; {more}{slower}"


def _baselines(trial: ReportCell) -> tuple[Latency, ...]:
    return trial.trials.timed.baselines if trial.trials.timed else ()


def _device_state(record: Record, *, after: bool) -> str:
    state = record.after if after else record.before
    told = ((state.clock_mhz, "MHz"), (state.temperature_c, "degrees Celsius"), (state.load, "load"))
    return ", ".join(f"{value:g} {unit}" for value, unit in told if value is not None)
