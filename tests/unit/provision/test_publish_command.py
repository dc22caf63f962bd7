"""`tk image publish`: all names are tried, each as far as it goes, and that is what is written down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compiler import BuildError
from tests.support.fake_engine import FakeEngine, stored
from tests.support.recipes import catalog, plan
from toolchain.engine.build import BuiltImage
from toolchain.images.plan import Plan
from toolchain.main import main
from toolchain.provision.check import Report, SmokeResult
from toolchain.recipes.evidence import load_evidence, states
from toolchain.recipes.resolve import resolve

REGISTRY = "ghcr.example/team"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    """An engine on which builds and checks end as their test says: `built`, `breaks`, `fails`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()  # the project ends here
    return FakeEngine()


def publish(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, answers: dict[str, str], *options: str
) -> int:
    """Run the command on images that build and check as `answers` says."""

    def build(_engine: object, wanted: Plan, **options: Any) -> BuiltImage:
        assert options["site"].registry == REGISTRY
        if answers[wanted.section.partition("@")[0]] == "breaks":
            raise BuildError(f"cannot build {wanted.name}", why="no", hint="yes")
        engine.images[wanted.reference] = stored(wanted)
        return BuiltImage(wanted.reference, "sha256:1", 1.0, cached=False, how="built with a test")

    def check(_engine: object, wanted: Plan, _pins: object, _image: object) -> Report:
        verdict: Any = "FAILED" if answers[wanted.section.partition("@")[0]] == "fails" else "passed"
        smoke = (SmokeResult("compiler", verdict, 0.1, "exit status 1"),)
        return Report(wanted.reference, "sha256:1", "", "root", smoke, 3, (), False, Path("sbom"))

    monkeypatch.setattr("toolchain.commands.image.target.connect", lambda *_: engine)
    monkeypatch.setattr("toolchain.provision.obtain.locked", lambda _engine, named, **_options: named)
    monkeypatch.setattr("toolchain.engine.build.build_image", build)
    monkeypatch.setattr("toolchain.provision.check.check_image", check)
    return main(["image", "publish", *answers, "--registry", REGISTRY, *options])


def test_each_image_gets_as_far_as_it_can(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answers = {"llvm-14": "fails", "llvm-15": "breaks", "llvm-16": "built"}
    assert publish(engine, monkeypatch, answers) == 5
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in out] == [
        ["image", "build", "check", "push"],
        ["llvm-14", "done", "FAILED", "-"],
        ["llvm-15", "FAILED", "-", "-"],
        ["llvm-16", "done", "done", "done"],
    ]
    assert engine.pushed == [f"{REGISTRY}/{plan('llvm-16').reference}"]
    found = {(one.name, one.state): one for one in load_evidence(tmp_path / "evidence.json")}
    assert set(found) == {("llvm-16", "built"), ("llvm-16", "published")}
    published = found["llvm-16", "published"]
    assert published.image.startswith(f"{REGISTRY}/{plan('llvm-16').reference}@sha256:")
    assert (published.plan, published.recipe_hash) == (
        plan("llvm-16").key,
        resolve("llvm-16", catalog()).recipe_hash,
    )


@pytest.mark.parametrize(("answer", "code"), [("built", 0), ("fails", 1), ("breaks", 5)])
def test_exit_codes(answer: str, code: int, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert publish(engine, monkeypatch, {"cpu": answer}) == code


def test_the_list_shows_it(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert publish(engine, monkeypatch, {"cpu": "built"}) == 0
    capsys.readouterr()
    assert main(["image", "list", "--json"]) == 0
    images = {one["name"]: one["states"] for one in json.loads(capsys.readouterr().out)["images"]}
    assert (images["cpu"]["built"], images["cpu"]["published"]) == ("yes", "yes")
    assert images["llvm-14"]["built"] == "no"


def test_a_stand_in_is_no_evidence(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = ("--base", "my/debian:bookworm", "--private")
    assert publish(engine, monkeypatch, {"cpu": "built"}, *options) == 0
    assert len(engine.pushed) == 1
    assert not (tmp_path / "evidence.json").exists()


def test_evidence_of_an_environment_is_found_by_its_name(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wanted = resolve("tvm-sycl-cuda", catalog())
    file = tmp_path / "found.json"
    assert publish(engine, monkeypatch, {"tvm-sycl-cuda": "built"}, "--private", "--evidence", str(file)) == 0
    shown = states(("tvm-sycl-cuda", wanted.name), wanted.recipe_hash, load_evidence(file))
    assert (shown["built"], shown["published"]) == ("yes", "yes")


def test_a_dry_run_asks_nobody(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("toolchain.commands.image.target.connect", lambda *_: pytest.fail("asked"))
    assert main(["image", "publish", "cpu", "llvm-14", "--registry", REGISTRY, "--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in shown["images"]] == ["cpu", "llvm-14"]
    assert shown["images"][1]["licences"]["llvm-14"] == "Apache-2.0 WITH LLVM-exception"
    assert not (tmp_path / "evidence.json").exists()


@pytest.mark.parametrize(
    ("names", "code", "said"),
    [
        (["cpu", "cuda-11.2"], 3, "cuda-11.2.2: cuda-11.2.2 (NVIDIA"),
        (["cpuu", "lvm-14"], 2, "2 of the images cannot be made"),
        (["cpuu", "cpu"], 2, "did you mean 'cpu'?"),
    ],
)
def test_what_cannot_be_published_is_said_before_anything_is_built(
    names: list[str], code: int, said: str, engine: FakeEngine, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("toolchain.commands.image.target.connect", lambda *_: pytest.fail("asked"))
    assert main(["image", "publish", *names, "--registry", REGISTRY]) == code
    assert said in capsys.readouterr().err
