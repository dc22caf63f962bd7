"""Batches on a cluster's workers: who gets what, and what becomes of it when workers are lost or refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from compiler.cluster.connection import Cluster
from compiler.core.diagnostics import BuildError, HostError
from compiler.stages.workload import Workload
from compiler.targets import Target, get_target
from compiler.tune.candidate import KernelCandidate
from compiler.tune.cluster import measurer as measuring
from compiler.tune.cluster import roster as rosters
from compiler.tune.cluster import work
from compiler.tune.cluster.measurer import ClusterMeasurer
from compiler.tune.cluster.message import environment_from, pack_message, unpack_message
from compiler.tune.cluster.place import described_target, target_from
from compiler.tune.cluster.roster import Roster, answer
from compiler.tune.measure.built import BuiltCandidate
from compiler.tune.record import OK, Environment, Measured
from compiler.tune.strategies.space import Space
from compiler.tune.strategies.strategy import RandomSearch
from tests.support.fake_cluster import FakeCluster
from tests.support.tuned import product

WORKLOAD = product(8, 16, 24)
MEASURES = "measure:one"
WORKERS = {"b1": "build", "b2": "build", "m1": MEASURES}
ABOUT = {"target": described_target(get_target("cpu"), plugins=False), "threads": 1}
Loses = Callable[[str, str], bool]


def seconds_of(program: str) -> float:
    """A time for each program, the same everywhere."""
    return 1e-3 * (1 + int(program[:6], 16) / (1 << 24))


def replayed(workload: Workload, asked: Mapping[str, Any], built: Any) -> work.MeasuredPart:
    """In place of `measure_here`: the first of those built is the default schedule."""
    assert workload.key == WORKLOAD.key
    found = [Measured(OK, (seconds_of(one["program"]),), "", "replay") for one, _ in built[1:]]
    return work.MeasuredPart(found, asked["pace"] or seconds_of(built[0][0]["program"]))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compilers, no measurements, no waiting."""

    def build(made: KernelCandidate, _target: Target, _settings: object, path: Path) -> BuiltCandidate:
        path.write_bytes(made.program.encode())
        return BuiltCandidate("", 0, path)

    monkeypatch.setattr(work, "build_candidate", build)
    monkeypatch.setattr(work, "measure_here", replayed)
    monkeypatch.setattr(measuring, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(measuring, "_BLINK_SECONDS", 0.001)
    monkeypatch.setattr(rosters, "_LOOK_SECONDS", 0.001)


def environment() -> Environment:
    asked = pack_message({"do": "describe", **ABOUT})
    return environment_from(answer(work.carry_out(asked))["environment"])


def on(cluster: FakeCluster, wanted: Environment | None = None) -> ClusterMeasurer:
    """What measures on a cluster for a search whose environment is this machine's, or as wanted."""
    roster = Roster(cast(Cluster, cluster), "one", ABOUT, wanted or environment(), patience=0.2)
    return ClusterMeasurer(roster, target_from(ABOUT["target"]), ABOUT, 1 << 20)


def candidates(count: int) -> list[KernelCandidate]:
    return RandomSearch(Space(WORKLOAD, get_target("cpu")), seed=1).propose(count)


def times(measured: list[Measured]) -> list[tuple[float, ...]]:
    assert {one.status for one in measured} == {OK}, measured
    return [one.seconds for one in measured]


def test_each_is_built_once_and_measured_by_who_has_the_device() -> None:
    cluster, made = FakeCluster(WORKERS), candidates(5)
    measurer = on(cluster)
    assert times(measurer.measure(made)) == [(seconds_of(one.program),) for one in made]
    builders = [who for who, resource in cluster.done if resource == "build"]
    assert (len(builders), set(builders)) == (len(made) + 1, {"b1", "b2"})  # and the default schedule
    assert [who for who, resource in cluster.done if resource == MEASURES] == ["m1"]
    assert measurer.pace == {WORKLOAD.key: seconds_of(made[0].program)}
    cluster.done.clear()
    measurer.measure(made[:2])
    assert [resource for _, resource in cluster.done].count("build") == 2  # the default is known


def test_two_devices_of_a_kind_share_a_batch() -> None:
    cluster, made = FakeCluster({**WORKERS, "m2": MEASURES}), candidates(5)
    assert times(on(cluster).measure(made)) == [(seconds_of(one.program),) for one in made]
    assert sorted(who for who, resource in cluster.done if resource == MEASURES) == ["m1", "m2"]


def once(worker: str) -> Loses:
    left = [worker]
    return lambda who, _: who in left and not left.remove(who)


@pytest.mark.parametrize("victim", ["b1", "m1"])
def test_a_worker_that_is_lost_costs_no_candidate(victim: str) -> None:
    cluster = FakeCluster(WORKERS, once(victim), lambda who: f"{who} again" if who == "m1" else None)
    made = candidates(4)
    assert times(on(cluster).measure(made)) == [(seconds_of(one.program),) for one in made]
    assert victim not in cluster.there


def test_who_loses_workers_twice_is_recorded_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that goes down with one candidate: which of the batch it was is found out."""
    made = candidates(4)
    fatal = made[2].program
    cluster = FakeCluster(WORKERS, back=lambda who: f"{who}+")
    submit, measured = cluster.submit, []

    def noting(task: Any, *arguments: Any, **words: Any) -> Any:
        pieces = [unpack_message(one.value)[0]["program"] for one in arguments[2:]]
        if words.get("resource") == MEASURES:
            measured.append(pieces)
        cluster.loses = lambda _, resource: resource == MEASURES and fatal in pieces
        return submit(task, *arguments, **words)

    monkeypatch.setattr(cluster, "submit", noting)
    found = on(cluster).measure(made)
    assert [one.status for one in found] == [OK, OK, "device-lost", OK]
    assert "lost twice" in found[2].message
    assert measured == [[one.program for one in made], *([one.program] for one in made)]


def test_a_worker_of_another_environment_takes_no_part() -> None:
    here = environment()
    cluster = FakeCluster(WORKERS)
    other = on(cluster, replace(here, device="another processor"))
    with pytest.raises(HostError, match=f"no worker of the cluster has the resource {MEASURES}") as caught:
        other.measure(candidates(2))
    assert f"device is {here.device}, not another processor" in caught.value.why
    other = on(cluster, replace(here, compiler="g++ 99"))
    with pytest.raises(HostError, match="resource build") as caught:
        other.measure(candidates(2))
    assert "compiler is" in caught.value.why


def test_a_builder_that_cannot_build_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    build = work.build_candidate
    cluster = FakeCluster(WORKERS)
    monkeypatch.setattr(work, "here", lambda: cluster.doing)

    def full(*words: Any) -> BuiltCandidate:
        if cluster.doing == "b1":
            raise HostError("no space left on device")
        return build(*words)

    monkeypatch.setattr(work, "build_candidate", full)
    made = candidates(3)
    measurer = on(cluster)
    assert times(measurer.measure(made)) == [(seconds_of(one.program),) for one in made]
    assert measurer.roster.refused == {"b1": "no space left on device"}


def test_what_no_compiler_takes_is_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    made, build = candidates(3), work.build_candidate

    def refuses(one: KernelCandidate, *words: Any) -> BuiltCandidate:
        if one.program == made[1].program:
            raise BuildError("the compiler failed", why="k.cpp: In function\nk.cpp:1: error: no")
        return build(one, *words)

    monkeypatch.setattr(work, "build_candidate", refuses)
    found = on(FakeCluster(WORKERS)).measure(made)
    assert [one.status for one in found] == [OK, "build", OK]
    assert found[1].message == "k.cpp:1: error: no"


def test_nobody_comes() -> None:
    cluster = FakeCluster({"m1": MEASURES})
    with pytest.raises(HostError, match="no worker of the cluster has the resource build") as caught:
        on(cluster).measure(candidates(1))
    assert "tk tune worker --cluster tcp://127.0.0.1:1 --build 1" in caught.value.hint


def test_a_worker_makes_a_candidate_by_itself_and_says_where_it_is_another() -> None:
    (made,) = candidates(1)
    request = {
        "do": "build", **ABOUT, "workload": WORKLOAD.to_json(), "program": "another",
        "decisions": [[name, list(value)] for name, value in made.decisions.items()],
    }  # fmt: skip
    with pytest.raises(Exception, match="another program of the same decisions"):
        answer(work.carry_out(pack_message(request)))


def test_nothing_is_raised_on_a_worker() -> None:
    for message in (b"no message", pack_message({"do": "nothing"}), pack_message({"do": "build"})):
        header, _ = unpack_message(work.carry_out(message))
        assert header["error"]["kind"] == "InternalError"


def test_a_message_is_as_it_was() -> None:
    files = [b"\n\x00", b"", b"{}"]
    assert unpack_message(pack_message({"a": [1, "\n"]}, files)) == ({"a": [1, "\n"]}, files)
    for broken in (pack_message({}, files)[:-1], b"{}", b"[]\n", b""):
        with pytest.raises((ValueError, KeyError)):
            unpack_message(broken)


def test_a_target_means_the_same_elsewhere() -> None:
    target = get_target("cpu")
    facts = replace(target.facts, l2=replace(target.facts.l2, bytes=123456))
    sent = json.loads(json.dumps(described_target(replace(target, facts=facts), plugins=False)))
    got = target_from(sent)
    assert (got.text, got.facts.l2, got.facts.l3) == (target.text, facts.l2, facts.l3)
