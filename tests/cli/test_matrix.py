"""`tk matrix` as it is typed: what would be made, what was made, the table, differences."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Result
from toolchain.records.record import Latency, Place, Record, State, Subject, UnsupportedOperator
from toolchain.records.store import RecordStore, new_id

Tk = Callable[..., Result]
_WHEN = datetime(2026, 1, 2, tzinfo=UTC)


def _record(number: int, revision: str, target: str, state: State, ms: float = 0.0, **fields: Any) -> Record:
    when = _WHEN + timedelta(minutes=number)
    times = {"p50_ms": ms, "p90_ms": ms, "p99_ms": ms, "low_ms": 0.95 * ms, "high_ms": 1.05 * ms}
    return Record(
        id=new_id(when), kind="cell", key=f"{revision}{target}", when=when, state=state,
        subject=Subject(network=revision.partition("-")[0], family="resnet", revision=revision),
        place=Place(target=target, arch="host", machine="m"),
        latency=Latency(**times, spread=0.1, runs=99) if ms else None, **fields,
    )  # fmt: skip


@pytest.fixture
def records(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    found = [
        _record(1, "resnet18-v1", "cpu", State.VERIFIED, 10.0),
        _record(2, "resnet50-v1", "cpu", State.VERIFIED, 20.0),
        _record(3, "resnet18-v1", "opencl-cpu", State.VERIFIED),
        _record(4, "resnet50-v1", "opencl-cpu", State.WRONG, why="output y[0,3] is 2",
                log="$ tk verify\nbad\n"),
        _record(5, "resnet50-v1", "cuda-nvidia", State.UNSUPPORTED, why="operators: Loop",
                operators=(UnsupportedOperator(operator="Loop", count=2, why="control flow"),)),
    ]  # fmt: skip
    for one in found:
        RecordStore(folder).append(one)
    return folder


def test_the_table_has_exceptions_by_revision(tk: Tk, records: Path) -> None:
    shown = tk("matrix", "show", "--records", records).out.splitlines()
    assert [line.split("  ")[0] for line in shown] == ["network", "resnet"]
    row = tk("matrix", "show", "--records", records, "--json").json["rows"][0]
    assert row["family"] == "resnet"
    assert row["opencl-cpu"] == "✓ (resnet50-v1 ✗ wrong)"
    assert (row["cpu"], row["cuda-nvidia"]) == ("✓", "✗ unsupported")


def test_a_whole_record_is_shown(tk: Tk, records: Path) -> None:
    text = tk("matrix", "show", "resnet50-v1", "opencl", "--records", records).out
    assert "state: wrong\nwhy: output y[0,3] is 2\n" in text
    assert text.endswith("log:\n  $ tk verify\n  bad\n")
    assert "operator: Loop" in tk("matrix", "show", "resnet50-v1", "cuda-nvidia", "--records", records).out
    rows = tk("matrix", "show", "resnet", "--records", records, "--json").json
    assert len(rows) == 5
    missing = tk("matrix", "show", "resnet51-v1", "--records", records)
    assert (missing.code, "did you mean 'resnet50-v1'?" in missing.err) == (2, True)


def test_differences_of_two_stores(tk: Tk, records: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    for one in (
        _record(11, "resnet18-v1", "cpu", State.VERIFIED, 12.0),
        _record(12, "resnet50-v1", "cpu", State.VERIFIED, 20.5),
        _record(13, "resnet18-v1", "opencl-cpu", State.CRASHED, why="SIGSEGV"),
        _record(14, "resnet50-v1", "opencl-cpu", State.VERIFIED),
        _record(15, "resnet50-v1", "cuda-nvidia", State.UNSUPPORTED),
    ):
        RecordStore(later).append(one)
    done = tk("matrix", "diff", records, later)
    assert done.code == 1
    assert [line.partition(" (")[0] for line in done.out.splitlines()] == [
        "broken: resnet18-v1 on opencl-cpu",
        "slower: resnet18-v1 on cpu",
        "fixed: resnet50-v1 on opencl-cpu",
        "2 regressions, 3 changes, 2 the same",
    ]
    assert "12 ms [11.4, 12.6] now, 1.20 times" in done.out
    same = tk("matrix", "diff", records, records, "--json")
    assert (same.code, same.json["changes"]) == (0, [])


def test_what_got_better_is_no_finding(tk: Tk, records: Path, tmp_path: Path) -> None:
    """The exit code is that of `tk report --compare`, whatever changed."""
    later = tmp_path / "later"
    RecordStore(later).append(_record(12, "resnet50-v1", "cpu", State.VERIFIED, 15.0))
    RecordStore(later).append(_record(14, "resnet50-v1", "opencl-cpu", State.VERIFIED))
    done = tk("matrix", "diff", records, later)
    assert (done.code, done.out.splitlines()[-1]) == (0, "0 regressions, 5 changes, 0 the same")
    assert tk("report", "--compare", records, later).code == 0


def test_what_would_be_made(tk: Tk, tmp_path: Path) -> None:
    options = ("--network", "mnist", "--target", "cpu", "--records", tmp_path / "r", "--dry-run")
    assert tk("matrix", "run", *options, "--json").json == [
        {"trial": "mnist on cpu", "would": "be made", "why": "not tried yet"}
    ]
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run", "--network", "mnistt", "--target", "cpu"), 3, "did you mean 'mnist'?"),
        (("run", "--network", "mnist", "--target", "cpuu"), 2, "unknown target"),
        (("run", "--network", "mnist", "--device", "pocl"), 2, "name the targets with --target"),
        (("run", "--do", "comple"), 2, "no such value"),
        (("run", "nowhere.yaml"), 3, "nowhere.yaml"),
        (("status",), 2, "no run is called 'last'"),
        (("diff", "before"), 2, "no run is called 'before'"),
    ],
)
def test_mistakes(tk: Tk, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    done = tk("matrix", *arguments, "--records", tmp_path / "records")
    assert (done.code, said in done.err) == (code, True), done.err


_PLANTED: Mapping[str, str] = {
    "Ceil": "s/tk_store(/__builtin_trap(); tk_store(/",
    "Sqrt": "s/tk_store(/for (volatile int i = 0; i >= 0; i = 1) {} tk_store(/",
    "Abs": "s/tk_store(/for (;;) { volatile char *m = (volatile char *)__builtin_malloc(1 << 26); "
    "for (long i = 0; i < 1 << 26; i += 4096) m[i] = 1; } tk_store(/",
    "Floor": "s/tk_floor(/tk_ceil(/",  # the last, as what it makes would be found by another
}
"""What a faulty compiler makes of kernels with an operator: a wrong result, a crash, a hang, no memory."""


def _models(folder: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    folder.mkdir()
    for op in ("Neg", *_PLANTED, "StringNormalizer"):
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 40]) for name in "xy")
        graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], name="n")], "g", [x], [y])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, folder / f"{op.lower()}.onnx")


@pytest.mark.slow
def test_what_is_planted_ends_in_five_different_states(tmp_path: Path, tk: Tk) -> None:
    """The compiler of the kernels is faulty; everything else is as ever."""
    _models(tmp_path / "models")
    compiler = tmp_path / "g++-faulty"
    lines = [f"  grep -q 'tk_{op.lower()}(' $one && sed -i '{edit}' $one" for op, edit in _PLANTED.items()]
    compiler.write_text(
        '#!/bin/sh\nfor one in "$@"; do case $one in kernel.cpp)\n'
        + "\n".join(lines) + '\n;; esac; done\nexec g++ "$@"\n'
    )  # fmt: skip
    compiler.chmod(0o755)
    env = {"TK_CXX": str(compiler)}
    options = ("--file", "models", "--target", "cpu", "--threads", "1", "--records", "records", "--json")
    warm = tk("matrix", "run", "--file", "models/neg.onnx", *options[2:], env=env)  # makes the runtime, too
    assert (warm.code, warm.json["states"]) == (0, {"verified": 1}), warm.err
    done = tk("matrix", "run", *options, "--seconds", "45", "--memory", "2 GB", env=env)
    found = {one["subject"]["network"]: (one["state"], one["why"]) for one in done.json["cells"]}
    assert {name: state for name, (state, _) in found.items()} == {
        "neg": "verified", "floor": "wrong", "ceil": "crashed", "sqrt": "timed-out", "abs": "out-of-memory",
        "stringnormalizer": "unsupported",
    }, found  # fmt: skip
    assert (done.code, done.json["made"], done.json["kept"]) == (1, 5, 1)
    assert "output y[" in found["floor"][1]
    assert "SIGILL" in found["ceil"][1] or "SIGTRAP" in found["ceil"][1]
    assert found["stringnormalizer"][1] == "operators: StringNormalizer"
    again = tk("matrix", "run", *options, "--seconds", "45", "--memory", "2 GB", env=env)
    assert (again.code, again.json["made"], again.json["kept"]) == (1, 0, 6)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="devices on host cores are tried on Linux")
def test_networks_on_every_target_of_this_machine(tmp_path: Path, tk: Tk) -> None:
    """Once; then nothing is left to do, which takes no longer than five seconds of a processor."""
    options = ("--network", "mnist", "--do", "compile,verify,bench", "--records", "records", "--json")
    first = tk("matrix", "run", *options, timeout=1800).json
    ready = {one["name"]: one for one in tk("targets", "--json").json}
    assert {one["place"]["target"] for one in first["cells"]} == {
        name for name, one in ready.items() if one["compiles"]["answer"] == "yes"
    }
    runs = {name for name, one in ready.items() if one["runs"]["answer"] == "yes"}
    for one in first["cells"]:
        expected = "verified" if one["place"]["target"] in runs else "compiled-only"
        assert one["state"] == expected, one
    before = os.times().children_user
    second = tk("matrix", "run", *options).json
    assert (second["made"], second["kept"]) == (0, len(first["cells"]))
    assert os.times().children_user - before < 5
    status = tk("matrix", "status", "--records", "records", "--json").json
    assert (status["left"], status["progress"]) == ([], None)
