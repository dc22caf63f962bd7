"""The least privileges for every captured machine, and what is said where they cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from compiler import HostError, UsageError
from tests.support.device_trees import machine, names
from toolchain.devices.detect import detect
from toolchain.devices.host_facts import Caller, EngineFacts, read_facts
from toolchain.devices.options import RunOption, command_line, create_arguments
from toolchain.devices.privileges import asked_options, base_options, run_options
from toolchain.devices.wishes import Wishes

DOCKER = EngineFacts("docker", "28.2.2", runtimes=("nvidia", "runc"))
DOCKER_CDI = replace(DOCKER, cdi=True)
PODMAN = EngineFacts("podman", "4.3.1", cdi=True)
ROOTLESS_PODMAN = replace(PODMAN, is_rootless=True)
ROOTLESS_DOCKER = replace(DOCKER, is_rootless=True)
ENGINES = {
    "docker": DOCKER,
    "docker-with-cdi": DOCKER_CDI,
    "podman": PODMAN,
    "podman-rootless": ROOTLESS_PODMAN,
    "docker-rootless": ROOTLESS_DOCKER,
}
CALLER = Caller(1000, 1000, (1000, 993))
EVERYTHING = Wishes(allow_profiling=True, allow_debugging=True, no_seccomp=True)

Find = Callable[..., tuple[RunOption, ...]]


@pytest.fixture
def options(tmp_path: Path) -> Find:
    def run(name: str, vendor: str, engine: EngineFacts = DOCKER, wishes: Wishes | None = None) -> object:
        found = detect(machine(name, tmp_path / name))
        return run_options(found, vendor, engine, CALLER, wishes)  # type: ignore[arg-type]

    return run  # type: ignore[return-value]


def test_options_of_every_machine_and_engine(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    lines = []
    for name in names():
        found = detect(machine(name, tmp_path / name))
        lines.append(f"== {name}: {', '.join(found.vendors) or 'no accelerator'}")
        for vendor in found.vendors:
            said: dict[str, list[str]] = {}
            for title, engine in ENGINES.items():
                try:
                    chosen = run_options(found, vendor, engine, CALLER)
                    text = "\n".join(
                        f"  --{one.flag} {one.value}\n      {one.reason}\n      [{one.source}]"
                        for one in chosen
                    )
                except HostError as error:
                    text = "\n".join(f"  {line}" for line in "\n".join(error.lines()).splitlines())
                said.setdefault(text, []).append(title)
            for text, titles in said.items():
                lines += [f"-- {vendor} with {', '.join(titles)}", text]
    golden("options.txt", "\n".join(lines) + "\n")


def test_options_of_every_container(golden: Callable[[str, str], None]) -> None:
    lines = []
    for title, engine in ENGINES.items():
        lines += [title, *(f"  --{one.flag} {one.value}" for one in base_options(engine, CALLER))]
    golden("base.txt", "\n".join(lines) + "\n")


def _all_options(tmp_path: Path) -> list[RunOption]:
    found = []
    for name in names():
        inventory = detect(machine(name, tmp_path / name))
        for vendor in inventory.vendors:
            for engine in ENGINES.values():
                try:
                    found += run_options(inventory, vendor, engine, CALLER, EVERYTHING)
                    found += asked_options(EVERYTHING)
                except HostError:
                    continue
                found += base_options(engine, CALLER)
    return found


def test_never_privileged_never_the_hosts_network(tmp_path: Path) -> None:
    everything = _all_options(tmp_path)
    assert everything
    line = command_line("docker", everything, "image", ["true"])
    assert "privileged" not in line
    assert not [one for one in everything if one.flag in ("network", "ipc")]
    arguments = create_arguments(everything)
    assert "privileged" not in arguments["host"]
    assert set(arguments["host"]["cap_add"]) == {"SYS_ADMIN", "SYS_PTRACE"}
    assert set(arguments["host"]["cap_drop"]) == {"ALL"}


def test_every_option_has_a_reason_and_those_for_devices_a_source(tmp_path: Path) -> None:
    found = _all_options(tmp_path)
    assert not [one for one in found if not one.reason]
    devices = {"device", "cdi", "gpus", "group-add", "mount", "cap-add"}
    assert not [one for one in found if one.flag in devices and not one.source]


def test_groups_are_numbers_of_the_host(tmp_path: Path) -> None:
    groups = {one.value for one in _all_options(tmp_path) if one.flag == "group-add"}
    assert groups - {"keep-groups"}
    assert all(one.isdigit() for one in groups - {"keep-groups"})


def test_the_render_group_is_the_nodes_not_the_images(options: Find) -> None:
    values = [(one.flag, one.value) for one in options("amd-mi50", "amd")]
    assert ("group-add", "993") in values
    assert ("group-add", "109") not in values


def test_profiling_only_where_the_driver_restricts_it(options: Find) -> None:
    wish = Wishes(allow_profiling=True)
    assert "SYS_ADMIN" in [one.value for one in options("nvidia-v100", "nvidia", DOCKER, wish)]
    assert "SYS_ADMIN" not in [one.value for one in options("nvidia-v100", "nvidia")]
    assert "SYS_ADMIN" not in [one.value for one in options("nvidia-h100-cdi", "nvidia", DOCKER, wish)]
    assert "SYS_ADMIN" not in [one.value for one in options("amd-mi50", "amd", DOCKER, wish)]


def test_mkfd_only_where_it_is(options: Find) -> None:
    assert "/dev/mkfd" in [one.value for one in options("hygon-k100-ai", "hygon")]
    assert "/dev/mkfd" not in [one.value for one in options("hygon-z100", "hygon")]


def test_one_of_several(options: Find) -> None:
    values = [one.value for one in options("amd-mi250", "amd", DOCKER, Wishes(numbers=(1,)))]
    assert "/dev/dri/renderD128" in values
    assert "/dev/dri/renderD9" not in values
    # NVIDIA's runtime numbers by minor, which is not the order of addresses here
    assert "1" in [one.value for one in options("nvidia-v100", "nvidia", DOCKER, Wishes(numbers=(0,)))]


def test_a_number_that_does_not_exist(options: Find) -> None:
    with pytest.raises(UsageError, match="number 2"):
        options("amd-mi250", "amd", DOCKER, Wishes(numbers=(0, 2)))


def test_seccomp_and_ptrace_only_on_request(options: Find) -> None:
    assert list(asked_options(Wishes(allow_profiling=True))) == []
    assert {one.value for one in asked_options(EVERYTHING)} == {"seccomp=unconfined", "SYS_PTRACE"}
    assert options("amd-mi50", "amd", DOCKER, EVERYTHING) == options("amd-mi50", "amd")


@pytest.mark.parametrize(
    ("name", "vendor", "engine", "fix"),
    [
        ("none", "amd", DOCKER, "--devices none"),
        ("amd-no-driver", "amd", DOCKER, "modprobe amdgpu"),
        ("amd-no-driver", "amd", DOCKER, "virtual machines"),
        ("amd-no-kfd", "amd", DOCKER, "CONFIG_HSA_AMD"),
        ("amd-root-only", "amd", DOCKER, 'KERNEL=="kfd", GROUP="render"'),
        ("nvidia-nouveau", "nvidia", DOCKER, "nouveau"),
        ("nvidia-v100", "nvidia", replace(DOCKER, runtimes=("runc",)), "nvidia-container-toolkit"),
        ("nvidia-v100", "nvidia", PODMAN, "nvidia-ctk cdi generate"),
        ("amd-mi50", "amd", ROOTLESS_DOCKER, "podman"),
        ("amd-mi50", "amd", replace(DOCKER, is_remapped=True), "podman"),
        ("amd-mi250", "amd", ROOTLESS_PODMAN, "usermod -aG"),
        ("amd-mi50", "amd", replace(DOCKER, is_desktop=True), "docker context use default"),
    ],
)
def test_what_is_missing_comes_with_its_fix(
    options: Find, name: str, vendor: str, engine: EngineFacts, fix: str
) -> None:
    with pytest.raises(HostError) as caught:
        options(name, vendor, engine)
    assert fix in caught.value.hint
    assert caught.value.code == 4


def test_all_lacks_at_once(options: Find) -> None:
    with pytest.raises(HostError) as caught:
        options("amd-root-only", "amd")
    assert len(caught.value.why.splitlines()) == 2


def test_devices_for_the_sdk_are_dictionaries(options: Find) -> None:
    host = create_arguments(options("hygon-k100-ai", "hygon"))["host"]
    assert host["devices"][0] == {
        "PathOnHost": "/dev/kfd", "PathInContainer": "/dev/kfd", "CgroupPermissions": "rwm",
    }  # fmt: skip
    assert host["group_add"] == ["39", "988"]
    assert host["mounts"] == [
        {"Target": "/opt/hyhal", "Source": "/opt/hyhal", "Type": "bind", "ReadOnly": True}
    ]


def test_cdi_is_a_device_request_for_the_sdk(options: Find) -> None:
    chosen = options("nvidia-h100-cdi", "nvidia", DOCKER_CDI)
    (request,) = create_arguments(chosen)["host"]["device_requests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", ["nvidia.com/gpu=all"])
    assert "--device nvidia.com/gpu=all" in command_line("docker", chosen, "image", ["true"])


def test_the_sdk_accepts_the_arguments(tmp_path: Path) -> None:
    from docker.api.client import APIClient

    api = APIClient(base_url="unix:///nowhere", version="1.41")
    everything = [one for one in _all_options(tmp_path) if one.flag != "userns"]
    config = api.create_host_config(**create_arguments(everything)["host"])
    assert config["CapDrop"]
    assert config["Tmpfs"]


def test_command_lines_are_quoted(options: Find) -> None:
    line = command_line(
        "docker",
        options("nvidia-v100", "nvidia", DOCKER, Wishes(numbers=(0, 1))),
        "image",
        ["sh", "-c", "a b"],
    )
    assert "--gpus all" in line
    line = command_line(
        "docker", options("nvidia-v100", "nvidia", DOCKER, Wishes(numbers=(1,))), "image", ["a b"], host="h"
    )
    assert line.startswith("docker --host h run --gpus '\"device=0\"' ")
    assert line.endswith("image 'a b'")


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, EngineFacts("docker", "28.2")),
        (
            {"SecurityOptions": ["name=seccomp", "name=rootless"]},
            EngineFacts("docker", "28.2", is_rootless=True),
        ),
        ({"SecurityOptions": ["name=userns"]}, EngineFacts("docker", "28.2", is_remapped=True)),
        ({"OperatingSystem": "Docker Desktop"}, EngineFacts("docker", "28.2", is_desktop=True)),
        (
            {"Runtimes": {"runc": {}, "nvidia": {}}},
            EngineFacts("docker", "28.2", runtimes=("nvidia", "runc")),
        ),
        ({"CDISpecDirs": ["/etc/cdi"]}, EngineFacts("docker", "28.2", cdi=True)),
    ],
)
def test_facts_of_docker(info: dict[str, object], expected: EngineFacts) -> None:
    assert read_facts("docker", "28.2", info, is_local=True) == expected


@pytest.mark.parametrize(
    ("version", "cdi"), [("4.3.1", True), ("4.1.0-rc1", True), ("4.0.9", False), ("3.4", False)]
)
def test_podman_knows_cdi_since_4_1(version: str, cdi: bool) -> None:
    assert read_facts("podman", version, {}, is_local=True).cdi is cdi
