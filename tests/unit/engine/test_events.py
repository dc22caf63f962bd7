"""Logs of the three builders as events, and what the times of earlier builds say."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchain.engine.events import BuildKitLog, Event, StepLog, brief, split_lines
from toolchain.engine.progress import StepTimes, duration

BUILDKIT = """\
#1 [internal] load build definition from Dockerfile
#1 sha256:f52421499688a349f559ea6608427f9587eef25448dd0e6917147adcd0cce58a
#1 transferring dockerfile: 355B done
#1 DONE 0.0s

#5 [one 2/2] RUN --mount=type=cache,id=apt,target=/var/cache/apt echo hello
#5 sha256:bfd79d59feed835f502778fac61ae66158545a14b781f09c844a2e8ae1464536
#5 0.498 hello

#6 [two 1/2] RUN true
#6 CACHED

#5 [one 2/2] RUN --mount=type=cache,id=apt,target=/var/cache/apt echo hello
#5 0.502 DONE is what I say
#5 DONE 0.6s

#7 [two 2/2] RUN false
#7 ERROR: executor failed running [/bin/sh -c false]: exit code: 1
------
 > [two 2/2] RUN false:
------
executor failed running [/bin/sh -c false]: exit code: 1
"""
CLASSIC = """\
Step 1/3 : FROM debian:bookworm
 ---> 0123456789ab
Step 2/3 : RUN echo hello
 ---> Running in 0123456789ab
hello
Removing intermediate container 0123456789ab
 ---> 123456789abc
Step 3/3 : LABEL a=b
 ---> Using cache
 ---> 23456789abcd
Successfully built 23456789abcd
Successfully tagged x:1
"""
PODMAN = """\
[1/2] STEP 1/2: FROM debian:bookworm AS one
[1/2] STEP 2/2: RUN echo hello
hello
--> 8a353dec857
[2/2] STEP 1/2: FROM debian:bookworm
[2/2] STEP 2/2: LABEL a=b
--> Using cache 8a353dec857aa
[2/2] COMMIT x:1
--> 447c990065b
Successfully tagged localhost/x:1
447c990065bd07b70978072445a33f48a2545b1ac59de4fb729652083bd78ae5
"""


def buildkit(text: str) -> list[Event]:
    events: list[Event] = []
    read = BuildKitLog(events.append)
    for line in text.splitlines():
        read(line)
    return events


def steps(text: str) -> list[Event]:
    events: list[Event] = []
    clock = iter(range(100))
    read = StepLog(events.append, lambda: float(next(clock)))
    for line in text.splitlines():
        read(line)
    read.finish()
    return events


def test_buildkit() -> None:
    cached = "[one 2/2] RUN --mount=type=cache,id=apt,target=/var/cache/apt echo hello"
    assert buildkit(BUILDKIT) == [
        Event("started", "1", "[internal] load build definition from Dockerfile"),
        Event("output", "1", "transferring dockerfile: 355B done"),
        Event("done", "1", seconds=0.0),
        Event("started", "5", cached),
        Event("output", "5", "hello"),
        Event("started", "6", "[two 1/2] RUN true"),
        Event("cached", "6"),
        Event("output", "5", "DONE is what I say"),
        Event("done", "5", seconds=0.6),
        Event("started", "7", "[two 2/2] RUN false"),
        Event("failed", "7", "ERROR: executor failed running [/bin/sh -c false]: exit code: 1"),
    ]


def test_classic() -> None:
    assert steps(CLASSIC) == [
        Event("started", "1/3", "[1/3] FROM debian:bookworm"),
        Event("done", "1/3", seconds=1.0),
        Event("started", "2/3", "[2/3] RUN echo hello"),
        Event("output", "2/3", "hello"),
        Event("done", "2/3", seconds=1.0),
        Event("started", "3/3", "[3/3] LABEL a=b"),
        Event("cached", "3/3", seconds=1.0),
    ]


def test_podman() -> None:
    found = steps(PODMAN)
    assert [(one.kind, one.step) for one in found if one.kind != "output"] == [
        ("started", "1/2 1/2"),
        ("done", "1/2 1/2"),
        ("started", "1/2 2/2"),
        ("done", "1/2 2/2"),
        ("started", "2/2 1/2"),
        ("done", "2/2 1/2"),
        ("started", "2/2 2/2"),
        ("cached", "2/2 2/2"),
    ]
    assert Event("output", "1/2 2/2", "hello") in found


def test_brief() -> None:
    assert brief("[a 1/2] RUN --mount=type=cache,id=x --mount=type=bind,y  echo   x") == "[a 1/2] RUN echo x"


def test_lines_in_parts() -> None:
    assert list(split_lines(iter(["a\nb", "c\r\n", "", "d"]))) == ["a", "bc", "d"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (185.2, "3 min 05 s"), (7800, "2 h 10 min")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_time_left_comes_from_the_last_build(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    first = StepTimes(path)
    assert first.seconds_left(0) is None
    tell = [("1", "[1/2] RUN a", 10.0), ("2", "[2/2] RUN b", 30.0)]
    for step, text, seconds in tell:
        first.hear(Event("started", step, text), 0)
        first.hear(Event("done", step, seconds=seconds), seconds)
    first.keep()

    second = StepTimes(path)
    assert second.seconds_left(0) == 40
    second.hear(Event("started", "9", "[1/3] RUN a"), 100)
    assert second.seconds_left(104) == 36
    assert second.seconds_left(150) == 30  # it takes longer than last time
    second.hear(Event("cached", "9"), 150)
    assert second.seconds_left(150) == 30
    second.hear(Event("started", "10", "[2/2] RUN b"), 150)
    second.hear(Event("done", "10", seconds=20), 170)
    assert second.seconds_left(170) == 0
    second.keep()
    assert StepTimes(path).known == {"RUN a": 10.0, "RUN b": 20.0}


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": "b"}', "null"])
def test_broken_times_are_no_times(tmp_path: Path, content: str) -> None:
    (tmp_path / "times.json").write_text(content)
    assert StepTimes(tmp_path / "times.json").seconds_left(0) is None
