"""Records of trials that nobody made: a table as the team's, with whatever a test wants in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from toolchain.records.record import Accuracy, KnownCause, Latency, Record, State, UnsupportedOperator
from toolchain.records.store import RecordStore, new_id

START = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
TARGETS = ("cuda-nvidia", "sycl-nvidia", "opencl-nvidia", "rocm-amd", "sycl-amd", "opencl-amd", "rocm-hygon",
           "sycl-hygon", "opencl-hygon", "sycl-intel", "opencl-intel")  # fmt: skip
DEVICES = {"nvidia": "Tesla V100-32GB", "amd": "Radeon Pro (gfx906)", "hygon": "Z100", "intel": "ATS-P 300W"}
FAMILIES = ("mnist", "alexnet", "caffenet", "densenet", "efficientnet", "inception", "googlenet", "mobilenet",
            "rcnn", "resnet", "shufflenet", "squeezenet", "vgg", "zfnet")  # fmt: skip
HOSTILE = (
    "<script>alert(1)</script>",
    "]]>",
    "=cmd|' /C calc'!A0",
    "a\nb|c`d`*e*",
    "\x00\x1b[31m\u202e",
)
_NUMBERS = itertools.count()


def trial(
    network: str, target: str, state: State = State.VERIFIED, *, ms: float | None = None, **more: Any
) -> Record:
    """One record, a second later than the one before; the latency's interval is 2 % to both sides of `ms`.

    What is not a field of a record is one of its subject or place.
    """
    when = more.pop("when", START + timedelta(seconds=next(_NUMBERS)))
    subject = {
        "network": network,
        **{name: more.pop(name) for name in ("family", "revision", "model") if name in more},
    }
    places = ("arch", "device", "selector", "threads", "machine", "image")
    place = {
        "target": target,
        "machine": "bench-1",
        **{name: more.pop(name) for name in places if name in more},
    }
    latency = more.pop("latency", None) or (None if ms is None else times(ms))
    document = {"id": new_id(when), "kind": "cell", "when": when, "state": state, **more}
    return Record(**document, subject=subject, place=place, latency=latency)


def times(ms: float, engine: str = "tk", noisy: str = "") -> Latency:
    """A latency whose interval is 2 % to both sides."""
    return Latency(engine=engine, p50_ms=ms, p90_ms=ms * 1.05, p99_ms=ms * 1.1, low_ms=ms * 0.98,
                   high_ms=ms * 1.02, spread=0.05, runs=50, noisy=noisy)  # fmt: skip


def team_records(families: Sequence[str] = FAMILIES) -> list[Record]:
    """Families on eleven targets, with failures, exceptions, causes and two runs; one cell is slower."""
    wrong = Accuracy(reference="onnxruntime", output="prob", where=(0, 7), actual=float("nan"), expected=0.25,
                     needed=float("inf"), tolerance=1e-5, problem="not a number")  # fmt: skip
    cause = KnownCause(issue="hip-kernel-not-found", cause="The image has no kernel of that name.",
                       action="Compare the arch that was built with the device's.")  # fmt: skip
    found: list[Record] = []
    for run, slower in (("run-1", 1.0), ("run-2", 1.3)):
        for number, (family, target) in enumerate(itertools.product(families, TARGETS)):
            language, _, vendor = target.partition("-")
            common = {
                "family": family,
                "revision": f"{family}-9",
                "run": run,
                "key": f"{family} {target} {run}",
            }
            if language == "rocm" and vendor == "hygon":
                found.append(trial(family, target, State.NOT_RUN, why="no device: no DCU here", **common))
                continue
            common["device"] = DEVICES[vendor]
            ms = (3 + number % 11) * (slower if (family, target) == ("resnet", "sycl-nvidia") else 1.0)
            engine = times(ms * 1.5, "onnxruntime") if family == "resnet" else None
            found.append(
                trial(family, target, ms=ms, baselines=(engine,) if engine else (),
                      seconds={"compile": 2.5, "run": 1}, command=("tk", "verify", "x y.so"), **common)
            )  # fmt: skip
            if (family, target) == ("resnet", "sycl-nvidia"):
                common["revision"] = "resnet50-v1-7"
                found.append(
                    trial(family, target, State.WRONG, accuracy=wrong, why="outputs differ", **common)
                )
            if (family, target) == ("vgg", "sycl-amd"):
                common["revision"] = "vgg16-7"
                state = State.CRASHED if run == "run-1" else State.EMULATED
                more = {"causes": (cause,), "log": "PI HIP ERROR\nhipErrorNotFound"} if run == "run-1" else {}
                found.append(trial(family, target, state, why="exit code 134", **more, **common))
    operator = UnsupportedOperator(operator="Loop", count=2, why="no record of it")
    found.append(trial("unet", "cpu", State.UNSUPPORTED, family="unet", operators=(operator,), run="run-2"))
    return found


def hostile_records() -> list[Record]:
    """Names and texts that would be markup, formulas or commands if they were not escaped."""
    latency = Latency(p50_ms=float("nan"), p90_ms=1, p99_ms=1, low_ms=float("-inf"), high_ms=float("inf"),
                      spread=0, runs=1, noisy="<b>busy</b>")  # fmt: skip
    states = itertools.cycle(State)
    return [
        trial(text, f"cpu-{text}", next(states), family=text, revision=text, why=text, log=text * 20_000,
              run=text, device=text, machine=text, arch=text, latency=latency, command=(text, text),
              model=text,
              causes=(KnownCause(issue=text, cause=text, action=text),),
              operators=(UnsupportedOperator(operator=text, count=1, why=text),))
        for text in HOSTILE for _ in range(3)
    ]  # fmt: skip


def store_of(folder: Path, records: Iterable[Record]) -> Path:
    """A folder of these records."""
    store = RecordStore(folder)
    for one in records:
        store.append(one)
    return folder
