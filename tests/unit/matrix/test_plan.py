"""Plans: what they name, and every problem at once, with its line and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compiler import BadInputError, TkError, UsageError
from compiler.core.files import sha256_bytes
from tests.support.command import ROOT
from tests.support.matrix import machine
from toolchain.matrix.models import ModelDigests, planned_models
from toolchain.matrix.plan import MatrixPlan, ModelsPlan, PlanSource, TargetPlan, changed_plan, read_plan
from toolchain.matrix.trials import Machine, planned_trials, steps_at, why_not
from toolchain.zoo import networks


def _titles(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    plan, source = read_plan(path)
    return [one.title for one in planned_trials(plan, source, machine())]


def test_every_model_at_every_place(tmp_path: Path) -> None:
    text = """
models:
  networks: [mnist, "resnet1*-v1"]
  revisions: [mnist-8]
  without: [resnet101-v1]
targets:
  - cpu
  - target: opencl-cpu
    devices: [pocl, intel]
    threads: [1, 2]
    most_gflop: 1
"""
    places = [f"opencl-cpu ({device}, {threads})" for device in ("pocl", "intel")
              for threads in ("1 thread", "2 threads")]  # fmt: skip
    assert _titles(text, tmp_path) == [
        *(f"mnist on {place}" for place in ("cpu", *places)),
        "resnet18-v1 on cpu",
        "resnet152-v1 on cpu",
        *(f"mnist-8 on {place}" for place in ("cpu", *places)),
    ]


def test_no_two_trials_are_called_the_same(tmp_path: Path) -> None:
    text = """
models: {networks: [mnist]}
targets:
  - cpu
  - {target: cpu, do: [compile]}
  - {target: cpu, do: [compile], limits: {seconds: 60, disk: 1 GB}}
  - {target: cpu, most_gflop: 9}
  - {target: opencl-cpu, devices: [one]}
  - {target: opencl-cpu, workers: [one]}
scheduler: "tcp://a:1"
"""
    assert _titles(text, tmp_path) == [
        "mnist on cpu, compile+verify, at most 1800 s",
        "mnist on cpu, compile, at most 1800 s",
        "mnist on cpu, compile, at most 60 s, 1,000,000,000 bytes of disk",
        "mnist on opencl-cpu (one), device one",
        "mnist on opencl-cpu (one), worker one",
    ]


def test_a_family_with_every_revision(tmp_path: Path) -> None:
    text = "models: {families: [caffenet], weights: [random, trained]}\ntargets: [cpu]\n"
    known = [one.name for one in networks()["caffenet"].originals]
    assert len(known) > 1
    assert _titles(text, tmp_path) == [f"{name} on cpu" for name in ("caffenet", *known)]


def test_images_on_engines_and_what_is_tried_there(tmp_path: Path) -> None:
    text = """
models: {networks: [mnist]}
targets:
  - target: cuda-nvidia
    images: [none, cuda-11.8.0]
    engines: ["tcp://gpu1:2376", "ssh://gpu2"]
    archs: ["sm_70", "sm_80,sm_90"]
"""
    assert _titles(text, tmp_path)[:3] == [
        "mnist on cuda-nvidia:sm_70",
        "mnist on cuda-nvidia:sm_70 (cuda-11.8.0, tcp://gpu1:2376)",
        "mnist on cuda-nvidia:sm_70 (cuda-11.8.0, ssh://gpu2)",
    ]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("targets: [cpu]\nmodel: 1", ["plan.yaml:2: unknown key `model`; did you mean 'models'?"]),
        (
            "models:\n  networks: [mnist, squeezenett]\n  families: [resnet, foo]\ntargets: [cpu, opncl-cpu]",
            [
                "plan.yaml:2: `networks`: nothing is called 'squeezenett'; did you mean 'squeezenet'?",
                "plan.yaml:3: `families`: nothing is called 'foo'; `tk zoo list` has them",
                "plan.yaml:4: `target`: nothing is called 'opncl-cpu'; did you mean 'opencl-cpu'?",
            ],
        ),
        ("do: [compile, test]", ["plan.yaml:1: `do.1`: input should be 'compile', 'verify' or 'bench'"]),
        ("limits:\n  seconds: 0\n  memory: much",
         ["plan.yaml:2: `limits.seconds`", "plan.yaml:3: `limits.memory`"]),
        ("models: {files: [nowhere]}\ntargets: [cpu]",
         ["plan.yaml:1: `files`: no ONNX file is at 'nowhere'"]),
        ('targets:\n  - target: cpu\n    engines: ["tcp://a:1"]',
         ["plan.yaml:3: `engines` go with `images`"]),
        ("targets: cpu", ["plan.yaml:1: `targets`"]),
        ("- cpu", ["plan.yaml:1: expected a mapping"]),
        ("targets: &a [cpu]", ["plan.yaml:1", "a plan contains an anchor"]),
    ],
)  # fmt: skip
def test_problems_are_told_with_their_lines(text: str, problems: list[str], tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as caught:
        _titles(text, tmp_path)
    error = caught.value
    shown = error.why if "\n" in error.why else f"{error.where}: {error.what} {error.why}"
    assert [one for one in problems if one.replace("plan.yaml", str(tmp_path / "plan.yaml")) not in
            shown.replace("the plan has a problem ", "")] == []  # fmt: skip


def test_nothing_to_try_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to try"):
        _titles("models: {networks: [vgg16], most_gflop: 1}\ntargets: [cpu]", tmp_path)


def test_without_a_plan_it_is_the_zoo_on_all_that_compiles() -> None:
    trials = planned_trials(MatrixPlan(), PlanSource(), machine())
    assert {one.place.target for one in trials} == {"cpu", "opencl-cpu", "cuda-nvidia"}
    assert {one.model.name for one in trials} == networks().keys() - {"perceptron-2gb"}


def test_what_the_command_line_gives_counts() -> None:
    plan, source = changed_plan(MatrixPlan(), PlanSource(), {"models": {"networks": ["mnistt"]}})
    with pytest.raises(BadInputError) as caught:
        planned_trials(plan, source, machine())
    assert (caught.value.where, "did you mean 'mnist'?" in caught.value.why) == ("--network", True)
    with pytest.raises(UsageError, match="no such value") as refused:
        changed_plan(MatrixPlan(), PlanSource(), {"limits": {"memory": "lots"}})
    assert refused.value.where == "--memory"


def test_steps_are_those_that_can_be_made() -> None:
    here = machine()
    plan = MatrixPlan.model_validate(
        {"do": ["bench", "verify"], "models": {"networks": ["mnist"]},
         "targets": [{"target": "cpu"}, {"target": "cuda-nvidia", "devices": ["emulator"]},
                     {"target": "cuda-nvidia"}, {"target": "rocm-amd"}]}
    )  # fmt: skip
    places = [one.place for one in planned_trials(plan, PlanSource(), here)]
    assert [steps_at(one, here) for one in places] == [
        ("compile", "verify", "bench"), ("compile", "verify"), ("compile",), ("compile",),
    ]  # fmt: skip
    assert [why_not(one, here) for one in places] == ["", "", "", "hipcc was not found; install hipcc"]


def test_files_are_known_by_their_content(tmp_path: Path) -> None:
    path = tmp_path / "models" / "a.onnx"
    path.parent.mkdir()
    path.write_bytes(_model())
    models = planned_models(ModelsPlan(files=(str(path.parent),)), PlanSource(), [])
    assert [(one.name, one.subject.network) for one in models] == [(str(path), "a")]
    kept = tmp_path / "digests.json"
    digests = ModelDigests(kept)
    first = digests.digest(models[0])
    assert first == sha256_bytes(path.read_bytes())
    digests.save()
    path.write_bytes(_model("b"))
    assert ModelDigests(kept).digest(models[0]) == sha256_bytes(path.read_bytes()) != first
    path.unlink()
    with pytest.raises(TkError, match="cannot be read"):
        ModelDigests(kept).digest(models[0])


def _model(name: str = "y") -> bytes:
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(one, TensorProto.FLOAT, [2]) for one in ("x", name))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], [name])], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert isinstance(made, onnx.ModelProto)
    return made.SerializeToString()


def test_networks_and_revisions_are_known_without_being_made(tmp_path: Path) -> None:
    models = ModelsPlan(networks=("mnist", "vgg16"), revisions=("mnist-8",))
    digests = ModelDigests(tmp_path / "none.json")
    found = [digests.digest(one) for one in planned_models(models, PlanSource(), [])]
    assert len({*found}) == 3
    assert found[2] == next(one.sha256 for one in networks()["mnist"].originals if one.name == "mnist-8")


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_plans(path: Path) -> None:
    plan, source = read_plan(path)
    trials = planned_trials(plan, source, Machine())
    assert "perceptron-2gb" not in {one.model.name for one in trials}
    if path.name == "matrix-teams.yaml":
        assert len({one.place.target for one in trials}) == 11
        assert {one.model.subject.revision for one in trials} >= {
            "mnist-1",
            "caffenet-3",
            "resnet50-caffe2-v1-6",
        }


def test_the_documented_plan_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "matrix.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "own.onnx").write_bytes(_model())
    titles = _titles(text, tmp_path)
    assert [one for one in titles if one.startswith("resnet18-v1-7 on opencl-cpu")] == [
        f"resnet18-v1-7 on opencl-cpu ({device}, {threads})"
        for device in ("pocl", "intel")
        for threads in ("1 thread", "2 threads")
    ]
    assert any("own.onnx on cuda-nvidia:sm_80,sm_90 (cuda-11.8.0, ssh://gpu.example" in one for one in titles)
    assert not [one for one in titles if "resnet152" in one]
    fields = {*MatrixPlan.model_fields, *TargetPlan.model_fields}
    fields |= {f"models.{one}" for one in ModelsPlan.model_fields}
    named = set(re.findall(r"`([a-z_.]+)`", page))
    assert fields - named - {"models", "limits", "bench"} == set()
