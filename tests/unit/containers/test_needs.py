"""Which devices a job gets: by its command, its target, the machine and the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compiler import BadInputError, HostError, TkError, UsageError
from tests.support.device_library import build_blank, library_for
from tests.support.device_trees import machine, names
from tests.support.fake_engine import FakeEngine
from toolchain.containers import place
from toolchain.containers.host_probe import engine_facts, to_lines
from toolchain.containers.job import Job, job_options
from toolchain.containers.needs import TUNE, Given, give, needs_of
from toolchain.containers.place import image_of_target, run_placed
from toolchain.containers.request import Asked, ContainerLimits, RunPlace, Word
from toolchain.devices.detect import Inventory, detect
from toolchain.devices.host_facts import Caller, EngineFacts
from toolchain.devices.options import create_arguments
from toolchain.devices.wishes import Wishes
from toolchain.engine.client import Finished
from toolchain.options import Role
from toolchain.recipes.catalog import RecipeCatalog, load_catalog

DOCKER = EngineFacts("docker", "28.2.2", runtimes=("nvidia", "runc"))
PODMAN = EngineFacts("podman", "4.3.1", cdi=True)
ENGINES = {
    "docker": DOCKER,
    "docker-with-cdi": replace(DOCKER, cdi=True),
    "podman": PODMAN,
    "podman-rootless": replace(PODMAN, is_rootless=True),
    "docker-rootless": replace(DOCKER, is_rootless=True),
}
CALLER = Caller(1000, 1000, (1000, 993))
RUNNING = ("run", "verify", "bench")


@pytest.fixture(scope="module")
def catalog() -> RecipeCatalog:
    return load_catalog(())


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    return build_blank(tmp_path_factory.mktemp("blank"), own_cache)


Find = Callable[..., Given]


@pytest.fixture
def given(catalog: RecipeCatalog, blank: Path, tmp_path: Path) -> Find:
    """What a command gets for a target on a captured machine."""
    machines: dict[str, Inventory] = {}

    def find(
        command: str,
        target: str,
        on: str,
        engine: EngineFacts = DOCKER,
        *,
        values: Mapping[str, Any] | None = None,
        asked: Asked | None = None,
    ) -> Given:
        said = asked or Asked()
        own = {"target": target} if command in ("compile", TUNE) else {}
        if command in RUNNING:
            own = {"library": library_for(target, blank, tmp_path / "model.so")}
        needs = needs_of(command, {**own, **(values or {})}, said, catalog)
        if on not in machines:
            machines[on] = on_machine(on, tmp_path)
        return give(needs, machines[on], engine, CALLER, said.wishes)

    return find


def on_machine(name: str, tmp_path: Path) -> Inventory:
    return detect(machine(name, tmp_path / name))


@pytest.mark.parametrize("command", ["run", "compile"])
def test_every_target_on_every_machine(
    command: str, given: Find, catalog: RecipeCatalog, golden: Callable[[str, str], None]
) -> None:
    lines = []
    for name in names():
        said: dict[str, dict[str, list[str]]] = {}
        for target in catalog.targets:
            for title, engine in ENGINES.items():
                text = outcome(lambda t=target, n=name, e=engine: given(command, t, n, e))  # type: ignore[misc]
                text = text.replace(f"is for {target}\n", "is for TARGET\n")
                said.setdefault(text, {}).setdefault(target, []).append(title)
        lines.append(f"== {name}")
        for text, targets in said.items():
            by_engines: dict[str, list[str]] = {}
            for target, engines in targets.items():
                everywhere = len(engines) == len(ENGINES)
                by_engines.setdefault("" if everywhere else ", ".join(engines), []).append(target)
            lines += [
                f"-- {', '.join(found)}{f' with {engines}' if engines else ''}"
                for engines, found in by_engines.items()
            ]
            lines.append(text)
    golden(f"{command}.txt", "\n".join(lines) + "\n")


def outcome(find: Callable[[], Given]) -> str:
    try:
        found = find()
    except TkError as error:
        return f"  exit {int(error.code)}\n" + "\n".join(f"  {line}" for line in str(error).splitlines())
    lines = [f"  --{one.flag} {one.value}" for one in found.options]
    lines += [f"  inside: {' '.join(found.present)}"] * bool(found.present)
    lines += [f"  --arch={','.join(found.archs)}"] * bool(found.archs)
    lines += [f"  note: {one}" for one in found.notes]
    return "\n".join(lines) or "  nothing"


def test_running_commands_need_the_same(given: Find) -> None:
    assert given("run", "rocm-amd", "amd-mi50") == given("verify", "rocm-amd", "amd-mi50")
    assert given("run", "rocm-amd", "amd-mi50") == given("bench", "rocm-amd", "amd-mi50")
    assert given("run", "rocm-amd", "amd-mi50").options


def test_a_search_needs_the_device_that_it_measures_on(given: Find) -> None:
    """Where a compile can do without, or has no use for one."""
    measured = given(TUNE, "cuda-nvidia", "nvidia-v100")
    assert measured.options == given("run", "cuda-nvidia", "nvidia-v100").options != ()
    assert given(TUNE, "cuda-nvidia", "none", values={"plan": True}) == Given()
    assert given(TUNE, "cpu", "none") == Given()
    with pytest.raises(HostError) as caught:
        given(TUNE, "cuda-nvidia", "none")
    assert caught.value.where == "a search for cuda-nvidia measures kernels"


def test_host_cores_are_no_device(given: Find) -> None:
    for device in ("emulator", "emulator-unchecked"):
        assert given("run", "cuda-nvidia", "none", values={"device": device}) == Given()
    assert given("run", "cuda-nvidia", "none", asked=Asked(("none",))) == Given()


def test_what_is_missing_is_said_with_the_library_and_exit_code_4(given: Find) -> None:
    with pytest.raises(HostError, match=r"model\.so is for rocm-amd") as caught:
        given("run", "rocm-amd", "amd-no-kfd")
    assert int(caught.value.code) == 4
    assert "/dev/kfd is missing" in caught.value.why
    assert "modprobe" in caught.value.hint


def test_a_compile_asks_only_where_it_has_a_use(given: Find) -> None:
    assert given("compile", "cuda-nvidia", "nvidia-v100") == Given(archs=("sm_70",))
    assert given("compile", "cuda-nvidia", "nvidia-v100", values={"arch": "sm_90"}) == Given()
    for archs in ("sm_70", "sm_60,sm_70"):
        found = given("compile", "sycl-nvidia", "nvidia-v100", values={"arch": archs})
        assert (found.archs, found.present, found.options[0].flag) == ((), (), "gpus")
    assert given("compile", "sycl-nvidia", "nvidia-v100", values={"arch": "sm_90"}) == Given()
    assert given("compile", "hip", "amd-mi50").archs == ("gfx906",)  # not the processor's own GPU, too
    asked = Asked(wishes=Wishes((0, 1)))
    assert given("compile", "hip", "amd-mi50", asked=asked).archs == ("gfx906", "gfx90c")


def test_a_compile_goes_on_without_a_device_that_cannot_be_used(given: Find) -> None:
    found = given("compile", "sycl-amd", "amd-no-kfd")
    assert not found.options
    assert "/dev/kfd is missing" in found.notes[0]


def test_one_of_several(given: Find) -> None:
    asked = Asked(wishes=Wishes((1,)))
    found = given("run", "sycl-amd", "amd-mi50", asked=asked)
    assert found.present == ("/dev/kfd", "/dev/dri/renderD128")
    with pytest.raises(UsageError, match="number 7"):
        given("run", "sycl-amd", "amd-mi50", asked=Asked(wishes=Wishes((7,))))
    for wishes in (Wishes((0,)), Wishes(allow_profiling=True)):
        with pytest.raises(UsageError, match="has no use here"):
            given("run", "cpu", "amd-mi50", asked=Asked(wishes=wishes))


def test_profiling_only_where_it_is_asked_for(given: Find) -> None:
    def capabilities(found: Given) -> list[str]:
        return [one.value for one in found.options if one.flag == "cap-add"]

    assert capabilities(given("bench", "cuda-nvidia", "nvidia-v100")) == []
    asked = Asked(wishes=Wishes(allow_profiling=True))
    found = given("bench", "cuda-nvidia", "nvidia-v100", asked=asked)
    assert capabilities(found) == ["SYS_ADMIN"]
    assert "root only" in found.notes[0]
    found = given("bench", "rocm-amd", "amd-mi50", asked=asked)
    assert (capabilities(found), "adds nothing" in found.notes[0]) == ([], True)


def test_vendors_by_name(given: Find) -> None:
    found = given("run", "cpu", "nvidia-and-amd", asked=Asked(("amd",)))
    assert found.present[0] == "/dev/kfd"
    with pytest.raises(UsageError, match="did you mean 'amd'"):
        given("run", "cpu", "none", asked=Asked(("amdd",)))
    with pytest.raises(HostError, match="has no Intel accelerator"):
        given("compile", "cpu", "none", asked=Asked(("intel",)))


def test_unknown_targets(given: Find) -> None:
    with pytest.raises(UsageError, match="no image is listed for the target `cuda-nvida`"):
        given("compile", "cuda-nvida", "none")
    with pytest.raises(BadInputError, match=r"`vulkan`, of which the recipes know nothing(.|\n)*--devices"):
        given("run", "vulkan", "none")


def test_a_file_that_is_no_library(catalog: RecipeCatalog, tmp_path: Path) -> None:
    (tmp_path / "x.so").write_text("no")
    with pytest.raises(BadInputError, match="no model library"):
        needs_of("run", {"library": tmp_path / "x.so"}, Asked(), catalog)


def test_a_driver_s_folder_does_not_hide_the_job_s_own(given: Find) -> None:
    found = given("run", "rocm-hygon", "hygon-k100-ai")
    job = Job(("run",), devices=found.options)
    host = create_arguments(job_options(job, "tk-compiler-0", "tk-cache-1"))["host"]
    assert [one["Target"] for one in host["mounts"]] == ["/opt/tk", "/var/cache/tk", "/job", "/opt/hyhal"]
    assert host["mounts"][0]["ReadOnly"]
    assert host["mounts"][3]["ReadOnly"]
    assert (host["cap_drop"], host["network_mode"], host["read_only"]) == (["ALL"], "none", True)
    assert "privileged" not in host


@pytest.fixture
def machine_file(tmp_path: Path) -> Callable[[str], Path]:
    def write(name: str) -> Path:
        path = tmp_path / f"{name}.machine"
        path.write_text(to_lines(machine(name, tmp_path / name)))
        return path

    return write


def test_the_machine_of_a_remote_engine_is_looked_at_in_the_image(
    blank: Path, catalog: RecipeCatalog, tmp_path: Path
) -> None:
    library = library_for("rocm-amd", blank, tmp_path / "model.so")
    lines = to_lines(machine("amd-mi50", tmp_path / "there"))
    engine = FakeEngine(url="tcp://10.0.0.1:1", answer=Finished(0, lines))
    needs = needs_of("run", {"library": library}, Asked(), catalog)
    found = place._given(engine, "some/image:1", needs, RunPlace("some/image:1"))  # type: ignore[arg-type]
    assert found.present[0] == "/dev/kfd"
    assert engine.asked[0][0] == "some/image:1"
    assert place._given(engine, None, (), RunPlace("some/image:1")) == Given()  # type: ignore[arg-type]
    assert len(engine.asked) == 1
    assert not engine_facts(engine).is_local  # type: ignore[arg-type]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine(info={"Runtimes": {"nvidia": {}}})
    monkeypatch.setattr(place, "open_chosen", lambda *_args, **_options: engine)
    return engine


def test_explain_shows_every_option_with_its_reason_and_runs_nothing(
    fake: FakeEngine,
    blank: Path,
    tmp_path: Path,
    machine_file: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    library = library_for("sycl-amd", blank, tmp_path / "model.so")
    where = RunPlace("some/image:1", asked=Asked(assumed=machine_file("amd-mi50")), explain=True)
    words = {"library": Word(role=Role.INPUT), "json": Word("--json")}
    assert run_placed("run", {"library": library}, words, where) == 0
    said = capsys.readouterr()
    assert "--device /dev/kfd\n      the compute interface that all AMD GPUs share [" in said.out
    assert "--group-add 993\n      the host's group of " in said.out
    assert "--read-only\n      the image is not changed" in said.out
    assert "looked at inside before the work: /dev/kfd, " in said.out
    assert "not built yet" in said.err
    assert run_placed("run", {"library": library, "json": True}, words, where) == 0
    assert '"checked_inside"' in capsys.readouterr().out
    assert fake.asked == []


def test_what_is_missing_is_said_before_anything_is_built(
    fake: FakeEngine, blank: Path, tmp_path: Path, machine_file: Callable[[str], Path]
) -> None:
    library = library_for("cuda-nvidia", blank, tmp_path / "model.so")
    where = RunPlace("cuda-12-pip", build=True, asked=Asked(assumed=machine_file("nvidia-nouveau")))
    with pytest.raises(HostError, match="nouveau"):
        run_placed("run", {"library": library}, {"library": Word(role=Role.INPUT)}, where)
    assert fake.asked == []


@pytest.mark.parametrize(
    ("on", "arch", "image"),
    [
        ("nvidia-v100", None, "cuda-11.8.0"),
        ("nvidia-v100", "sm_120", "cuda-12.8.1"),
        ("none", None, "cuda-11.8.0"),
    ],
)
def test_the_image_of_a_target_has_the_accelerators_arch(
    on: str, arch: str | None, image: str, fake: FakeEngine, machine_file: Callable[[str], Path]
) -> None:
    where = RunPlace("", asked=Asked(assumed=machine_file(on)))
    assert image_of_target({"target": "cuda", "arch": arch}, where) == image
    assert fake.asked == []


def test_options_of_the_place_need_an_image(tk: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "m.so").write_text("no")
    for option in (("--devices", "amd"), ("--gpu", "0"), ("--allow-profiling",)):
        done = tk("run", "m.so", *option)
        assert done.code == 2
        assert f"{option[0]} has no use here" in done.err


def test_limits_are_the_engine_s() -> None:
    job = Job(("run",), limits=ContainerLimits(memory=5_000_000_000))
    host = create_arguments(job_options(job, "tk-compiler-0", "tk-cache-1"))["host"]
    assert (host["mem_limit"], host["memswap_limit"]) == (5_000_000_000, 5_000_000_000)
    free = create_arguments(job_options(Job(("run",)), "tk-compiler-0", "tk-cache-1"))["host"]
    assert {"mem_limit", "memswap_limit"}.isdisjoint(free)
