"""The doctor on made-up machines: every check with what it finds, its cause and its fix."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compiler import HostError, TkError, UsageError
from tests.support.command import Result
from tests.support.device_trees import machine, names
from tests.support.fake_engine import FakeEngine, stored
from toolchain.containers.host_probe import to_lines
from toolchain.devices.detect import detect
from toolchain.devices.host_facts import Caller
from toolchain.devices.sysroot import Sysroot
from toolchain.doctor import accelerators, engines, host, sites, storage
from toolchain.doctor.examine import CHECKS, run_checks
from toolchain.doctor.examine import _locked as locked_images
from toolchain.doctor.row import CheckContext, Row
from toolchain.engine import labels
from toolchain.images.named import plan_named
from toolchain.settings import engine_settings

NO_ENGINE = HostError("cannot use the container engine: none answers at X; start Docker, or name another")


@pytest.fixture
def context(tmp_path: Path) -> CheckContext:
    """A small machine without accelerators, with an ordinary Docker."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('PRETTY_NAME="Test Linux 1"\n')
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("model name\t: Chip\nflags\t\t: sse avx2 avx512f\n")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   16000000 kB\n")
    settings = replace(engine_settings({"HOME": str(tmp_path)}), path=())
    return CheckContext(
        root=tmp_path,
        engine=FakeEngine(info={"Runtimes": {"nvidia": {}}}),  # type: ignore[arg-type]  # a stand-in
        endpoint="",
        inventory=detect(Sysroot()),
        caller=Caller(1000, 1000, (1000,)),
        settings=settings,
        cache=tmp_path / "cache",
        free=lambda _folder: 100_000_000_000,
        which=lambda _name: None,
        version_of=lambda path: f"{path} 1.0",
    )


@pytest.fixture
def on(context: CheckContext, tmp_path: Path) -> Callable[..., CheckContext]:
    """The same with the accelerators of a captured machine."""

    def with_machine(name: str, **changes: Any) -> CheckContext:
        return replace(context, inventory=detect(machine(name, tmp_path / name)), **changes)

    return with_machine


def states(rows: Any) -> list[str]:
    return [one.state for one in rows]


def test_a_good_machine_has_no_problems(context: CheckContext) -> None:
    rows = run_checks(context)
    assert "problem" not in states(rows)
    assert {"system", "processor", "memory", "engine", "accelerators", "space for caches", "site"} <= {
        one.about for one in rows
    }


def test_no_finding_without_cause_or_fix(on: Callable[..., CheckContext]) -> None:
    for name in names():
        for engine in (FakeEngine(), NO_ENGINE, FakeEngine(kind="podman", version="4.3.1")):
            rows = run_checks(on(name, engine=engine))
            assert not [one for one in rows if one.state == "problem" and not one.fix]
            assert not [one for one in rows if one.state != "ok" and not (one.cause or one.fix)]


def test_nothing_there_is_no_reason_to_fail(context: CheckContext, tmp_path: Path) -> None:
    bare = replace(
        context,
        root=tmp_path / "nowhere",
        engine=NO_ENGINE,
        inventory=HostError("nobody can look", hint="look elsewhere"),
        images=(("x", UsageError("no such image", hint="another")),),
    )
    rows = run_checks(bare)
    assert [one.about for one in rows if one.state == "problem"] == ["engine", "image x"]


def test_a_check_that_fails_is_a_row(context: CheckContext) -> None:
    def cannot_read(_context: CheckContext) -> list[Row]:
        raise PermissionError(13, "Permission denied")

    def is_refused(_context: CheckContext) -> list[Row]:
        raise HostError("no", hint="yes")

    rows = run_checks(context, [cannot_read, is_refused])
    assert [(one.about, one.state) for one in rows] == [("cannot read", "warning"), ("is refused", "warning")]


def test_no_engine_is_a_problem_with_its_fix(context: CheckContext) -> None:
    (row,) = engines.engine(replace(context, engine=NO_ENGINE))
    assert row == Row(
        "engine",
        "problem",
        "cannot use the container engine",
        "none answers at X",
        "start Docker, or name another",
    )


def test_the_engine_says_where_it_is(context: CheckContext) -> None:
    (row,) = engines.engine(context)
    assert row.found == "docker 28.2.2 at unix:///var/run/docker.sock (the default)"
    remote = FakeEngine(url="tcp://10.0.0.1:2375")
    (row,) = engines.engine(replace(context, engine=remote))  # type: ignore[arg-type]  # a stand-in
    assert "another machine" in row.found


def test_without_buildkit_there_is_a_warning(context: CheckContext) -> None:
    (row,) = engines.builder(context)
    assert row.state == "warning"
    podman = FakeEngine(kind="podman")
    assert states(engines.builder(replace(context, engine=podman))) == ["ok"]  # type: ignore[arg-type]  # a stand-in


def test_what_killed_runs_left_behind(context: CheckContext) -> None:
    host_name = labels.owner().rsplit(":", 2)[0]
    dead = {"Names": ["/tk-run-1"], "Labels": {labels.OWNER: f"{host_name}:999999999:1"}}
    alive = {"Names": ["/tk-run-2"], "Labels": {labels.OWNER: labels.owner()}}
    found = FakeEngine(containers=[dead, alive])
    (row,) = engines.leftovers(replace(context, engine=found))  # type: ignore[arg-type]  # a stand-in
    assert "1 container of runs" in row.found
    assert "tk-run-1" in row.found


@pytest.mark.parametrize(
    ("flags", "state"), [("avx2", "ok"), ("avx2 avx512f amx_tile", "ok"), ("sse4_2", "warning")]
)
def test_processor(context: CheckContext, flags: str, state: str) -> None:
    (context.root / "proc/cpuinfo").write_text(f"model name : A\nflags : {flags}\n\nmodel name : B\n")
    (row,) = host.processor(context)
    assert (row.state, row.found.split(":")[0]) == (state, "A")


def test_processor_of_aarch64(context: CheckContext) -> None:
    (context.root / "proc/cpuinfo").write_text("processor : 0\nFeatures : fp asimd crc32\nCPU part : 0xd40\n")
    (row,) = host.processor(context)
    assert (row.state, row.found) == ("ok", "aarch64: NEON")


@pytest.mark.parametrize(("text", "state"), [("16000000 kB", "ok"), ("900000 kB", "warning"), ("?", "ok")])
def test_memory(context: CheckContext, text: str, state: str) -> None:
    (context.root / "proc/meminfo").write_text(f"MemAvailable: {text}\n")
    assert states(host.memory(context)) == [state]


@pytest.mark.parametrize(
    ("free", "state"), [(50_000_000_000, "ok"), (10_000_000_000, "warning"), (1_000_000_000, "problem")]
)
def test_space(context: CheckContext, free: int, state: str) -> None:
    rows = list(storage.space(replace(context, free=lambda _folder: free)))
    assert states(rows) == [state]


def test_space_for_images_only_where_the_engine_is_here(context: CheckContext, tmp_path: Path) -> None:
    here = FakeEngine(info={"DockerRootDir": str(tmp_path)})
    assert len(list(storage.space(replace(context, engine=here)))) == 2  # type: ignore[arg-type]  # a stand-in
    there = FakeEngine(info={"DockerRootDir": str(tmp_path)}, url="tcp://10.0.0.1:1")
    assert len(list(storage.space(replace(context, engine=there)))) == 1  # type: ignore[arg-type]  # a stand-in


def test_devices_are_listed(on: Callable[..., CheckContext]) -> None:
    rows = list(accelerators.devices(on("nvidia-and-amd")))
    assert [one.about for one in rows] == ["nvidia 0", "amd 0"]
    assert rows[0].found == "NVIDIA Tesla V100-PCIE-32GB at 0000:3b:00.0, sm_70, driver nvidia 525.147.05"
    assert states(rows) == ["ok", "ok"]


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("amd-no-driver", "modprobe amdgpu"),
        ("amd-no-kfd", "CONFIG_HSA_AMD"),
        ("amd-root-only", "udev"),
        ("nvidia-nouveau", "nouveau"),
    ],
)
def test_what_keeps_containers_from_accelerators(
    on: Callable[..., CheckContext], name: str, fix: str
) -> None:
    rows = list(accelerators.access(on(name)))
    assert set(states(rows)) == {"problem"}
    assert fix in " ".join(one.fix for one in rows)


def test_groups_of_the_user(on: Callable[..., CheckContext]) -> None:
    (row,) = accelerators.groups(on("amd-mi50"))
    assert "group 993 of /dev/dri/renderD128 and /dev/dri/renderD129 and /dev/kfd" in row.found
    assert list(accelerators.groups(on("amd-mi50", caller=Caller(1000, 1000, (1000, 993))))) == []
    assert list(accelerators.groups(on("amd-mi50", caller=Caller(0, 0)))) == []
    assert list(accelerators.groups(on("intel-arctic-sound"))) == []


def test_a_stale_cdi_specification(on: Callable[..., CheckContext], tmp_path: Path) -> None:
    good = on("nvidia-h100-cdi")
    assert list(accelerators.specifications(good)) == []
    nodes = {path: node for path, node in good.inventory.nodes.items() if path != "/dev/nvidia0"}  # type: ignore[union-attr]  # it has one
    (row,) = accelerators.specifications(replace(good, inventory=replace(good.inventory, nodes=nodes)))  # type: ignore[type-var]  # as above
    assert row.state == "problem"
    assert "/dev/nvidia0" in row.found
    assert "nvidia-ctk cdi generate" in row.fix


def test_hygons_libraries(on: Callable[..., CheckContext]) -> None:
    assert states(accelerators.hygon_libraries(on("hygon-z100"))) == ["warning"]
    assert states(accelerators.hygon_libraries(on("hygon-k100-ai"))) == []
    assert states(accelerators.hygon_libraries(on("amd-mi50"))) == []


@functools.cache
def _chosen(name: str) -> tuple[str, Any]:

    return name, plan_named(name)


@pytest.mark.parametrize(
    ("name", "image", "state", "said"),
    [
        ("nvidia-v100", "cuda-11.2", "ok", "470.199.02 runs cuda-11.2.2"),
        ("nvidia-v100", "cuda-13", "problem", "470.199.02 is older than 580"),
        ("nvidia-v100", "cuda-12", "problem", "470.199.02 is older than 525"),
        ("nvidia-and-amd", "cuda-12", "ok", "525.147.05 runs cuda-12"),
        ("nvidia-h100-cdi", "cuda-13", "ok", "580.95.05 runs cuda-13"),
    ],
)
def test_driver_floors(on: Callable[..., CheckContext], name: str, image: str, state: str, said: str) -> None:
    rows = list(accelerators.fit(on(name, images=(_chosen(image),))))
    assert (rows[0].state, said in rows[0].found) == (state, True), rows[0]


def test_an_image_that_does_not_list_an_arch(on: Callable[..., CheckContext]) -> None:
    rows = list(accelerators.fit(on("nvidia-v100", images=(_chosen("cuda-13"),))))
    assert "does not list sm_70" in rows[1].found


def test_images_for_other_vendors_and_none_need_no_driver(on: Callable[..., CheckContext]) -> None:
    assert list(accelerators.fit(on("nvidia-v100", images=(_chosen("cpu"), _chosen("rocm-5.4"))))) == []


def test_an_image_that_is_not_built(context: CheckContext) -> None:
    chosen = _chosen("cpu")
    (row,) = engines.images(replace(context, images=(chosen,)))
    assert row.state == "warning"
    built = FakeEngine(images={chosen[1].plan.reference: stored(chosen[1].plan)})
    (row,) = engines.images(replace(context, images=(chosen,), engine=built))  # type: ignore[arg-type]  # a stand-in
    assert row.state == "ok"


def test_an_unknown_image_is_a_problem(context: CheckContext) -> None:
    error = UsageError("no stack is called `x`", hint="see list")
    (row,) = engines.images(replace(context, images=(("x", error),)))
    assert (row.state, row.fix) == ("problem", "see list")


def _docker_config(context: CheckContext, document: object) -> CheckContext:
    context.settings.config.mkdir(exist_ok=True)
    (context.settings.config / "config.json").write_text(json.dumps(document))
    return context


def test_logins_are_named_and_never_shown(context: CheckContext) -> None:
    assert [one.found for one in sites.logins(context)] == ["none"]
    secret = {"auths": {"registry.example": {"auth": "c2VjcmV0"}}}
    (row,) = sites.logins(_docker_config(context, secret))
    assert row.state == "warning"
    assert "registry.example" in row.found
    assert "c2VjcmV0" not in str(row)
    kept = {"auths": {"a": {}}, "credHelpers": {"b": "x"}, "credsStore": "pass"}
    (row,) = sites.logins(_docker_config(context, kept))
    assert (row.state, row.found) == ("ok", "a, b, kept by docker-credential-pass")


@pytest.mark.parametrize("document", [[], {"auths": []}, {"auths": {"a": 3}, "credsStore": 7}])
def test_an_odd_docker_configuration(context: CheckContext, document: object) -> None:
    assert states(sites.logins(_docker_config(context, document))) == ["ok"]


def test_a_docker_configuration_that_is_no_json(context: CheckContext) -> None:
    context.settings.config.mkdir()
    (context.settings.config / "config.json").write_text("{")
    assert states(sites.logins(context)) == ["warning"]


def test_a_broken_site_is_a_problem(context: CheckContext, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("regisry: x\n")
    (row,) = sites.check_site(replace(context, site=path))
    assert row.state == "problem"
    assert "site.yaml:1" in row.cause


def test_checks_have_names_and_docstrings() -> None:
    assert len({one.__name__ for one in CHECKS}) == len(CHECKS)
    assert all(one.__doc__ for one in CHECKS)


# The command as users run it.

Tk = Callable[..., Result]


def test_command_with_a_captured_machine(tk: Tk, tmp_path: Path) -> None:
    (tmp_path / "machine").write_text(to_lines(machine("amd-no-kfd", tmp_path / "tree")))
    done = tk("doctor", "--assume", "machine", "--docker-host", "unix:///nowhere/docker.sock")
    assert done.code == 4
    assert "PROBLEM  amd in containers" in done.out
    assert "fix: `sudo modprobe amdgpu`" in done.out
    document = tk(
        "doctor", "--assume", "machine", "--json", "--docker-host", "unix:///nowhere/docker.sock"
    ).json
    assert document["problems"] == len([one for one in document["rows"] if one["state"] == "problem"]) == 2
    assert {"about", "state", "found", "cause", "fix"} == set(document["rows"][0])


def test_capture_and_assume(tk: Tk, tmp_path: Path) -> None:
    done = tk("doctor", "--capture", "here")
    assert (done.code, done.out) == (0, "here\n")
    assert tk("doctor", "--capture", "here", "--json").json == {"captured": "here"}
    assert tk("doctor", "--assume", "here", "--docker-host", "unix:///nowhere/x.sock").code == 4  # no engine
    (tmp_path / "wrong").write_text("what?\n")
    done = tk("doctor", "--assume", "wrong", "--docker-host", "unix:///nowhere/x.sock")
    assert "cannot read what the probe of the devices printed" in done.out


def test_setup_says_what_is_missing(tk: Tk, tmp_path: Path) -> None:
    done = tk("setup", env={"XDG_STATE_HOME": str(tmp_path / "state")})
    assert done.code == 2
    assert "tk setup NAME" in done.err
    done = tk("setup", "cpu", "--docker-host", "unix:///nowhere/docker.sock")
    assert done.code == 4
    assert "error: this machine is not ready for cpu" in done.err


def test_setup_takes_the_image_of_the_lock(tk: Tk, tmp_path: Path) -> None:
    from toolchain.images.lock.file import Lock, LockedImage, write_lock
    from toolchain.images.plan import Pins

    own = {"XDG_STATE_HOME": str(tmp_path / "state")}
    section = LockedImage("0" * 64, "debian:bookworm", Pins(base_digest=f"sha256:{'0' * 64}"))
    nowhere = ("--docker-host", "unix:///nowhere/docker.sock")
    write_lock(tmp_path / "state" / "tk" / "tk.lock", Lock({"cpu": section}))
    done = tk("setup", *nowhere, env=own)
    assert (done.code, "this machine is not ready for cpu" in done.err) == (4, True), done.err

    (tmp_path / ".git").mkdir()  # so that the folder is a project of its own
    assert tk("setup", *nowhere, env=own).code == 2
    write_lock(tmp_path / "tk.lock", Lock({"cpu": section}))
    done = tk("setup", *nowhere)
    assert (done.code, "this machine is not ready for cpu" in done.err) == (4, True), done.err
    write_lock(tmp_path / "tk.lock", Lock({"cpu": section, "cpu-sycl": section}))
    done = tk("setup", *nowhere)
    assert (done.code, "it has cpu, cpu-sycl" in done.err) == (2, True), done.err
    rows = tk("doctor", "--json", *nowhere).json["rows"]
    (lock,) = [one for one in rows if one["about"] == "lock"]
    assert lock["found"].endswith("tk.lock pins cpu, cpu-sycl")


def test_the_users_own_lock_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was built outside of any project is locked there; in a project its own images count."""
    from toolchain.images.lock.file import Lock, LockedImage, write_lock
    from toolchain.images.lock.pins import user_lock
    from toolchain.images.plan import Pins

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    context: Any = None
    assert [one.about for one in sites.lock(context)] == ["lock"]
    section = LockedImage("0" * 64, "debian:bookworm", Pins())
    write_lock(user_lock(), Lock({"llvm-15": section}))
    assert [one.found for one in sites.lock(context)][1:] == [f"{user_lock()} pins llvm-15"]
    assert locked_images() == ["llvm-15"]
    write_lock(tmp_path / "tk.lock", Lock({"cpu": section}))
    assert locked_images() == ["cpu"]
    user_lock().write_text("<<<<<<< ours\n")
    assert states(sites.lock(context)) == ["ok", "warning"]  # the project's does without it


def test_an_image_of_another_recipe_is_not_the_one(context: CheckContext) -> None:
    """The same rule as for commands that use an image, not the name alone."""
    plan = _chosen("cpu")[1].plan
    own = {**stored(plan)["Labels"], labels.PLAN: "0" * 64}
    older = {**stored(plan), "Labels": own, "Config": {"Labels": own}}
    engine: Any = FakeEngine(images={plan.reference: older})
    (row,) = engines.images(replace(context, images=(_chosen("cpu"),), engine=engine))
    assert (row.state, "tk image build cpu" in row.fix) == ("warning", True)


@pytest.mark.parametrize("error", [NO_ENGINE, UsageError("x"), TkError("y")])
def test_errors_are_rows(error: TkError, context: CheckContext) -> None:
    assert states(engines.engine(replace(context, engine=error))) == ["problem"]
