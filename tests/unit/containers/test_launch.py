"""From what was asked for to a container: image, vendor, folder, notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compiler import BadInputError, HostError, UsageError
from tests.support.command import Result
from tests.support.device_trees import machine
from tests.support.fake_engine import FakeEngine
from toolchain.containers.host_probe import to_lines
from toolchain.containers.launch import Launch, prepare, start
from toolchain.containers.request import Request
from toolchain.devices.host_facts import Caller
from toolchain.devices.options import create_arguments
from toolchain.devices.wishes import Extras, Wishes

ENGINE = {"Runtimes": {"nvidia": {}, "runc": {}}}
IMAGE = {"some/image:1": {"Id": "x"}}
Tk = Callable[..., Result]


@pytest.fixture
def ready(tmp_path: Path) -> Callable[..., Launch]:
    """What is decided for a request on a captured machine."""

    def decide(name: str, on: str, *, engine: FakeEngine | None = None, **wanted: object) -> Launch:
        captured = tmp_path / f"{on}.machine"
        captured.write_text(to_lines(machine(on, tmp_path / on)))
        request = Request(image=name, argv=("true",), assumed=captured)
        chosen = engine or FakeEngine(info=ENGINE, images=dict(IMAGE))
        return prepare(chosen, replace(request, **wanted))  # type: ignore[arg-type]  # the caller's to get right

    return decide


def values(launch: Launch, flag: str) -> list[str]:
    return [one.value for one in launch.options if one.flag == flag]


def test_the_recipe_says_whose_accelerators(ready: Callable[..., Launch]) -> None:
    assert values(ready("rocm-5.4", "nvidia-and-amd"), "device") == ["/dev/kfd", "/dev/dri/renderD129"]
    assert values(ready("cuda-11.8", "nvidia-and-amd"), "gpus") == ["all"]
    launch = ready("cpu", "nvidia-and-amd")
    assert values(launch, "device") + values(launch, "gpus") == []


def test_without_the_vendors_accelerator_it_runs_without(ready: Callable[..., Launch]) -> None:
    launch = ready("rocm-5.4", "none")
    assert values(launch, "device") == []
    assert any("has no AMD accelerator" in one for one in launch.notes)


def test_what_is_there_and_broken_is_an_error_unless_not_wanted(ready: Callable[..., Launch]) -> None:
    with pytest.raises(HostError):
        ready("rocm-5.4", "amd-no-kfd")
    assert values(ready("rocm-5.4", "amd-no-kfd", devices=("none",)), "device") == []


def test_vendors_by_name(ready: Callable[..., Launch]) -> None:
    launch = ready("cpu", "nvidia-and-amd", devices=("amd", "nvidia"))
    assert values(launch, "device") == ["/dev/kfd", "/dev/dri/renderD129"]
    assert values(launch, "gpus") == ["all"]
    with pytest.raises(HostError, match="Intel"):
        ready("cpu", "nvidia-and-amd", devices=("intel",))


def test_an_image_by_reference_gets_no_accelerators_unless_named(ready: Callable[..., Launch]) -> None:
    assert values(ready("some/image:1", "amd-mi50"), "device") == []
    assert len(values(ready("some/image:1", "amd-mi50", devices=("amd",)), "device")) == 3
    with pytest.raises(HostError, match="no image other"):
        ready("other/image:1", "amd-mi50")


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"devices": ("amdd",)}, "did you mean 'amd'"),
        ({"devices": ("none", "amd")}, "stand alone"),
        ({"network": "host"}, "never shared"),
    ],
)
def test_unknown_words(ready: Callable[..., Launch], wanted: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        ready("cpu", "none", **wanted)
    assert said in str(caught.value)


def test_the_folder_is_mounted_where_the_engine_sees_it(ready: Callable[..., Launch], tmp_path: Path) -> None:
    launch = ready("cpu", "none", folder=tmp_path)
    assert values(launch, "mount") == [f"{tmp_path}:/work"]
    assert values(launch, "workdir") == ["/work"]
    remote = FakeEngine(info=ENGINE, url="tcp://10.0.0.1:1")
    launch = ready("cpu", "none", folder=tmp_path, engine=remote)
    assert values(launch, "mount") == []
    assert values(launch, "workdir") == ["/tk/home"]
    assert any("elsewhere" in one for one in launch.notes)
    with pytest.raises(UsageError, match="cannot be mounted"):
        ready("cpu", "none", folder=tmp_path / "a:b")


def test_an_old_driver_is_said(ready: Callable[..., Launch]) -> None:
    assert any("older than 580" in one for one in ready("cuda-13", "nvidia-v100").notes)
    assert not any("older" in one for one in ready("cuda-11.2", "nvidia-v100").notes)


def test_profiling_that_needs_nothing_is_said(ready: Callable[..., Launch]) -> None:
    wishes = Wishes(allow_profiling=True)
    assert any("adds nothing" in one for one in ready("rocm-5.4", "amd-mi50", wishes=wishes).notes)
    launch = ready("cuda-11.2", "nvidia-v100", wishes=wishes)
    assert values(launch, "cap-add") == ["SYS_ADMIN"]
    assert not any("adds nothing" in one for one in launch.notes)


def test_whoever_runs_it_gets_added_capabilities_with_docker_too(
    ready: Callable[..., Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolchain.containers.launch.this_caller", lambda: Caller(1000, 1001, (1001, 993)))
    wishes = Wishes(allow_profiling=True)
    launch = ready("cuda-11.2", "nvidia-v100", wishes=wishes)
    assert values(launch, "user") == ["0:0"]
    assert values(launch, "cap-drop") == ["ALL"]
    assert values(launch, "cap-add") == ["SYS_ADMIN", "SETUID", "SETGID", "SETPCAP"]
    line = " ".join(launch.argv)
    assert line.startswith("setpriv --reuid 1000 --regid 1001 ")
    for kind in ("inh", "ambient", "bounding"):
        assert f"-{kind}" in line
        assert "=-all,+sys_admin" in line
    assert line.endswith(" -- true")
    assert launch.user == "1000:1001"
    plain = ready("cuda-11.2", "nvidia-v100")
    assert (plain.argv, values(plain, "user"), plain.user) == (("true",), ["1000:1001"], "1000:1001")
    as_root = ready("cuda-11.2", "nvidia-v100", wishes=wishes, as_root=True)
    assert (as_root.argv, values(as_root, "cap-add")) == (("true",), ["SYS_ADMIN"])
    podman = FakeEngine(kind="podman", version="4.3.1")
    debugging = ready("rocm-5.4", "amd-mi50", wishes=Wishes(allow_debugging=True), engine=podman)
    assert (debugging.argv, values(debugging, "user")) == (("true",), ["1000:1001"])


def test_more_on_request(
    ready: Callable[..., Launch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_TEST", "hidden-value")
    (tmp_path / "sets").mkdir()
    monkeypatch.chdir(tmp_path)
    extras = Extras(
        volumes=("./sets:/data:ro", "models:/models", f"{tmp_path}/sets:/out"),
        env=("LEVEL=3=x", "TOKEN_OF_TEST", "EMPTY="),
        publish=("8888", "8080:80", "0.0.0.0:53:53/udp"),
        workdir="/data",
    )
    launch = ready("cpu", "none", extras=extras, folder=tmp_path)
    assert values(launch, "mount") == [
        f"{tmp_path}:/work",
        f"{tmp_path}/sets:/data:ro",
        f"{tmp_path}/sets:/out",
    ]
    assert values(launch, "volume") == ["models:/models"]
    assert values(launch, "publish") == [
        "127.0.0.1:8888:8888", "127.0.0.1:8080:80", "0.0.0.0:53:53/udp",
    ]  # fmt: skip
    assert values(launch, "workdir") == ["/data"]
    assert "hidden-value" not in launch.command_line() + str(launch)
    assert "--env TOKEN_OF_TEST" in launch.command_line()
    made = create_arguments(launch.options)
    assert made["environment"] == {
        "HOME": "/tk/home", "TMPDIR": "/tk/tmp", "LEVEL": "3=x", "TOKEN_OF_TEST": "hidden-value", "EMPTY": "",
    }  # fmt: skip
    assert made["ports"] == [(8888, "tcp"), (80, "tcp"), (53, "udp")]
    assert made["host"]["port_bindings"]["53/udp"] == [("0.0.0.0", 53)]
    reasons = [one.reason for one in launch.options if one.flag in ("volume", "publish")]
    assert all(one.startswith("asked for") for one in reasons)


def test_nothing_more_unless_asked_for(ready: Callable[..., Launch], tmp_path: Path) -> None:
    launch = ready("cpu", "none", folder=tmp_path)
    assert values(launch, "volume") + values(launch, "publish") == []
    assert values(launch, "mount") == [f"{tmp_path}:/work"]
    assert [one.partition("=")[0] for one in values(launch, "env")] == ["HOME", "TMPDIR"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"volumes": ("/tmp",)}, "is no volume"),
        ({"volumes": ("/no/such/folder:/data",)}, "there is no /no/such/folder"),
        ({"volumes": ("~nobody-of-this-name/x:/data",)}, "there is no ~nobody-of-this-name/x"),
        ({"volumes": (".:data",)}, "is no folder in the container"),
        ({"volumes": (".:/",)}, "is no folder in the container"),
        ({"volumes": (".:/data:rx",)}, "is no volume"),
        ({"volumes": ("one:/data", "two:/data")}, "is taken already"),
        ({"volumes": ("one:/data", "two:/data/")}, "is taken already"),
        ({"volumes": (".:/work",)}, "--no-folder"),
        ({"volumes": (".:/tk/home",)}, "is taken already"),
        ({"volumes": ("-x:/data",)}, "no volume can be called"),
        ({"env": ("NOT_SET_ANYWHERE_1",)}, "is not set here"),
        ({"env": ("a b=c",)}, "sets no variable"),
        ({"publish": ("80:70000",)}, "is no port"),
        ({"publish": ("http",)}, "is no port"),
        ({"workdir": "here"}, "is no folder in the container"),
    ],
)
def test_requests_that_make_no_sense(
    ready: Callable[..., Launch], wanted: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises((UsageError, BadInputError)) as caught:
        ready("cpu", "none", extras=Extras(**wanted), folder=tmp_path)
    assert said in str(caught.value)


def test_folders_of_this_machine_are_not_there_on_another(ready: Callable[..., Launch]) -> None:
    remote = FakeEngine(info=ENGINE, url="tcp://10.0.0.1:1")
    with pytest.raises(UsageError, match="does not see"):
        ready("cpu", "none", engine=remote, extras=Extras(volumes=("./x:/data",)))
    assert values(ready("cpu", "none", engine=remote, extras=Extras(volumes=("sets:/data",))), "volume")


def test_ports_need_a_network(ready: Callable[..., Launch]) -> None:
    with pytest.raises(UsageError, match="no use with --network none"):
        ready("cpu", "none", network="none", extras=Extras(publish=("80",)))


def test_the_engine_is_named_where_it_is_not_the_default(ready: Callable[..., Launch]) -> None:
    line = ready("cpu", "none").command_line()
    assert line.startswith("docker run --rm --init --user ")
    assert " --cap-drop ALL " in line
    podman = FakeEngine(kind="podman", version="4.3.1")
    assert ready("cpu", "none", engine=podman).command_line().startswith("podman run ")


def test_an_image_that_is_not_built_is_not_run(ready: Callable[..., Launch]) -> None:
    launch = ready("cpu", "none")
    assert not launch.is_built
    with pytest.raises(HostError, match="no image of cpu"):
        start(FakeEngine(), launch, tty=False)  # type: ignore[arg-type]  # a stand-in


def test_a_stand_in_is_used_and_said(ready: Callable[..., Launch]) -> None:
    stored = {
        "Id": "x",
        "RepoTags": ["tk/cpu:12-0"],
        "Labels": {"tk.plan": "k", "tk.name": "cpu-12", "tk.stand-in": "my/base"},
    }
    name = ready("cpu", "none").name
    stored["Labels"]["tk.name"] = name  # type: ignore[index]  # a dict here
    launch = ready("cpu", "none", engine=FakeEngine(images={"tk/cpu:12-0": stored}))
    assert (launch.is_built, launch.reference) == (True, "tk/cpu:12-0")
    assert any("stand-in: my/base" in one for one in launch.notes)


def test_tks_own_failures_are_125_and_looking_has_the_usual_codes(tk: Tk) -> None:
    nowhere = ("--docker-host", "unix:///nowhere/docker.sock")
    done = tk("image", "run", "cpu", *nowhere, "--", "true")
    assert done.code == 125
    assert len(done.err.splitlines()) == 1
    assert tk("image", "shell", "cpu", *nowhere).code == 125
    assert tk("image", "run", "cpu", *nowhere, "--explain", "--", "true").code == 4
    assert tk("image", "run", "cpu", *nowhere).code == 125
    assert tk("image", "run", "--nonsense").code == 2
    for mistake in (("--locked", "--frozen"), ("--with", "missing.sh"), ("--with-apt", "bad name!")):
        assert tk("image", "run", "cpu", *mistake, "--", "true").code == 125
        assert tk("image", "shell", "cpu", *mistake).code == 125
        assert tk("image", "run", "cpu", *mistake, "--explain", "--", "true").code in (2, 3)
