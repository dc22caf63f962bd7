"""Builds of components: one step for each stage, cheap ones first, what interrupts them, what they fetch."""

from __future__ import annotations

import json

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.support.python_pins import REQUIRES_PYTHON, python_installs
from tests.support.recipes import builds, catalog, plan, shipped_names
from toolchain.images.plan import Env, Plan, Run
from toolchain.images.steps import SITE_SCRIPT

WANTED_BY_TVM = {"onnx", "xgboost"}
"""What TVM imports only when it reads a model, and when it learns which schedules are fast."""


def steps_of(need: Plan) -> list[Run]:
    """The steps of the build itself, after the base and the packages of the system."""
    (stage,) = [one for one in need.stages if one.name == "build"]
    runs = [one for one in stage.instructions if isinstance(one, Run)]
    return [one for one in runs if not any("apt" in words for words in one.commands)]


BUILT = [name for name in shipped_names() if builds(name)]


def test_there_are_builds_of_each_kind() -> None:
    kinds = {component.kind for name in BUILT for component, _ in builds(name)}
    assert kinds >= {"dpcpp", "tvm", "tvm-sycl", "tvm-rocm"}


@pytest.mark.parametrize("name", BUILT)
def test_each_stage_is_a_step_and_cheap_ones_come_first(name: str) -> None:
    for component, need in builds(name):
        assert component.build is not None
        said = [" ".join(" ".join(words) for words in run.commands) for run in steps_of(need)]
        assert all(len(run.commands) == 1 for run in steps_of(need) if run.mounts)
        kinds = [_kind(one) for one in said]
        cheap = ["pip"] if component.build.python_packages else []
        trees = ["git"] * (1 + len(component.build.fetches))
        last = {
            "dpcpp": ["configure", "compile"],
            "cmake": ["configure", "compile", "install"],
            "files": ["copy"],
        }[component.build.system]
        last += ["copy"] if component.build.python else []
        assert kinds == [*cheap, *trees, *last]


def _kind(text: str) -> str:
    marks = {
        "pip install": "pip",
        f"{SITE_SCRIPT} git": "git",
        "configure.py": "configure",
        "compile.py": "compile",
        "cmake -S": "configure",
        "cmake --build": "compile",
        "cmake --install": "install",
        "cp -R": "copy",
    }
    (found,) = {kind for mark, kind in marks.items() if mark in text}
    return found


@pytest.mark.parametrize("name", BUILT)
def test_compilers_run_through_the_cache_that_is_mounted(name: str) -> None:
    for component, need in builds(name):
        assert component.build is not None
        if component.build.system == "files":
            continue
        assert "ccache" in need.apt
        for run in steps_of(need):
            words = " ".join(run.commands[0])
            if _kind(words) == "configure":
                for language in ("C", "CXX"):
                    assert f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" in words, component.kind
            if _kind(words) in ("configure", "compile"):
                assert "tk-ccache" in {one.id for one in run.mounts}


@pytest.mark.parametrize("name", [one for one in BUILT if one.startswith("cuda") or "cuda" in one])
def test_dpcpp_is_told_where_the_drivers_stub_is(name: str) -> None:
    """FindCUDA looks for libcuda in the toolkit's stubs only when CUDA_LIB_PATH names them."""
    for component, need in builds(name):
        if component.kind == "dpcpp":
            (stage,) = [one for one in need.stages if one.name == "build"]
            kinds = [
                "env"
                if isinstance(one, Env) and ("CUDA_LIB_PATH", "/usr/local/cuda/lib64/stubs") in one.pairs
                else "configure" if isinstance(one, Run) and "configure.py" in str(one.commands) else ""
                for one in stage.instructions
            ]  # fmt: skip
            assert [one for one in kinds if one] == ["env", "configure"]
    for step in plan(name).stages[-1].instructions:
        assert not isinstance(step, Env) or "CUDA_LIB_PATH" not in dict(step.pairs)


def test_what_a_build_clones_is_locked_with_it() -> None:
    """The trees that DPC++ 2022-12 clones while it is configured and compiled, at commits of their own."""
    (need,) = plan("rocm-5.4.3+dpcpp-2022-12").needs
    names = [one.path.removeprefix("/src/") for one in need.git]
    assert names[0] == "dpcpp"
    assert {"OpenCL-Headers", "OpenCL-ICD-Loader", "vc-intrinsics", "level-zero", "unified-runtime"} <= set(
        names
    )
    assert len(names) == len(set(names))
    asked = [run.commands[0] for run in steps_of(need) if SITE_SCRIPT in run.commands[0]]
    for one in need.git[1:]:
        assert len(one.commit) == 40
        assert ("sh", SITE_SCRIPT, "git", one.url, one.ref, one.commit, one.path) in asked


def test_every_tvm_can_import_onnx_and_xgboost() -> None:
    for name in ("tvm", "tvm-sycl", "tvm-rocm"):
        for entry in catalog().components[name].releases:
            assert entry.row.build is not None
            assert {Requirement(one).name for one in entry.row.build.python_packages} >= WANTED_BY_TVM


@pytest.mark.parametrize("name", shipped_names())
def test_python_packages_exist_for_the_python_that_installs_them(name: str) -> None:
    """By what the index says of each pinned version, as tests/images/test_pip_pins.py has looked it up."""
    known: dict[str, str] = json.loads(REQUIRES_PYTHON.read_text())
    for one in python_installs(name):
        for pin in one.pins:
            assert pin in known, f"{pin}: tests/images/test_pip_pins.py --update-golden looks it up"
            assert SpecifierSet(known[pin]).contains(one.python), f"{name}: {pin} needs Python {known[pin]}"
