"""`tk image render` and `tk image diff` as commands: what they write, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support import command
from tests.support.recipes import plan, shipped_names
from toolchain.images.formats.bake import every_need
from toolchain.images.lock.file import Lock, LockedImage, write_lock
from toolchain.images.lock.pins import canonical, component_of, recipe_of
from toolchain.images.named import plan_named
from toolchain.images.plan import Pins, Plan
from toolchain.images.render import context, dockerfile
from toolchain.images.selection import Selection

Tk = Callable[..., command.Result]


def test_render_prints_the_dockerfile(tk: Tk) -> None:
    done = tk("image", "render", "cpu")
    assert (done.code, done.out) == (0, dockerfile(plan("cpu")))


def open_name() -> str:
    """A shipped name in which something waits for a lock."""
    return next(name for name in shipped_names() if plan(name).unresolved() and plan(name).needs)


@pytest.mark.parametrize("words", [("-o", "out"), ("--format", "bake"), ("--format", "compose", "-o", "out")])
def test_what_cannot_be_built_is_not_written(tk: Tk, tmp_path: Path, words: tuple[str, ...]) -> None:
    name = open_name()
    done = tk("image", "render", name, *words)
    assert (done.code, done.out) == (3, ""), done.err
    assert [one.what for one in plan(name).unresolved() if one.what not in done.err] == []
    assert f"`tk image lock {plan(name).section}`" in done.err
    assert "--allow-unresolved" in done.err
    assert not (tmp_path / "out").exists()


def test_what_is_shown_or_asked_for_all_the_same_says_so(tk: Tk, tmp_path: Path) -> None:
    name = open_name()
    for words in (
        (),
        ("-o", "out", "--allow-unresolved"),
        ("--format", "devcontainer", "--allow-unresolved"),
    ):
        done = tk("image", "render", name, *words)
        assert done.code == 0, done.err
        assert "not locked yet, so it cannot be built" in done.err
        assert plan(name).unresolved()[0].what in done.err
    assert (tmp_path / "out" / "Dockerfile").is_file()


def test_a_locked_folder_has_nothing_unresolved(tk: Tk, tmp_path: Path) -> None:
    name = open_name()
    unlocked = plan_named(name, Selection(lock=None)).plan
    write_lock(tmp_path / "tk.lock", Lock({unlocked.section: locked_by_hand(unlocked)}))
    done = tk("image", "render", name, "-o", "out")
    assert (done.code, "not locked" in done.err) == (0, False), done.err
    written = [one for one in (tmp_path / "out").rglob("*") if one.is_file()]
    assert [one for one in written if b"unresolved" in one.read_bytes()] == []


def test_the_order_of_the_builds_is_told(tk: Tk) -> None:
    done = tk("image", "render", open_name(), "-o", "out", "--allow-unresolved")
    told = [line for line in done.err.splitlines() if "docker build -t" in line]
    needs = every_need(plan(open_name()))
    assert [one.reference in line for one, line in zip(needs, told, strict=False)] == [True] * len(needs)
    assert told[-1] == f"build it with: docker build -t {plan(open_name()).reference} out"


def locked_by_hand(asked: Plan) -> LockedImage:
    """A section that pins all that a plan asks for, with values of no meaning."""

    def pins(one: Plan) -> Pins:
        return Pins(
            base_digest="" if one is not asked else f"sha256:{'d' * 64}",
            apt={word.partition("=")[0]: word.partition("=")[2] or "1" for word in one.apt},
            pip={
                canonical(Requirement(word).name): (str(next(iter(Requirement(word).specifier)).version), ())
                for word in one.pip
            },
            git={tree.url: "c" * 40 for tree in one.git},
            downloads={file.url: "b" * 64 for file in one.downloads},
            needs={component_of(need): pins(need) for need in one.needs},
        )

    return LockedImage(recipe_of(asked), asked.base.reference, pins(asked))


def test_render_writes_what_a_build_reads(tk: Tk, tmp_path: Path) -> None:
    name = "rocm-5.4.3+dpcpp-2022-12"
    done = tk("image", "render", name, "-o", "out", "--allow-unresolved")
    assert done.code == 0, done.err
    written = {
        str(one.relative_to(tmp_path / "out")): one for one in (tmp_path / "out").rglob("*") if one.is_file()
    }
    expected = {one.path: one for one in context(plan(name))}
    expected |= {f"needs/dpcpp/{one.path}": one for one in context(plan(name).needs[0])}
    assert set(written) == {*expected, ".dockerignore"}
    for path, file in expected.items():
        assert written[path].read_bytes() == file.data
        assert written[path].stat().st_mode & 0o777 == file.mode
    again = tk("image", "render", name, "-o", "again", "--allow-unresolved")
    assert again.code == 0
    for path, one in written.items():
        assert (tmp_path / "again" / path).read_bytes() == one.read_bytes()


def test_render_writes_a_bake_file_beside_the_contexts_it_names(tk: Tk, tmp_path: Path) -> None:
    words = ("--format", "bake", "-o", "out", "--allow-unresolved")
    assert tk("image", "render", "tvm-sycl-rocm", *words).code == 0
    targets = json.loads((tmp_path / "out" / "docker-bake.json").read_text())["target"]
    for target in targets.values():
        assert (tmp_path / "out" / target["context"] / target["dockerfile"]).is_file()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("render", "rokm-5.4"), 2, "did you mean"),
        (("render", "cpu", "--format", "dockerfil"), 2, "--format"),
        (("render", "rocm-5.5.1+dpcpp-2022-12"), 3, "rule "),
        (("render", "cuda-13.0", "--arch", "sm_70"), 3, "rule "),
        (("diff", "cpu", "cpuu"), 2, "did you mean"),
        (("render", "cpu", "--feature", "ghcr.io/devcontainers/features/git:1"), 2, "--format devcontainer"),
        (("render", "cpu", "--format", "devcontainer", "--feature", "git; id"), 2, "does not name a feature"),
        (("render", "cpu", "--format", "devcontainer", "--extension", "git"), 2, "an extension"),
        (("render", "cpu", "--digest", f"x@sha256:{'0' * 64}"), 2, "it goes with --format apptainer"),
        (
            ("render", "cpu", "--format", "apptainer", "--docker-host", "unix:///nowhere.sock"),
            4,
            "container engine",
        ),
        (
            ("render", "cpu", "--format", "apptainer", "--digest", "cpu:latest"),
            4,
            "no digest of cpu is known",
        ),
    ],
)
def test_refusals(tk: Tk, words: tuple[str, ...], code: int, said: str) -> None:
    done = tk("image", *words)
    assert done.code == code, done.err
    assert said in done.err
    assert done.out == ""


def test_diff_tells_differences_by_its_exit_code(tk: Tk) -> None:
    assert tk("image", "diff", "rocm-5.4", "rocm-5.4.3").code == 0
    done = tk("image", "diff", "rocm-5.2+dpcpp-2022-09", "rocm-5.4+dpcpp-2022-12")
    assert done.code == 1
    assert "apt/rocm.sources" in done.out
    told = tk("image", "diff", "rocm-5.2", "rocm-5.4", "--json")
    assert told.code == 1
    changes = {(one["kind"], one["name"]): one for one in told.json["differences"]}
    assert changes["component", "rocm"]["before"] == "5.2.3"
    assert changes["component", "rocm"]["change"] == "changed"


def test_rendering_depends_on_nothing_of_the_caller(tk: Tk, tmp_path: Path) -> None:
    here = tk("image", "render", "cpu-sycl")
    (tmp_path / "elsewhere").mkdir()
    there = tk(
        "image", "render", "cpu-sycl", cwd=tmp_path / "elsewhere",
        env={"HOME": str(tmp_path), "USER": "somebody", "TZ": "Asia/Shanghai", "PYTHONHASHSEED": "7"},
    )  # fmt: skip
    assert here.out == there.out
    assert "somebody" not in there.out
