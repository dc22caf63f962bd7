"""The shipped recipes: true to their sources, no pin without one, published as they are checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolchain.data import data_directory
from toolchain.recipes.published import BEGIN, END, FILES, recipes_page, schema_text
from toolchain.recipes.resolve import Component, RecipeCatalog, load_catalog, resolve
from toolchain.recipes.schema import Build

ROOT = Path(__file__).resolve().parents[3]
RECIPES = data_directory("recipes")
DOCUMENTS = [*sorted(RECIPES.glob("stacks/*.yaml")), *sorted(RECIPES.glob("components/*.yaml"))] + [
    RECIPES / name for name in FILES if "/" not in name
]
# Every digest, sha256, commit and fingerprint in the recipes, and where it was found: a new one needs that.
PINS = {
    "66af04302040b76bc04dc69bb7216f31d488938caa09dde95a22517ae97bdf25": "public Dockerfiles pin it",
    "94fd755736cb58979173d491504f0b573247b1745250249415b07fefc738e41f": "public test fixtures pin it",
    "ee37a7eae6e80148c7e3abc56e48a397c1664f044920463ad0df0fc706eacea8": "rules_python baead2e, versions.bzl",
    "0f579bae55c48d810e1ed76db29229c854e61d5e": "intel/llvm issue 9430",
    "dcd5bede6859d26833cd85f0d6bbcee7382dc9b3": "Blender's versions.cmake for DPC++ 2022-12: OpenCL headers",
    "792682ad3d877ab38573b997808bab3b43902b70": "Blender's versions.cmake for DPC++ 2022-12: OpenCL loader",
    "782fbf7301dc73acaa049a4324c976ad94f587f7": "Blender's versions.cmake for DPC++ 2022-12: vc-intrinsics",
    "5a121866927a16ab9d49bed4788b532c7fcea766": "Blender's versions.cmake for DPC++ 2022-12: SPIR-V headers",
    "7bc4e1ae9b36ec8ee635c3629b59ec525bbe82b9": "Blender's versions.cmake for DPC++ 2022-12: mp11",
    "fd711c920acc4434cb52ff18b078c082d9d7f44d": "Blender's versions.cmake for DPC++ 2022-12: Unified Runtime",
    "32c4431d731bc2ba7b5b88b32335063efa65e076": "oneapi-src/level-zero, tag v1.8.8",
    "6eabe90aa7b6cff9c67800a2fe25a0cd88d8b749": "Blender's versions.cmake for DPC++ 6.3.0: OpenCL headers",
    "ddf6c70230a79cdb8fcccfd3c775b09e6820f42e": "Blender's versions.cmake for DPC++ 6.3.0: OpenCL loader",
    "60cea7590bd022d95f5cf336ee765033bd114d69": "Blender's versions.cmake for DPC++ 6.3.0: vc-intrinsics",
    "c9aad99f9276817f18f72a4696239237c83cb775": "Blender's versions.cmake for DPC++ 6.3.0: SPIR-V headers",
    "35c037cdf4aa9a2e6df34b6f1ce1bdc86ac5422f": "Blender's versions.cmake for DPC++ 6.3.0: Level Zero",
    "3ba9abdfdc2e0430fcc2fd8993cad31945b6a02b": "Blender's versions.cmake for DPC++ 6.3.0: emhash",
    "8a889d3699b3c09ade435641fb034427f3fd12b6": "Blender's versions.cmake for DPC++ 6.3.0: parallel-hashmap",
    "7b50b2d0ddf45d9114715aad16b867e8be6b2230": "apache/tvm, tag v0.10.0",
    "71dfd5ef56ef9983ea0462f4df4cec99da8e82b3": "wangzy0327/tvm, branch dev-sycl",
    "5b36163df4d030cd99dabbfeea3acbce58cee711": "RELOAD22/tvm, branch sycl",
    "f28c006a5895fc0e329fe15fead81e37457cb1d1": "what clang 14.0.6 prints as its version",
    "e6bda7311dab02fa15f7f35cbbc5e0e708a87fb6": "mvermeulen/rocm-tvm, branch master",
    "7012e535a47883527d402da998384c30b936140c05e2537158c80b8143ee7425": "public Dockerfiles pin it",
    "af4a35db00b96be8025fe1f55aa83a6844f9e340": "mvermeulen/tvm, branch rocm-5.2-test",
    "4043dda356af59d3d88607037955a0728dc0f466": "intel/llvm ReleaseNotes.md, a tool's README names it whole",
    "6977f1ac": "intel/llvm ReleaseNotes.md: 0f579bae..6977f1ac",
    "cb91c232": "spack's package dpcpp, version 2023-03",
    "CA8BB4727A47B4D09B4EE8969386B48A1A693C5C": "two public install scripts that check AMD's key",
    "6084F3CF814B57C1CF12EFD515CF4D18AF4F7421": "the official Docker image of Haskell, LLVM_KEY",
    "EB693B3035CD5710E231E123A4B469963BF863CC": "a Puppet and a Chef recipe for CUDA's repository",
}


@pytest.fixture(scope="module")
def catalog() -> RecipeCatalog:
    return load_catalog()


def test_every_pin_has_a_source() -> None:
    found = {
        pin
        for path in RECIPES.rglob("*.yaml")
        for pin in re.findall(
            r"\b(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9A-F]{40})\b|(?<=commit: )[0-9a-f]{8,40}\b", path.read_text()
        )
    }
    assert found == PINS.keys()


def test_sources_are_public() -> None:
    """A source is something that a reader can look up, or the team's own report."""
    for path in RECIPES.rglob("*.yaml"):
        assert not re.search(r"\bfacts\b|\bshared/", path.read_text()), path
        assert str(Path.home()) + "/" not in path.read_text(), path


def test_the_schema_is_in_step() -> None:
    assert (RECIPES / "schema.json").read_text() == schema_text(), "python -m toolchain.recipes.published"


def test_the_page_is_in_step() -> None:
    path = ROOT / "docs" / "recipes.md"
    text = path.read_text()
    assert BEGIN in text
    assert END in text
    assert text == recipes_page(text), "python -m toolchain.recipes.published docs/recipes.md"


@pytest.fixture(scope="module")
def validator() -> Any:
    import jsonschema  # more than a second, which collecting the tests need not take

    schema = json.loads(schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_published_schema_takes_shipped_recipes(path: Path, validator: Any) -> None:
    assert list(validator.iter_errors(yaml.safe_load(path.read_text()))) == []


@pytest.mark.parametrize(
    "change",
    [
        {"stack": "ACME"},
        {"vendro": "none"},
        {"vendor": "acme"},
        {"rows": [{"version": "1", "nothing": 1}]},
        {"rows": [{"version": "1", "bases": [{"reference": "a b:c", "system": "debian-12", "source": "x"}]}]},
        {"rows": [{"version": "1", "install": [{"env": {"PATH": 1}}]}]},
        {"rows": [{"version": "1", "install": [{"apt": ["-o=x"]}]}]},
    ],
)
def test_the_published_schema_can_refuse(change: dict[str, Any], validator: Any) -> None:
    document = {"stack": "acme", "title": "x", "vendor": "none", "name": "acme", "rows": [{"version": "1"}]}
    assert list(validator.iter_errors(document)) == []
    assert list(validator.iter_errors(document | change)) != []


# DPC++ release on a stack -> the arguments of configure.py. From intel/llvm's buildbot/configure.py:
# assertions are on by default; SYCL_BUILD_PI_HIP_ROCM_DIR names ROCm until UR_HIP_ROCM_DIR does.
FIRST = ("-o", "/build", "-t", "Release", "--no-assertions")
LAST = ("--cmake-opt=-DCMAKE_INSTALL_PREFIX=/opt/dpcpp",)
HIP = ("--hip", "--hip-platform", "AMD")
CONFIGURE = {
    "rocm-5.4.3+dpcpp-2022-06": (*HIP, "--cmake-opt=-DSYCL_BUILD_PI_HIP_ROCM_DIR=/opt/rocm"),
    "rocm-5.2.3+dpcpp-2022-09": (*HIP, "--cmake-opt=-DSYCL_BUILD_PI_HIP_ROCM_DIR=/opt/rocm"),
    "rocm-5.4.3+dpcpp-2022-12": (*HIP, "--cmake-opt=-DSYCL_BUILD_PI_HIP_ROCM_DIR=/opt/rocm"),
    "dtk-23.04+dpcpp-2022-12": (*HIP, "--cmake-opt=-DSYCL_BUILD_PI_HIP_ROCM_DIR=/opt/dtk"),
    "cuda-11.2.2+dpcpp-2022-09": ("--cuda", "--cmake-opt=-DCUDA_TOOLKIT_ROOT_DIR=/usr/local/cuda"),
    "cuda-11.8+dpcpp-2022-12": ("--cuda", "--cmake-opt=-DCUDA_TOOLKIT_ROOT_DIR=/usr/local/cuda"),
    "cuda-11.8+dpcpp-nightly-2023-12-06": ("--cuda", "--cmake-opt=-DCUDA_TOOLKIT_ROOT_DIR=/usr/local/cuda"),
    "cuda-12.8+dpcpp-6.3.0": ("--cuda", "--cmake-opt=-DCUDAToolkit_ROOT=/usr/local/cuda"),
    "rocm-6.2+dpcpp-6.3.0": (*HIP, "--cmake-opt=-DUR_HIP_ROCM_DIR=/opt/rocm"),
    "oneapi-2023.1+dpcpp-2022-12": (),
    "cpu+dpcpp-2022-12": (),
}


@pytest.mark.parametrize("name", CONFIGURE)
def test_configure_arguments_of_dpcpp(name: str, catalog: RecipeCatalog) -> None:
    build = part(name, "dpcpp", catalog)
    assert [*words(build.configure)] == [*FIRST, *CONFIGURE[name], *LAST]
    assert [*words(build.compile)] == ["-o", "/build"]
    assert build.prefix == "/opt/dpcpp"


def part(name: str, kind: str, catalog: RecipeCatalog) -> Build:
    (component,) = [one for one in resolve(name, catalog).components if one.kind == kind]
    assert component.build is not None
    return component.build


def words(arguments: Any) -> Iterator[str]:
    for one in arguments:
        yield from one.words


@pytest.mark.parametrize(
    ("name", "cmake"),
    [("rocm-5.4.3+dpcpp-2022-12", "pip"), ("rocm-5.4+dpcpp-2022-12+ubuntu-22.04", "apt")],
)
def test_cmake_is_new_enough_for_dpcpp(name: str, cmake: str, catalog: RecipeCatalog) -> None:
    layers = part(name, "dpcpp", catalog).layers
    assert any("cmake==3.31.10" in one.pip for one in layers) == (cmake == "pip")
    assert any("cmake" in one.apt for one in layers) == (cmake == "apt")


def test_tvm_is_built_for_the_arch_that_was_asked_for(catalog: RecipeCatalog) -> None:
    for arch in ("gfx906", "gfx90a"):
        found = resolve("rocm-5.4+dpcpp-2022-12+llvm-14+tvm-sycl", catalog, archs=[arch])
        build = next(one.build for one in found.components if one.kind == "tvm-sycl")
        assert build is not None
        assert f"-DUSE_SYCL_HIP=amdgcn-amd-amdhsa -Xsycl-target-backend --offload-arch={arch}" in [
            *words(build.configure)
        ]
        assert "-DUSE_SYCL=/opt/dpcpp" in [*words(build.configure)]


@pytest.mark.parametrize(
    ("version", "amdgpu", "apt"),
    [
        ("4.5.2", "21.40.2", "4.5.2"),
        ("5.1.0", "22.10", "5.1"),
        ("5.1.3", "22.10.3", "5.1.3"),
        ("5.2.3", "22.20.3", "5.2.3"),
        ("5.3.0", "5.3", "5.3"),
        ("5.4.3", "5.4.3", "5.4.3"),
        ("6.4.0", "6.4", "6.4"),
    ],
)
def test_repositories_of_rocm(version: str, amdgpu: str, apt: str, catalog: RecipeCatalog) -> None:
    found = resolve(f"rocm-{version}", catalog)
    uris = [one.uri for one in found.stack.layer.repositories]
    assert uris == [
        f"https://repo.radeon.com/rocm/apt/{apt}/",
        f"https://repo.radeon.com/amdgpu/{amdgpu}/ubuntu",
    ]
    assert found.stack.layer.repositories[1].suites == (found.system.codename,)
    assert "debian" not in uris[0]


@pytest.mark.parametrize(
    ("name", "minimum"),
    [
        ("cuda-11.2", "450"),
        ("cuda-12.1", "525"),
        ("cuda-13", "580"),
        ("cuda-12-pip", "525"),
        ("dtk-25.04", "6.3.8"),
    ],
)
def test_driver_floors(name: str, minimum: str, catalog: RecipeCatalog) -> None:
    driver = driver_of(resolve(name, catalog).stack)
    assert driver is not None
    assert driver.minimum == minimum


def driver_of(component: Component) -> Any:
    return getattr(component.row, "driver", None)


def test_the_bundled_compiler_has_its_python(catalog: RecipeCatalog) -> None:
    """3.11 or newer everywhere: the system's own, or one beside it, which then is pinned."""
    for stack in catalog.stacks.values():
        for entry in stack.rows:
            found = resolve(stack.stack.name.replace("{version}", entry.row.version), catalog)
            version = tuple(map(int, found.provides["tk-python"].split(".")[:2]))
            assert version >= (3, 11)
            assert "tk-python" in found.prefixes
            own = [one for one in found.components if one.kind == "tk-python"]
            assert bool(own) == (found.prefixes["tk-python"] != "/usr")
            assert all(one.sha256 != "unresolved" for part in own for one in part.layer.downloads)


def test_device_variables_of_their_time(catalog: RecipeCatalog) -> None:
    selectors = {
        one.row.version: one.row.selector.variable
        for one in catalog.components["dpcpp"].releases
        if one.row.selector
    }
    assert selectors == {
        "2022-06": "SYCL_DEVICE_FILTER",
        "2022-09": "SYCL_DEVICE_FILTER",
        "2022-12": "SYCL_DEVICE_FILTER",
        "2023-03": "ONEAPI_DEVICE_SELECTOR",
        "nightly-2023-12-06": "ONEAPI_DEVICE_SELECTOR",
        "6.3.0": "ONEAPI_DEVICE_SELECTOR",
    }


def test_the_stacks_that_must_be_there(catalog: RecipeCatalog) -> None:
    assert catalog.stacks.keys() == {
        "rocm", "rocm-debian", "cuda", "cuda-pip", "dtk", "oneapi", "llvm", "cpu", "cpu-sycl", "conda",
    }  # fmt: skip
    spans = {"rocm": ("4.5.2", "6.4.1"), "cuda": ("11.2.2", "13.0.0"), "dtk": ("22.10.1", "25.04.2")}
    spans["oneapi"] = ("2022.2", "2025.3.1")
    for name, (first, last) in spans.items():
        rows = catalog.stacks[name].rows
        assert (rows[0].row.version, rows[-1].row.version) == (first, last)


def test_the_modernised_dockerfile_has_a_note_for_each_difference(catalog: RecipeCatalog) -> None:
    found = resolve("rocm-tvm", catalog)
    assert found.name == "rocm-5.2.3+tvm-rocm-5.2"
    assert found.environment is not None
    said = " ".join(one.before for one in found.environment.differences)
    for part in (
        "apt/debian",
        "CMake 3.17.3",
        "git clone",
        "pip3",
        "export",
        "root",
        "python-dev",
        "network=host",
    ):
        assert part in said
