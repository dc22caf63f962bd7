"""Getting an image: one build for all who want the same, several names, what a pipe shows, no engine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compiler import BuildError, HostError
from compiler.core.process import Completed
from tests.support.command import Result
from tests.support.fake_engine import FakeEngine
from tests.support.plans import small_plan
from toolchain.commands.image import parallel, target
from toolchain.engine import build
from toolchain.engine.choice import BuildOptions
from toolchain.engine.events import Event
from toolchain.engine.progress import BuildDisplay, StepTimes
from toolchain.engine.store import StoredImage
from toolchain.images.named import plan_named
from toolchain.main import tk_app
from toolchain.provision.obtain import Obtained
from toolchain.web import UnreachableError

Tk = Callable[..., Result]


@pytest.fixture
def slow_builder(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Builds take a moment; what was built is found from then on. The references, as they are begun."""
    begun: list[str] = []
    there: set[str] = set()

    def work(one: Any, _progress: Any, _issues: Any) -> tuple[Path, str]:
        begun.append(one.plan.reference)
        time.sleep(0.5)
        if "fails" in one.plan.reference:
            raise BuildError("a step fails")
        there.add(one.plan.reference)
        return Path("log"), "a test"

    def find(_engine: Any, plan: Any) -> StoredImage | None:
        if plan.reference not in there:
            return None
        return StoredImage("sha256:1", (plan.reference,), 1, 1, plan.name, plan.key, "", {})

    monkeypatch.setattr(build, "_build", work)
    monkeypatch.setattr(build, "find_image", find)
    monkeypatch.setattr(build, "check_base", lambda _engine, _plan: {})
    monkeypatch.setattr(build.store, "sweep", lambda _engine: None)
    return begun


def together(count: int, plan: Any) -> list[str]:
    """Build the same plan `count` times at once; how each image came, or what failed."""
    said: list[str] = []

    def one() -> None:
        engine: Any = FakeEngine()
        try:
            said.append(build.build_image(engine, plan).how)
        except BuildError as error:
            said.append(str(error.what))

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(said)


def test_identical_builds_at_once_share_one(
    slow_builder: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = small_plan("base")
    assert together(3, plan) == ["built meanwhile by another tk"] * 2 + ["built with a test"]
    assert slow_builder == [plan.reference]
    assert f"another tk is building {plan.reference}: waiting for it" in capsys.readouterr().err


def test_who_waited_for_a_build_that_failed_tries_it(slow_builder: list[str]) -> None:
    import dataclasses

    plan = dataclasses.replace(small_plan("base"), tag="fails")
    assert together(2, plan) == ["a step fails"] * 2
    assert slow_builder == [plan.reference] * 2


def test_a_pipe_gets_a_line_a_step_and_not_what_steps_print(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BuildDisplay("tk/cpu:1", StepTimes(tmp_path / "times")) as hear:
        hear(Event("output", "", "no BuildKit: there is no client"))
        hear(Event("started", "1", "[internal] load build definition"))
        hear(Event("started", "2", "[system 1/2] RUN --mount=type=cache,target=/x apt-get install g++"))
        for number in range(300):
            hear(Event("output", "2", f"Unpacking package {number} ..."))
        hear(Event("done", "2", seconds=1.0))
    assert capsys.readouterr().err.splitlines() == [
        "building tk/cpu:1",
        "no BuildKit: there is no client",
        "[system 1/2] RUN apt-get install g++",
    ]


def test_what_a_step_prints_commands_no_terminal(tmp_path: Path) -> None:
    printed: list[str] = []
    display = BuildDisplay("tk/cpu:1", StepTimes(tmp_path / "times"))
    display._live = SimpleNamespace(console=SimpleNamespace(print=lambda line, **_: printed.append(line)))
    display(Event("started", "1", "[1/1] RUN echo \x1b]0;title\x07"))
    display(Event("output", "1", "\x1b[2Jgone"))
    assert "\x1b" not in display.__rich__().plain
    display(Event("done", "1", seconds=1.0))
    assert printed == ["   1.0 s  [1/1] RUN echo \\x1b]0;title\\x07"]


@pytest.mark.parametrize(("gigabytes", "count"), [(0, 1), (8, 1), (23, 1), (32, 2), (128, 8)])
def test_builds_at_a_time_by_memory(gigabytes: int, count: int) -> None:
    engine: Any = FakeEngine(info={"MemTotal": gigabytes << 30})
    assert parallel.fitting_jobs(engine) == count


@pytest.fixture
def beside_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[BuildOptions]:
    """An engine with memory for two builds. Of the processes that build one fails and one is killed; the
    options with which the command itself then looks for what the others built."""
    looked: list[BuildOptions] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    engine = FakeEngine(info={"MemTotal": 32 << 30})
    monkeypatch.setattr(target, "connect", lambda *_: engine)

    def run(argv: list[str], **_: Any) -> Completed:
        name = argv[argv.index("build") + 1]
        assert "--json" in argv
        error = {"what": f"cannot build {name}", "where": "log", "why": "", "hint": "", "code": 5}
        said = {
            "cpu": (0, {"reference": "tk/cpu:1", "how": "built with BuildKit", "log": "log"}),
            "llvm-15": (5, {"error": error}),
            "llvm-16": (-9, {}),
        }
        code, document = said[name]
        return Completed(tuple(argv), code, json.dumps(document) if document else "", "", 1.0)

    def obtain(_engine: Any, named: Any, **how: Any) -> Obtained:
        looked.append(how["options"])
        return Obtained(named, build.BuiltImage("tk/cpu:1", "sha256:1", 0.0, cached=True, how="found"))

    monkeypatch.setattr(parallel, "run", run)
    monkeypatch.setattr("toolchain.provision.obtain.obtain", obtain)
    return looked


def test_what_processes_of_their_own_say_is_in_the_one_document(
    beside_each_other: list[BuildOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["image", "build", "llvm-15", "cpu", "llvm-16", "--no-cache", "--json"]
    assert tk_app()(words, prog_name="tk", standalone_mode=False) == 5
    failed, made, killed = json.loads(capsys.readouterr().out)["images"]
    assert (failed["name"], failed["exit_code"]) == ("llvm-15", 5)
    assert (failed["error"]["what"], failed["error"]["where"]) == ("cannot build llvm-15", "log")
    assert (made["reference"], made["how"], made["log"]) == ("tk/cpu:1", "built with BuildKit", "log")
    assert (killed["name"], killed["exit_code"], killed["error"]["code"]) == ("llvm-16", 4, 4)
    assert "killed by signal 9" in killed["error"]["what"]
    # What was built without a cache is not built once more.
    assert [one.no_cache for one in beside_each_other] == [False]


def test_a_build_whose_base_is_out_of_reach_tells_of_bundles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As locking does; an image that is locked needs none."""
    from toolchain.provision import obtain

    def build_image(*_arguments: Any, **_options: Any) -> None:
        raise UnreachableError("cannot build cpu", hint="check the network")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(obtain, "locked", lambda _engine, named, **_options: named)
    monkeypatch.setattr(build, "build_image", build_image)
    engine: Any = FakeEngine()
    with pytest.raises(UnreachableError) as caught:
        obtain.obtain(engine, plan_named("cpu"))
    assert caught.value.hint.startswith("check the network; without internet: `tk image bundle export cpu ")


def nowhere(folder: Path) -> dict[str, str]:
    return {"DOCKER_HOST": f"unix://{folder}/none.sock"}


def test_a_dry_run_needs_no_engine(tk: Tk, tmp_path: Path) -> None:
    done = tk("image", "build", "cpu", "rocm-5.4", "--dry-run", "--json", env=nowhere(tmp_path))
    assert done.code == 0, done.err
    assert [(one["name"], one["state"]) for one in done.json["images"]] == [
        ("cpu", "not known"),
        ("rocm-5.4.3", "not known"),
    ]
    assert "no container engine answers" in done.err


def test_unknown_names_are_told_all_at_once(tk: Tk, tmp_path: Path) -> None:
    done = tk("image", "build", "cpuu", "lvm-15", env=nowhere(tmp_path))
    assert done.code == 2
    assert "2 of the images cannot be made" in done.err
    assert "cpuu" in done.err
    assert "llvm-15" in done.err


def test_explaining_a_compile_needs_no_engine(tk: Tk, tmp_path: Path) -> None:
    assert tk("zoo", "make", "mnist").code == 0
    words = ("compile", "mnist.onnx", "--target", "sycl-nvidia", "--explain")
    done = tk(*words, env=nowhere(tmp_path))
    assert done.code == 0, done.err
    assert "image tk/cuda:" in done.out
    assert "command inside: tk compile" in done.out
    assert "shown as for Docker on this machine" in done.err
    assert tk(*words, "--json", env=nowhere(tmp_path)).json["job"]["command"][0] == "compile"
    (tmp_path / "mnist.onnx").rename(tmp_path / "my mnist.onnx")
    bare = tk("compile", "my mnist.onnx", *words[2:-1], env=nowhere(tmp_path))
    assert bare.code == 4
    words_shown = "tk compile 'my mnist.onnx' --target sycl-nvidia --image cuda-11.8.0+dpcpp-2022-12 --build"
    assert f"`{words_shown}`" in bare.err


def test_explaining_what_needs_no_container(tk: Tk, tmp_path: Path) -> None:
    assert tk("zoo", "make", "mnist").code == 0
    done = tk("compile", "mnist.onnx", "--target", "cpu", "--explain", env=nowhere(tmp_path))
    assert (done.code, done.err) == (0, "")
    assert done.out.strip() == (
        "tk compile runs on this machine, in no container: this machine has what target cpu needs"
    )
    assert not (tmp_path / "mnist.so").exists()


def test_build_if_needed_is_no_mistake_where_it_is_not(tk: Tk, tmp_path: Path) -> None:
    assert tk("zoo", "make", "mnist").code == 0
    done = tk("compile", "mnist.onnx", "--target", "cpu", "--build", env=nowhere(tmp_path))
    assert done.code == 0, done.err
    assert (tmp_path / "mnist.so").exists()


@pytest.mark.parametrize(("answer", "builds"), [(True, True), (False, False), (None, False)])
def test_a_missing_image_is_asked_about_once(
    answer: bool | None, builds: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a terminal; without one it is the host's trouble, with the command that helps."""
    from toolchain import console
    from toolchain.containers import place
    from toolchain.provision import obtain

    questions: list[str] = []

    def ask(question: str, *, default: bool) -> bool | None:
        assert default
        questions.append(question)
        return answer

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "ask", ask)
    made = type("Made", (), {"image": type("Image", (), {"reference": "tk/cpu:1"})})
    monkeypatch.setattr(obtain, "obtain", lambda *_arguments, **_options: made)
    engine: Any = FakeEngine()
    if builds:
        assert place._reference(engine, place.RunPlace("cpu")) == ("tk/cpu:1", True)
    else:
        with pytest.raises(HostError) as caught:
            place._reference(engine, place.RunPlace("cpu"))
        assert "tk image build cpu" in caught.value.hint
    assert len(questions) == 1
    assert questions[0].startswith("build the image cpu (")
    place._reference(engine, place.RunPlace("cpu", build=True))
    assert len(questions) == 1, "--build is an answer"
