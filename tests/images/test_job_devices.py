"""Jobs with devices in real containers, /dev/null in place of accelerators, looked at from inside."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compiler import ExitCode, HostError
from tests.support.device_library import build_blank, library_for
from tests.support.device_trees import machine
from tests.support.engine import TestEngine
from tests.support.images import cpu_image
from toolchain.containers.host_probe import to_lines
from toolchain.containers.job import Job, run_job
from toolchain.containers.needs import Given, give, needs_of
from toolchain.containers.probe import probe_image
from toolchain.containers.request import Asked
from toolchain.devices.detect import detect
from toolchain.devices.host_facts import Caller, EngineFacts
from toolchain.devices.wishes import Wishes
from toolchain.engine.client import Engine
from toolchain.main import main
from toolchain.recipes.catalog import load_catalog

pytestmark = pytest.mark.slow

OWNER = (12345, 23456)
CALLER = Caller(*OWNER, (23456, 993, 39, 988, 110))
FACTS = {
    "docker": EngineFacts("docker", runtimes=("nvidia",)),
    "podman": EngineFacts("podman", "4.3.1", cdi=True),
}
LOOK = """
import glob, json, os, stat
nodes = {}
for path in sorted(glob.glob("/dev/*kfd") + glob.glob("/dev/dri/*")):
    status = os.stat(path)
    os.close(os.open(path, os.O_RDWR))
    nodes[path] = [os.major(status.st_rdev), os.minor(status.st_rdev)]
facts = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
hyhal = "/opt/hyhal/version"
print(json.dumps({
    "nodes": nodes,
    "user": [os.getuid(), os.getgid()],
    "groups": sorted(os.getgroups()),
    "capabilities": sorted({facts[name].strip() for name in facts if name.startswith("Cap")}),
    "privileges": [facts["NoNewPrivs"].strip(), facts["Seccomp"].strip()],
    "hyhal": open(hyhal).read() if os.path.exists(hyhal) else "",
    "hyhal_is_writable": os.access("/opt/hyhal", os.W_OK),
    "networks": sorted(os.listdir("/sys/class/net")),
    "rest": sorted(one for one in os.listdir("/dev") if one in ("sda", "mem", "kmsg", "nvidia0")),
}))
"""
"""In place of the bundled `tk`."""


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    return build_blank(tmp_path_factory.mktemp("blank"), own_cache)


@pytest.fixture(scope="module")
def image(docker_engine: TestEngine) -> str:
    return cpu_image(docker_engine)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Mapping[str, Any]]:
    """Host options of the jobs' containers that were started, as the engine has them; nodes are stand-ins."""
    hyhal = tmp_path / "hyhal"
    hyhal.mkdir()
    (hyhal / "version").write_text("version 1\n")
    real, seen = Engine.container, list[Mapping[str, Any]]()

    @contextlib.contextmanager
    def container(self: Engine, image: str, argv: Any, **options: Any) -> Iterator[str]:
        host = options.get("host", {})
        for entry in host.get("devices", ()):
            entry["PathOnHost"] = "/dev/null"
        for entry in host.get("mounts", ()):
            if entry["Type"] == "bind":
                entry["Source"] = str(hyhal)
        with real(self, image, argv, **options) as name:
            if options.get("stdin_open"):
                with self.guard("look at the container"):
                    seen.append(self.api.inspect_container(name)["HostConfig"])
            yield name

    monkeypatch.setattr(Engine, "container", container)
    return seen


def devices_of(target: str, on: str, kind: str, blank: Path, tmp_path: Path, *numbers: int) -> Given:
    """What `tk run` of a library for `target` gets on a captured machine."""
    library = library_for(target, blank, tmp_path / "model.so")
    asked = Asked(wishes=Wishes(numbers))
    needs = needs_of("run", {"library": library}, asked, load_catalog(()))
    return give(needs, detect(machine(on, tmp_path / on)), FACTS[kind], CALLER, asked.wishes)


def look(engine: Engine, reference: str, given: Given, tmp_path: Path) -> dict[str, Any]:
    """What a job that gets those devices sees."""
    (tmp_path / "look.py").write_text(LOOK)
    (tmp_path / "empty").touch()
    job = Job(
        ("run",),
        {
            "look/toolchain/__main__.py": tmp_path / "look.py",
            "look/toolchain/__init__.py": tmp_path / "empty",
        },
        environment={"PYTHONPATH": "/job/in/look"},
        owner=OWNER,
        devices=given.options,
        present=given.present,
    )
    said: list[bytes] = []
    done = run_job(engine, probe_image(engine, reference), job, said.append)
    assert done.status == 0, said
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@pytest.mark.parametrize(
    ("target", "on", "numbers", "nodes", "groups"),
    [
        ("rocm-amd", "amd-mi50", (), ["/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/kfd"], [993]),
        ("sycl-amd", "amd-mi50", (0,), ["/dev/dri/renderD129", "/dev/kfd"], [993]),
        ("opencl-intel", "intel-flex", (1,), ["/dev/dri/card1", "/dev/dri/renderD129"], [44, 110]),
        ("cpu", "amd-mi50", (), [], []),
    ],
)
def test_a_job_gets_its_vendor_s_nodes_and_nothing_else(
    target: str, on: str, numbers: tuple[int, ...], nodes: list[str], groups: list[int],
    docker_engine: TestEngine, image: str, started: list[Mapping[str, Any]], blank: Path, tmp_path: Path,
) -> None:  # fmt: skip
    given = devices_of(target, on, "docker", blank, tmp_path, *numbers)
    seen = look(docker_engine.open(), image, given, tmp_path)
    assert seen["nodes"] == {one: [1, 3] for one in nodes}
    assert seen["groups"] == sorted([OWNER[1], *groups])
    assert seen["user"] == list(OWNER)
    assert seen["capabilities"] == ["0" * 16]
    assert seen["privileges"] == ["1", "2"]
    assert (seen["networks"], seen["rest"]) == (["lo"], [])
    assert not started[0]["Privileged"]
    assert started[0]["GroupAdd"] == ([str(one) for one in groups] or None)


def test_hygon_s_driver_libraries_are_beside_the_job_s_volumes(
    docker_engine: TestEngine, image: str, started: list[Mapping[str, Any]], blank: Path, tmp_path: Path
) -> None:
    given = devices_of("sycl-hygon", "hygon-k100-ai", "docker", blank, tmp_path)
    seen = look(docker_engine.open(), image, given, tmp_path)
    assert {"/dev/kfd", "/dev/mkfd", "/dev/dri/card1"} <= set(seen["nodes"])
    assert (seen["hyhal"], seen["hyhal_is_writable"]) == ("version 1\n", False)
    assert started


@pytest.fixture
def tk_run(
    docker_engine: TestEngine, image: str, blank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """`tk run` in this process, for a library of ROCm on a captured machine; returns its exit code."""
    monkeypatch.setenv("DOCKER_HOST", docker_engine.url)

    def run(on: str, *options: str) -> int:
        (tmp_path / "m.machine").write_text(to_lines(machine(on, tmp_path / on)))
        library = library_for("rocm-amd", blank, tmp_path / "model.so")
        place = ("--image", image, "--assume", str(tmp_path / "m.machine"))
        return main(["run", str(library), *place, *options])

    return run


def test_tk_run_gives_a_library_the_devices_of_its_target(
    tk_run: Callable[..., int], started: list[Mapping[str, Any]], tmp_path: Path
) -> None:
    assert tk_run("amd-mi50", "--output-dir", str(tmp_path / "out")) == 0
    assert [one["PathInContainer"] for one in started[0]["Devices"]] == [
        "/dev/kfd",
        "/dev/dri/renderD129",
        "/dev/dri/renderD128",
    ]
    assert started[0]["GroupAdd"] == ["993"]
    assert (tmp_path / "out" / "y.npy").exists()


def test_explain_starts_nothing(
    tk_run: Callable[..., int], started: list[Mapping[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tk_run("amd-mi50", "--dry-run") == 0
    assert "--device /dev/kfd" in capsys.readouterr().out
    assert started == []


def test_a_missing_driver_is_exit_4_and_nothing_is_started(
    tk_run: Callable[..., int], started: list[Mapping[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tk_run("amd-no-driver") == ExitCode.HOST
    said = capsys.readouterr().err
    assert "has no driver" in said
    assert "modprobe amdgpu" in said
    assert started == []


def test_a_node_that_the_engine_s_machine_lacks_is_exit_4(
    tk_run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    if Path("/dev/kfd").exists():
        pytest.skip("this machine has /dev/kfd")
    assert tk_run("amd-mi50") == ExitCode.HOST
    assert "/dev/kfd" in capsys.readouterr().err


def test_an_engine_that_passes_over_devices_is_found_out_inside(
    docker_engine: TestEngine, image: str, blank: Path, tmp_path: Path
) -> None:
    given = devices_of("rocm-amd", "amd-mi50", "docker", blank, tmp_path)
    ignored = replace(given, options=())
    with pytest.raises(HostError, match="did not get the accelerators") as caught:
        look(docker_engine.open(), image, ignored, tmp_path)
    assert caught.value.why.splitlines()[0] == "/dev/kfd: No such file or directory"
    assert len(caught.value.why.splitlines()) == 3


def test_podman_gives_nodes_and_passes_over_cdi(
    podman_engine: TestEngine, started: list[Mapping[str, Any]], blank: Path, tmp_path: Path
) -> None:
    engine, reference = podman_engine.open(), cpu_image(podman_engine)
    seen = look(engine, reference, devices_of("rocm-amd", "amd-mi50", "podman", blank, tmp_path), tmp_path)
    assert list(seen["nodes"]) == ["/dev/dri/renderD128", "/dev/dri/renderD129", "/dev/kfd"]
    assert seen["groups"] == [993, OWNER[1]]
    given = devices_of("cuda-nvidia", "nvidia-h100-cdi", "podman", blank, tmp_path)
    assert [one.flag for one in given.options] == ["cdi", "group-add"]
    with pytest.raises(HostError, match="did not get the accelerators") as caught:
        look(engine, reference, given, tmp_path)
    assert "/dev/nvidiactl: No such file or directory" in caught.value.why
    assert "libcuda.so.1" in caught.value.why
    assert "--engine docker" in caught.value.hint
    assert started
