"""`tk reduce` as typed: a fault found out by trying, a program in place of the check, and what it refuses."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.command import environment, tk
from tests.support.onnx_models import model, run_onnxruntime


def chain(directory: Path, *ops: str, name: str = "chain.onnx") -> Path:
    """A model of operators on one tensor, one after the other; regions, where one has them, are all of it."""
    values = [f"v{number}" for number in range(len(ops) + 1)]
    nodes = [
        helper.make_node(
            op, [values[n], *_MORE.get(op, ())], [values[n + 1]], name=f"node{n}", **_ATTRS.get(op, {})
        )
        for n, op in enumerate(ops)
    ]
    shape = (1, 2, 6, 6) if _MISSING in ops else (2, 6)
    regions = {"regions": np.array([[0, 0, 0, 5, 5]], np.float32)} if _MISSING in ops else {}
    proto = model(nodes, {"v0": np.zeros(shape, np.float32)}, [values[-1]], regions)
    onnx.save(proto, directory / name)
    return directory / name


_MISSING = "MaxRoiPool"
"""An operator that onnxruntime has and we do not."""
_MORE = {_MISSING: ("regions",)}
_ATTRS = {_MISSING: {"pooled_shape": [2, 2]}}


def test_an_unsupported_operator(tmp_path: Path) -> None:
    path = chain(tmp_path, "Relu", "Sigmoid", _MISSING)
    done = tk("reduce", path, "-o", tmp_path / "out", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.json["fault"]["kind"] == "unsupported"
    assert done.json["operators"] == [_MISSING]
    assert (done.json["before"]["nodes"], done.json["after"]["nodes"]) == (3, 1)
    assert (done.json["culprit"]["kind"], done.json["culprit"]["name"]) == ("operator", _MISSING)
    assert {one.name for one in (tmp_path / "out").iterdir()} == {"repro.onnx", "inputs.npz", "README.md"}
    left = onnx.load(tmp_path / "out" / "repro.onnx")
    onnx.checker.check_model(left, full_check=True)
    with np.load(tmp_path / "out" / "inputs.npz") as feeds:
        run_onnxruntime(left, dict(feeds))
    again = tk(*shlex.split(done.json["commands"][0])[1:], cwd=tmp_path / "out")
    assert again.code == 3
    assert _MISSING in again.err
    assert f"to blame: operator `{_MISSING}`" in (tmp_path / "out" / "README.md").read_text()


def test_a_program_says_what_the_fault_is(tmp_path: Path) -> None:
    path = chain(tmp_path, "Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Neg", "Softsign")
    done = tk("reduce", path, "--check", "grep -q Erf", "--work", tmp_path / "work", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "- left: `Erf`" in done.out
    assert "- not run: looking for the culprit" in done.out
    left = onnx.load(tmp_path / "chain.reduced" / "repro.onnx")
    assert [node.op_type for node in left.graph.node] == ["Erf"]
    again = tk("reduce", path, "--check", "grep -q Erf", "--work", tmp_path / "work", "--json", cwd=tmp_path)
    assert again.json["known"] == again.json["checks"]


REFUSED = {
    "a kind misspelt": (("--check", "wrnog"), 2, "did you mean 'wrong'"),
    "an open quote": (("--check", "'a"), 2, "cannot read the program"),
    "no size": (("--memory", "much"), 2, "no size"),
    "no folder": (("-o", "a/b"), 2, "folder of the result"),
    "a folder of others": (("-o", "others"), 2, "holds other files"),
}
REFUSED_LATER = {
    "no fault": (("--check", "grep -q Nothing"), 3, "does not find the fault"),
    "another fault": (("--check", "crash"), 3, "it is: unsupported"),
    "a pass that is needed": (("--without", "lower_blocks"), 2, "cannot be left out"),
    "no pass": (("--without", "vectorise"), 2, "did you mean 'vectorize'"),
    "an unknown target": (("--target", "toaster"), 2, "toaster"),
    "slow in the emulator": (
        ("--check", "slow", "--target", "cuda", "--device", "emulator"),
        2,
        "nothing is slow in the emulator",
    ),
    "an unknown input": (("--input", "nothing=x.npy"), 2, "nothing"),
}
"""By the process that reduces, which takes a second to start."""


def check_refused(directory: Path, words: Sequence[str], code: int, said: str) -> None:
    path = chain(directory, "Relu", _MISSING)
    (directory / "others").mkdir()
    (directory / "others" / "thesis.tex").write_text("")
    done = tk("reduce", path, *words, cwd=directory)
    assert (done.code, done.out) == (code, "")
    assert said in done.err


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path: Path, case: str) -> None:
    check_refused(tmp_path, *REFUSED[case])


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", REFUSED_LATER)
def test_refused_later(tmp_path: Path, case: str) -> None:
    check_refused(tmp_path, *REFUSED_LATER[case])


def _damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def _outside(path: Path) -> None:
    """Constants that are said to lie elsewhere."""
    proto = onnx.load(path)
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[400])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    proto.graph.initializer.append(tensor)
    onnx.save(proto, path)


def _huge(path: Path) -> None:
    proto = onnx.load(path)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1 << 60
    onnx.save(proto, path)


def _cyclic(path: Path) -> None:
    proto = onnx.load(path)
    proto.graph.node[0].input[0] = proto.graph.node[1].output[0]
    onnx.save(proto, path)


@pytest.mark.slow
@pytest.mark.parametrize("harm", [_damaged, _outside, _huge, _cyclic])
def test_hostile_models(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    path = chain(tmp_path, "Relu", _MISSING)
    harm(path)
    done = tk("reduce", path, cwd=tmp_path, timeout=120)
    assert done.code in (0, 3), done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_names_of_a_model_do_no_harm(tmp_path: Path) -> None:
    evil = "`rm -rf ~`\n# \x1b[31m../../x'$(id)"
    nodes = [
        helper.make_node("Relu", [evil], ["t"], name=evil),
        helper.make_node(_MISSING, ["t", evil + "r"], ["y" + evil], name=evil, pooled_shape=[1, 1]),
    ]
    regions = {evil + "r": np.zeros((1, 5), np.float32)}
    proto = model(nodes, {evil: np.zeros((1, 2, 3, 3), np.float32)}, ["y" + evil], regions)
    onnx.save(proto, tmp_path / "m.onnx")
    done = tk("reduce", tmp_path / "m.onnx", "-o", tmp_path / "out", cwd=tmp_path)
    assert done.code == 0, done.err
    text = (tmp_path / "out" / "README.md").read_text()
    assert "\x1b" not in text + done.out
    assert {one.name for one in tmp_path.iterdir()} == {"m.onnx", "out"}


@pytest.mark.slow
def test_going_on_after_a_kill(tmp_path: Path) -> None:
    """The same command takes up what is in `--work`, and finds the same."""
    ops = ("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Neg", "Softsign", "Abs", "Sin", "Cos") * 3
    path = chain(tmp_path, *ops)
    (tmp_path / "check.sh").write_text('sleep 0.2; grep -q node23 "$1"')
    words = [sys.executable, "-m", "toolchain", "reduce", str(path), "--work", "work", "--json"]
    words += ["--check", f"sh {tmp_path}/check.sh"]
    first = subprocess.Popen(words, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL)
    kept = tmp_path / "work"
    for _ in range(600):
        if len(list(kept.glob("*/command/*.json"))) >= 4:
            break
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    tried = len(list(kept.glob("*/command/*.json")))
    assert tried >= 4
    done = tk(*words[3:], cwd=tmp_path)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["known"] >= tried
    assert found["checks"] > found["known"]
    assert (found["before"]["nodes"], found["after"]["nodes"]) == (30, 1)
