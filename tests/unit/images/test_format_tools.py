"""What `tk image render` writes for other tools, read by those tools or checked against their schemas.

A tool that is not here skips its test with the reason: nothing is taken for valid that was not read.
"""

from __future__ import annotations

import importlib.resources
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.json_schemas import schema_problem
from tests.support.machines import AMD, BASE, HYGON, NVIDIA
from tests.support.recipes import plan, shipped_names
from toolchain.devices.options import RunOption
from toolchain.images.formats import apptainer, bake, compose, devcontainer

ASKED = (*BASE, RunOption("publish", "127.0.0.1:8080:80/udp", "x"), RunOption("env", "TOKEN", "x"))
MACHINES = {"none": BASE, "amd": AMD, "nvidia": NVIDIA, "hygon": HYGON, "asked": ASKED}
NAMES = ("cpu", "cuda-12-pip", "rocm-5.4.3+dpcpp-2022-12", "dtk-23.04", "tvm-sycl-cuda")
PINNED = f"registry.local:5000/tk/cuda@sha256:{'ab' * 32}"
EVERY = pytest.mark.parametrize(
    ("name", "machine"), [(name, machine) for name in NAMES for machine in MACHINES]
)
DEVCONTAINERS_CLI = "@devcontainers/cli@0.89.0"


def vendored(file: str) -> Any:
    """A schema that the package check-jsonschema carries."""
    pytest.importorskip("check_jsonschema")
    folder = importlib.resources.files("check_jsonschema.builtin_schemas.vendor")
    return json.loads((folder / file).read_text())


def run(*argv: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, argv)), cwd=cwd, capture_output=True, text=True, check=False)


@EVERY
def test_compose_is_what_its_schema_says(name: str, machine: str) -> None:
    schema = vendored("compose-spec.json")
    document = yaml.safe_load(compose.compose(plan(name), MACHINES[machine]))
    assert schema_problem(schema, document) == ""


def test_the_schema_of_compose_refuses_what_is_wrong() -> None:
    schema = vendored("compose-spec.json")
    document = yaml.safe_load(compose.compose(plan("cpu"), BASE))
    (service,) = document["services"].values()
    service["cap_dropped"] = service.pop("cap_drop")
    assert "cap_dropped" in schema_problem(schema, document)


def test_compose_reads_it(tmp_path: Path) -> None:
    if run("docker", "compose", "version").returncode != 0:
        pytest.skip("docker has no component `compose`")
    for name in NAMES:
        (tmp_path / compose.FILE).write_text(compose.compose(plan(name), AMD))
        done = run("docker", "compose", "config", "--format", "json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        (service,) = json.loads(done.stdout)["services"].values()
        assert service["image"] == plan(name).reference


@pytest.mark.parametrize("name", shipped_names())
def test_bake_names_only_what_it_has(name: str) -> None:
    """Each target that something names exists, none is built before what it needs, none is left out."""
    document = json.loads(bake.bake(plan(name)))
    targets = document["target"]
    assert set(document) == {"group", "target"}
    reached = list(document["group"]["default"]["targets"])
    for one in reached:
        fields = targets[one]
        assert set(fields) <= {"context", "contexts", "dockerfile", "labels", "tags"}
        linked = [link.removeprefix("target:") for link in fields.get("contexts", {}).values()]
        assert all(list(targets).index(other) < list(targets).index(one) for other in linked)
        reached += [other for other in linked if other not in reached]
    assert set(reached) == set(targets)


def test_bake_reads_it(tmp_path: Path) -> None:
    if run("docker", "buildx", "version").returncode != 0:
        pytest.skip("docker has no component `buildx`")
    for name in NAMES:
        (tmp_path / bake.FILE).write_text(bake.bake(plan(name)))
        done = run("docker", "buildx", "bake", "--print", "--file", bake.FILE, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["target"]["image"]["tags"] == [plan(name).reference]


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_of_apptainer_definitions_reads_it(name: str, tmp_path: Path) -> None:
    """Singularity Python's parser, which knows the format; Apptainer itself is no Debian package."""
    parsers = pytest.importorskip("spython.main.parse.parsers")
    (tmp_path / "Singularity").write_text(apptainer.apptainer(plan(name), PINNED))
    (recipe,) = parsers.get_parser("singularity")(str(tmp_path / "Singularity")).recipe.values()
    assert recipe.fromHeader == PINNED
    labels = dict(line.split(" ", 1) for line in recipe.labels)
    assert labels["tk.recipe"] == dict(plan(name).labels)["tk.recipe"]
    tests = [one for one in plan(name).smoke if not one.needs_device]
    assert sum(">> /tests.sh" in line for line in recipe.install) == len(tests) + 1


def test_apptainer_reads_it(tmp_path: Path) -> None:
    program = shutil.which("apptainer") or shutil.which("singularity")
    if program is None:
        pytest.skip("neither apptainer nor singularity is here, and Debian 12 has no package of them")
    (tmp_path / "a.def").write_text(apptainer.apptainer(plan("cpu"), PINNED))
    done = run(program, "build", "--fakeroot", "--dry-run", tmp_path / "a.sif", tmp_path / "a.def")
    assert "invalid" not in done.stderr.lower()


@pytest.mark.slow
def test_the_devcontainer_cli_reads_it(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """With a `docker` that has no containers: no engine is needed to read a configuration."""
    program = npm_program(request, DEVCONTAINERS_CLI, "devcontainer")
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    for number, (name, machine) in enumerate([(name, one) for name in NAMES for one in MACHINES]):
        text = devcontainer.devcontainer(
            plan(name), MACHINES[machine], features=["ghcr.io/devcontainers/features/git:1"]
        )
        folder = tmp_path / str(number)
        (folder / ".devcontainer").mkdir(parents=True)
        (folder / devcontainer.FILE).write_text(text)
        words = ("read-configuration", "--workspace-folder", folder, "--docker-path", docker)
        done = run(program, *words)
        assert done.returncode == 0, done.stderr
        read = json.loads(done.stdout)["configuration"]
        read.pop("configFilePath")
        assert read == json.loads(text.replace("${localEnv:TOKEN}", ""))  # there is none here


def npm_program(request: pytest.FixtureRequest, package: str, program: str) -> str:
    """A program of npm's, from the PATH or put into pytest's cache; skips where it cannot be had."""
    if found := shutil.which(program):
        return found
    if request.config.cache is None or shutil.which("npm") is None:
        pytest.skip(f"{program} is not here, and no npm to get it with")
    folder = Path(request.config.cache.mkdir("npm"))
    path = folder / "node_modules" / ".bin" / program
    if not path.exists():
        words = ("install", "--prefix", folder, "--ignore-scripts", "--no-audit", "--no-fund", package)
        done = run("npm", *words)
        if done.returncode != 0:
            pytest.skip(f"npm cannot get {package}: {done.stderr.strip()[-200:]}")
    return str(path)
