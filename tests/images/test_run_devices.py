"""Run options applied to a real container, /dev/null in place of accelerators, looked at from inside."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.device_trees import machine
from tests.support.engine import TestEngine
from toolchain.containers import host_probe
from toolchain.devices.capabilities import keep_capabilities
from toolchain.devices.detect import detect
from toolchain.devices.host_facts import Caller, EngineFacts
from toolchain.devices.options import RunOption, create_arguments
from toolchain.devices.privileges import HOME, asked_options, base_options, run_options
from toolchain.devices.sysroot import capture
from toolchain.devices.wishes import Wishes
from toolchain.engine.attach import ContainerUser, Streams, groups_of, run_attached
from toolchain.engine.client import Engine

pytestmark = pytest.mark.slow

CALLER = Caller(12345, 23456, (23456, 993, 39, 988, 110))
FACTS = EngineFacts("docker", runtimes=("nvidia",))
LOOK = """
for n in /dev/kfd /dev/mkfd /dev/dri/*; do
  [ -e $n ] && stat -c "node %n %t:%T" $n && : > $n && echo "usable $n"
done
echo "groups $(id -G)"; echo "names $(id -Gn)"; echo "user $(id -u):$(id -g) $(id -un)"
grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status
[ -d /opt/hyhal ] && { cat /opt/hyhal/version; touch /opt/hyhal/x 2>/dev/null && echo "writable hyhal"; }
touch $HOME/x && echo "home $HOME"
printf '#!/bin/sh\\necho runs' > $TMPDIR/x && chmod +x $TMPDIR/x
echo "temporary $($TMPDIR/x) $(ls -A $TMPDIR)"
echo "first $(tr '\\0' '\\n' < /proc/1/cmdline | head -1)"
"""


@pytest.fixture
def engine(docker_engine: TestEngine) -> Engine:
    return docker_engine.open()


@pytest.fixture
def look(
    engine: Engine, docker_engine: TestEngine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., dict[str, list[str]]]]:
    """What a program sees in a container with a captured machine's options: lines by their first word."""

    def run(name: str, vendor: str, wishes: Wishes | None = None, **changes: Any) -> dict[str, list[str]]:
        found = detect(machine(name, tmp_path / name))
        options = [*base_options(FACTS, CALLER), *asked_options(wishes or Wishes())]
        options += run_options(found, vendor, FACTS, CALLER, wishes)  # type: ignore[arg-type]
        status, out = inside(
            engine, docker_engine.base, tuple(options), ["sh", "-c", LOOK], tmp_path, capfd, **changes
        )
        assert status == 0, out
        seen: dict[str, list[str]] = {}
        for line in out.splitlines():
            word, _, rest = re.sub(r":\s+", " ", line).partition(" ")
            seen.setdefault(word, []).append(rest)
        return seen

    yield run
    with engine.guard("list containers"):
        ours = engine.api.containers(all=True, filters={"label": "tk.owner"})
    assert ours == []


def inside(
    engine: Engine,
    image: str,
    options: tuple[RunOption, ...],
    argv: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    **host: Any,
) -> tuple[int, str]:
    """Run with /dev/null for each node and a folder of ours for the host's driver libraries."""
    hyhal = tmp_path / "hyhal"
    hyhal.mkdir(exist_ok=True)
    (hyhal / "version").write_text("version 1\n")
    arguments = create_arguments(one for one in options if one.flag not in ("gpus", "cdi"))
    for entry in arguments["host"].get("devices", ()):
        entry["PathOnHost"] = "/dev/null"
    for entry in arguments["host"].get("mounts", ()):
        entry["Source"] = str(hyhal)
    arguments["host"].update({"network_mode": "none", **host})
    groups = groups_of(one.value for one in options if one.flag == "group-add")
    user = ContainerUser(CALLER.uid, CALLER.gid, groups, HOME)
    empty = os.open(os.devnull, os.O_RDONLY)
    try:
        streams = Streams(stdin=empty, stdout=1, stderr=2)
        status = run_attached(engine, image, argv, user=user, arguments=arguments, streams=streams)
    finally:
        os.close(empty)
    return status, capfd.readouterr().out


def test_amd(look: Callable[..., dict[str, list[str]]]) -> None:
    seen = look("amd-mi50", "amd")
    assert seen["node"] == [
        f"{one} 1:3" for one in ("/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129")
    ]
    assert seen["usable"] == ["/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129"]
    assert seen["groups"] == ["23456 993"]
    assert seen["names"] == ["host23456 host993"]
    assert seen["user"] == ["12345:23456 user12345"]


def test_hygon(look: Callable[..., dict[str, list[str]]]) -> None:
    seen = look("hygon-k100-ai", "hygon")
    assert "/dev/mkfd" in seen["usable"]
    assert sorted(seen["groups"][0].split()) == ["23456", "39", "988"]
    assert seen["version"] == ["1"]
    assert "writable" not in seen


def test_intel(look: Callable[..., dict[str, list[str]]]) -> None:
    seen = look("intel-flex", "intel", Wishes(numbers=(1,)))
    assert seen["usable"] == ["/dev/dri/card1", "/dev/dri/renderD129"]
    assert sorted(seen["groups"][0].split()) == ["110", "23456", "44"]


def test_the_least_privileges(look: Callable[..., dict[str, list[str]]]) -> None:
    seen = look("amd-old-kernel", "amd")
    capabilities = {name: values for name, values in seen.items() if name.startswith("Cap")}
    assert capabilities == {f"Cap{one}": ["0" * 16] for one in ("Inh", "Prm", "Eff", "Bnd", "Amb")}
    assert seen["NoNewPrivs"] == ["1"]
    assert seen["Seccomp"] == ["2"]
    assert seen["home"] == ["/tk/home"]
    assert seen["temporary"] == ["runs x"]
    assert seen["first"] != ["sh"]  # an init


def test_more_only_on_request(look: Callable[..., dict[str, list[str]]]) -> None:
    seen = look("amd-old-kernel", "amd", Wishes(allow_debugging=True, no_seccomp=True))
    assert int(seen["CapBnd"][0], 16) == 1 << 19  # CAP_SYS_PTRACE
    assert seen["Seccomp"] == ["0"]
    seen = look("nvidia-v100", "nvidia", Wishes(allow_profiling=True))
    assert int(seen["CapBnd"][0], 16) == 1 << 21  # CAP_SYS_ADMIN


@pytest.mark.parametrize("name", ["docker_engine", "podman_engine"])
def test_an_added_capability_reaches_who_is_not_root(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    under_test: TestEngine = request.getfixturevalue(name)
    engine = under_test.open()
    facts = EngineFacts("podman" if engine.kind == "podman" else "docker", engine.version)
    wishes = Wishes(allow_debugging=True)
    asked = (*base_options(facts, CALLER), *asked_options(wishes), RunOption("group-add", "993", "x"))
    options, words = keep_capabilities(asked, facts, CALLER)
    status, out = inside(engine, under_test.base, options, [*words, "sh", "-c", LOOK], tmp_path, capfd)
    assert status == 0, out
    assert "user 12345:23456" in out
    assert "groups 23456 993" in out
    sets = dict(re.findall(r"Cap(\w+):\s+([0-9a-f]{16})", out))
    wanted = 1 << 19  # CAP_SYS_PTRACE
    assert {kind: int(value, 16) for kind, value in sets.items()} == dict.fromkeys(
        ("Inh", "Prm", "Eff", "Bnd", "Amb"), wanted
    )
    assert re.search(r"NoNewPrivs:\s+1", out)
    assert "home /tk/home" in out


def test_the_image_is_not_changed(
    engine: Engine, docker_engine: TestEngine, look: Callable[..., Any]
) -> None:
    before = engine.image(docker_engine.base)
    look("amd-mi50", "amd")
    assert engine.image(docker_engine.base) == before
    assert b"user12345" not in (engine.read_file(docker_engine.base, "/etc/passwd") or b"")


def test_a_node_that_does_not_exist_is_an_error_and_leaves_nothing(
    engine: Engine, docker_engine: TestEngine, tmp_path: Path
) -> None:
    from compiler import HostError

    options = (*base_options(FACTS, CALLER), RunOption("device", "/dev/no-such-node", "x", "x"))
    with pytest.raises(HostError, match="no-such-node"):
        run_attached(
            engine,
            docker_engine.base,
            ["true"],
            user=ContainerUser(1, 1, (), HOME),
            arguments=create_arguments(options),
            streams=Streams(stdin=0),
        )
    with engine.guard("list containers"):
        assert engine.api.containers(all=True, filters={"label": "tk.owner"}) == []


def test_the_probe_sees_what_this_machine_shows(engine: Engine, docker_engine: TestEngine) -> None:
    there, here = host_probe.capture_remote(engine, docker_engine.base), capture()
    assert {path: text.strip() for path, text in there.files.items()} == {
        path: text.strip() for path, text in here.files.items()
    }
    assert (there.links, there.nodes, there.folders) == (here.links, here.nodes, here.folders)
    assert there.files  # any machine has something on its PCI bus


def test_the_probe_of_a_remote_engine(remote_engine: TestEngine) -> None:
    engine = remote_engine.open()
    found = host_probe.look(engine, remote_engine.base, None)
    assert found.origin == f"the machine of {remote_engine.url}"
    assert detect(found).vendors == detect(capture()).vendors


def test_podman(podman_engine: TestEngine, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    engine = podman_engine.open()
    facts = EngineFacts("podman", engine.version)
    found = detect(machine("amd-mi50", tmp_path / "tree"))
    options = (*base_options(facts, CALLER), *run_options(found, "amd", facts, CALLER))
    status, out = inside(engine, podman_engine.base, options, ["sh", "-c", LOOK], tmp_path, capfd)
    assert status == 0
    assert "usable /dev/kfd" in out
    assert "groups 23456 993" in out
    assert re.search(r"user 12345:23456 (user)?12345\n", out)  # podman gives such a user a name by itself
    assert re.search(r"CapBnd:\s+0{16}", out)
