"""`tk image render` and `tk image diff` as commands: what they write, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import command
from tests.support.recipes import plan
from toolchain.images.render import context, dockerfile

Tk = Callable[..., command.Result]


def test_render_prints_the_dockerfile(tk: Tk) -> None:
    done = tk("image", "render", "cpu")
    assert (done.code, done.out) == (0, dockerfile(plan("cpu")))


def test_render_writes_what_a_build_reads(tk: Tk, tmp_path: Path) -> None:
    name = "rocm-5.4.3+dpcpp-2022-12"
    done = tk("image", "render", name, "-o", "out")
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
    again = tk("image", "render", name, "-o", "again")
    assert again.code == 0
    for path, one in written.items():
        assert (tmp_path / "again" / path).read_bytes() == one.read_bytes()


def test_render_writes_a_bake_file_beside_the_contexts_it_names(tk: Tk, tmp_path: Path) -> None:
    assert tk("image", "render", "tvm-sycl-rocm", "--format", "bake", "-o", "out").code == 0
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
