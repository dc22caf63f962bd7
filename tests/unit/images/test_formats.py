"""The same plan for bake, Compose, devcontainers and Apptainer."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from compiler import HostError
from tests.support.machines import AMD, BASE, HYGON, NVIDIA
from tests.support.recipes import catalog, plan
from toolchain.devices.options import RunOption
from toolchain.images.formats import apptainer, bake, compose, devcontainer
from toolchain.images.planner import plan_image
from toolchain.recipes.resolve import resolve

WITH_NEEDS = "tvm-sycl-cuda"
PINNED = f"registry.local:5000/tk/cuda@sha256:{'ab' * 32}"


def test_bake_builds_components_first_and_names_them_as_contexts() -> None:
    image = plan(WITH_NEEDS)
    document = json.loads(bake.bake(image))
    targets = document["target"]
    assert list(targets) == ["dpcpp", "tvm-sycl", "image"]
    assert document["group"]["default"]["targets"] == ["image"]
    references = {need.reference: f"target:{need.repository.removeprefix('tk/')}" for need in image.needs}
    assert targets["image"]["contexts"] == references
    assert targets["tvm-sycl"]["contexts"] == {image.needs[0].reference: "target:dpcpp"}
    assert targets["image"]["tags"] == [image.reference]
    assert targets["image"]["labels"]["tk.plan"] == image.key


@pytest.mark.parametrize(
    ("file", "name", "options"),
    [
        ("compose-cpu.yaml", "cpu", BASE),
        ("compose-amd.yaml", "rocm-5.4.3+dpcpp-2022-12", AMD),
        ("compose-nvidia.yaml", "cuda-12-pip", NVIDIA),
        ("compose-hygon.yaml", "dtk-23.04", HYGON),
    ],
)
def test_compose(
    file: str, name: str, options: tuple[RunOption, ...], golden: Callable[[str, str], None]
) -> None:
    text = compose.compose(plan(name), options)
    golden(file, text)
    (service,) = yaml.safe_load(text)["services"].values()
    assert service["image"] == plan(name).reference
    assert service["cap_drop"] == ["ALL"]
    assert "privileged" not in text
    assert "network_mode" not in text


def test_every_option_of_a_run_has_its_place_in_compose() -> None:
    from typing import get_args

    from toolchain.devices.options import Flag

    of_one_run = {"rm", "interactive", "tty", "workdir", "memory", "memory-swap"}
    assert set(get_args(Flag)) == set(compose._HOW) | of_one_run


def test_ports_and_variables_that_are_handed_on() -> None:
    options = [RunOption("publish", "127.0.0.1:8080:80/udp", "x"), RunOption("env", "TOKEN", "x")]
    (service,) = yaml.safe_load(compose.compose(plan("cpu"), options))["services"].values()
    assert (service["ports"], service["environment"]) == (["127.0.0.1:8080:80/udp"], {"TOKEN": None})
    document = json.loads(devcontainer.devcontainer(plan("cpu"), options))
    assert document["containerEnv"] == {"TOKEN": "${localEnv:TOKEN}"}
    assert document["runArgs"] == ["--publish=127.0.0.1:8080:80/udp"]


def test_compose_does_not_expand() -> None:
    text = compose.compose(plan("cpu"), [RunOption("env", "PRICE=$5 ${HOME}", "x")])
    (service,) = yaml.safe_load(text)["services"].values()
    assert service["environment"]["PRICE"] == "$$5 $${HOME}"


@pytest.mark.parametrize(
    ("file", "name", "options"),
    [
        ("devcontainer-amd.json", "rocm-5.4.3+dpcpp-2022-12", AMD),
        ("devcontainer-nvidia.json", "cuda-12-pip", NVIDIA),
        ("devcontainer-hygon.json", "dtk-23.04", HYGON),
    ],
)
def test_devcontainer(
    file: str, name: str, options: tuple[RunOption, ...], golden: Callable[[str, str], None]
) -> None:
    text = devcontainer.devcontainer(plan(name), options)
    golden(file, text)
    document = json.loads(text)
    assert document["remoteUser"] == "tk"
    assert document["initializeCommand"][:3] == ["tk", "image", "build"]
    assert not any(one.startswith(("--user", "--privileged", "--rm")) for one in document["runArgs"])


def test_devcontainer_with_features_and_extensions() -> None:
    text = devcontainer.devcontainer(
        plan("cpu-sycl"), BASE,
        features=["ghcr.io/devcontainers/features/git:1", "./local-feature"],
        extensions=["llvm-vs-code-extensions.vscode-clangd", "-ms-vscode.cpptools", "ms-python.python"],
    )  # fmt: skip
    document = json.loads(text)
    assert document["features"] == {"ghcr.io/devcontainers/features/git:1": {}, "./local-feature": {}}
    assert document["customizations"]["vscode"]["extensions"] == [
        "ms-python.python", "llvm-vs-code-extensions.vscode-clangd", "-ms-vscode.cpptools",
    ]  # fmt: skip


def test_devcontainer_builds_the_image_that_it_names() -> None:
    """An environment and its archs are typed by the section's name; the plain one is another image."""
    name = "tvm-sycl-rocm"
    command = json.loads(devcontainer.devcontainer(plan(name), BASE))["initializeCommand"]
    assert plan_image(resolve(command[-1], catalog())).reference == plan(name).reference
    assert command[-1].startswith("tvm-sycl-rocm@gfx")


def test_apptainer_starts_from_the_digest(golden: Callable[[str, str], None]) -> None:
    golden("apptainer-cuda.def", apptainer.apptainer(plan("cuda-12-pip"), PINNED))


@pytest.mark.parametrize("pinned", ["", "tk/cuda:12", "tk/cuda@sha256:12", f"x@sha256:{'a' * 64}\n%post\nid"])
def test_apptainer_refuses_what_has_no_digest(pinned: str) -> None:
    with pytest.raises(HostError) as caught:
        apptainer.apptainer(plan("cuda-12-pip"), pinned)
    assert "no digest of cuda-12-pip is known" in caught.value.what
    assert "tk image push cuda-12-pip" in caught.value.hint
