"""The devices behind CUDA's driver and HIP's runtime, against stand-ins for both: no GPU takes part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from compiler.core.process import run
from compiler.core.settings import child_environment
from compiler.runtime.library import INCLUDE, SOURCES
from tests.support import drivers
from tests.support.drivers import FIXTURES, FakeDriver, build_driver, compile_cpp, environment
from tests.support.once import Once

TK_ERR_HOST, TK_ERR_MEMORY, TK_ERR_DEVICE, TK_ERR_LIBRARY = 4, 5, 6, 8


@dataclass(frozen=True)
class Language:
    name: str
    driver: FakeDriver
    gpus: str
    image: str
    made: str
    calls: dict[str, str] = field(default_factory=dict)


CUDA = Language(
    "cuda",
    drivers.CUDA,
    "NVIDIA V100=7.0;NVIDIA A10=8.6",
    "cubin:sm_70",
    "NVIDIA V100 (sm_70) type 2 number 0: 126 126, 250000 ns",
    {
        "allocate": "cuMemAlloc_v2",
        "wait": "cuStreamSynchronize",
        "load": "cuModuleLoadData",
        "start": "cuInit",
        "capture": "cuStreamBeginCapture_v2",
        "captured": "cuStreamEndCapture",
        "instantiate": "cuGraphInstantiateWithFlags",
        "replay": "cuGraphLaunch",
        "launch": "cuLaunchKernel",
        "forget": "cuGraphExecDestroy",
        "follow": "cuStreamWaitEvent",
    },
)
HIP = Language(
    "hip",
    drivers.HIP,
    "MI50=gfx906;MI210=gfx90a",
    "hsaco:gfx906",
    "MI50 (gfx906) type 10 number 0: 126 126, 250000 ns",
    {
        "allocate": "hipMalloc",
        "wait": "hipStreamSynchronize",
        "load": "hipModuleLoadData",
        "start": "hipGetDeviceCount",
        "capture": "hipStreamBeginCapture",
        "captured": "hipStreamEndCapture",
        "instantiate": "hipGraphInstantiate",
        "replay": "hipGraphLaunch",
        "launch": "hipModuleLaunchKernel",
        "forget": "hipGraphExecDestroy",
        "follow": "hipStreamWaitEvent",
    },
)
BOTH = pytest.mark.parametrize("language", [CUDA, HIP], ids=["cuda", "hip"])
Probe = Callable[..., tuple[str, list[str]]]


@pytest.fixture(scope="module")
def built(once: Once) -> Path:
    """Both programs for each driver, and each driver in a folder of its own."""
    return once("drivers", build_all)


def build_all(directory: Path) -> None:
    build_driver(HIP.driver, directory, "-DFAKE_WITHOUT_GRAPHS", name="hip-old")
    for language in (CUDA, HIP):
        build_driver(language.driver, directory)
        common = [SOURCES / "error.cpp", *(SOURCES / "devices" / f"{n}.cpp" for n in ("gpu", language.name))]
        for program, more in (
            ("probe", []),
            ("context", [SOURCES / f"{name}.cpp" for name in ("device_context", "extents", "memory")]),
        ):
            sources = [FIXTURES / f"gpu_{program}.cpp", *common, *more]
            output = directory / f"{program}-{language.name}"
            compile_cpp(directory, output, *(compiled(source, directory) for source in sources), "-ldl")


def compiled(source: Path, directory: Path) -> str:
    """The object of a source, which several programs have."""
    output = directory / f"{source.stem}.o"
    if not output.exists():
        compile_cpp(directory, output, "-c", "-I", str(INCLUDE), "-I", str(SOURCES), str(source))
    return str(output)


@pytest.fixture
def probe(built: Path, tmp_path: Path) -> Probe:
    """Runs a probe; gives what it printed and the calls that the driver got."""

    def start(
        language: Language,
        *images: str,
        selector: str = "",
        shared: int = 0,
        function: str = "twice",
        gpus: str | None = None,
        fail: str = "",
        driver: str | None = "",
    ) -> tuple[str, list[str]]:
        log = tmp_path / "calls"
        log.unlink(missing_ok=True)
        folder = tmp_path if driver is None else built / (driver or language.name)
        env = child_environment(**environment(folder, language.gpus if gpus is None else gpus, log, fail))
        argv = [str(built / f"probe-{language.name}"), selector, str(shared), function, *images]
        done = run(argv, env=env, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), log.read_text().split("\n") if log.exists() else []

    return start


@BOTH
def test_a_device_runs_what_it_is_given(language: Language, probe: Probe) -> None:
    printed, calls = probe(language, language.image)
    assert printed == language.made
    assert f"load {language.image}" in calls
    assert sum("Free" in name for name in calls) == 3
    assert any("Unload" in name for name in calls)


def test_the_cubin_of_the_closest_arch_is_loaded(probe: Probe) -> None:
    images = ("cubin:sm_70", "cubin:sm_80", "cubin:sm_87", "cubin:sm_89", "cubin:sm_90", "ptx:sm_80")
    _, calls = probe(CUDA, *images, selector="1")
    assert "load cubin:sm_80" in calls  # of an 8.6: 8.7 is for boards, 8.9 is later


def test_ptx_serves_later_archs(probe: Probe) -> None:
    printed, calls = probe(CUDA, "cubin:sm_70", "ptx:sm_70", gpus="NVIDIA H100=9.0")
    assert "load ptx:sm_70" in calls
    assert printed.startswith("NVIDIA H100 (sm_90)")


def test_a_driver_that_is_older_than_the_ptx(probe: Probe) -> None:
    image = "ptx:sm_70 .version 8.8"
    printed, _ = probe(CUDA, image, gpus="NVIDIA H100=9.0", fail="cuModuleLoadData=222")
    assert printed.startswith(f"status {TK_ERR_DEVICE}: the ptx for sm_70")
    assert "it is PTX 8.8, newer than this driver, which is of CUDA 12.2; update the driver" in printed
    assert "`--arch sm_90`" in printed


def test_an_older_device_is_refused_with_the_command_that_helps(probe: Probe) -> None:
    printed, _ = probe(CUDA, "cubin:sm_80", "cubin:sm_90", "ptx:sm_90", gpus="Tesla T4=7.5")
    assert printed.startswith(f"status {TK_ERR_DEVICE}:")
    assert "kernels for sm_80,sm_90, and Tesla T4 is sm_75" in printed
    assert "`tk compile MODEL.onnx --target the-target --arch sm_80,sm_90,sm_75`" in printed


def test_a_device_of_another_make_is_refused(probe: Probe) -> None:
    printed, _ = probe(HIP, "hsaco:gfx906", "hsaco:gfx908", gpus="RX 6800=gfx1030")
    assert "kernels for gfx906,gfx908, and RX 6800 is gfx1030" in printed
    assert "--arch gfx906,gfx908,gfx1030" in printed


def test_two_archs_in_one_library(probe: Probe) -> None:
    for selector, arch in (("0", "gfx906"), ("1", "gfx90a"), ("mi210", "gfx90a"), ("gpu:1", "gfx90a")):
        _, calls = probe(HIP, "hsaco:gfx906", "hsaco:gfx90a", selector=selector)
        assert f"load hsaco:{arch}" in calls


def test_hygons_name_for_gfx906(probe: Probe) -> None:
    printed, _ = probe(HIP, "hsaco:gfx906", gpus="Z100=gfx916")
    assert printed.startswith("Z100 (gfx916)")


@BOTH
def test_the_first_device_that_fits_is_taken(language: Language, probe: Probe) -> None:
    image = "cubin:sm_80" if language is CUDA else "hsaco:gfx90a"
    printed, _ = probe(language, image)
    assert "number 1" in printed


@BOTH
def test_an_unknown_device_is_told_with_those_there_are(language: Language, probe: Probe) -> None:
    printed, _ = probe(language, language.image, selector="gpu:7")
    assert printed.startswith(f"status {TK_ERR_DEVICE}: there is no")
    assert "0: " in printed
    assert "1: " in printed


@BOTH
def test_no_gpu(language: Language, probe: Probe) -> None:
    printed, _ = probe(language, language.image, gpus="")
    assert printed.startswith(f"status {TK_ERR_DEVICE}:")
    assert "shows no GPU" in printed


def test_no_driver(probe: Probe) -> None:
    printed, _ = probe(CUDA, "cubin:sm_70", driver=None)
    if "shows no GPU" in printed or printed.startswith("NVIDIA"):
        pytest.skip("this machine has an NVIDIA driver")
    assert printed.startswith(f"status {TK_ERR_HOST}: no NVIDIA driver: libcuda.so.1: cannot open")
    assert "install it" in printed


@BOTH
def test_a_driver_that_does_not_start(language: Language, probe: Probe) -> None:
    printed, _ = probe(language, language.image, fail=f"{language.calls['start']}=999")
    assert printed.startswith(f"status {TK_ERR_HOST}:")
    assert "does not start" in printed
    assert "in other words" in printed


@BOTH
@pytest.mark.parametrize(
    ("call", "code", "status", "words"),
    [
        ("allocate", 2, TK_ERR_MEMORY, "gives no 256 bytes"),
        ("allocate", 1, TK_ERR_DEVICE, "gives no 256 bytes"),
        ("wait", 700, TK_ERR_DEVICE, "the work on the device failed"),
        ("load", 209, TK_ERR_DEVICE, "does not load on"),
    ],
)
def test_errors_become_statuses(
    language: Language, probe: Probe, call: str, code: int, status: int, words: str
) -> None:
    printed, _ = probe(language, language.image, fail=f"{language.calls[call]}={code}")
    assert printed.startswith(f"status {status}:")
    assert words in printed
    assert "in other words" in printed


@BOTH
def test_a_kernel_that_is_not_in_the_image(language: Language, probe: Probe) -> None:
    printed, _ = probe(language, language.image, function="thrice")
    assert printed.startswith(f"status {TK_ERR_LIBRARY}:")
    assert f"for {language.image.partition(':')[2]} has no kernel thrice" in printed


@BOTH
def test_launches_are_recorded_and_replayed(language: Language, probe: Probe) -> None:
    printed, calls = probe(language, language.image)
    assert ": 126 126," in printed  # the first element is of the replay
    assert calls.count(language.calls["replay"]) == 1
    assert language.calls["forget"] in calls


def test_a_runtime_without_graphs_does(probe: Probe) -> None:
    printed, _ = probe(HIP, "hsaco:gfx906", driver="hip-old")
    assert ": 2 126," in printed


# ---------------------------------------------------------------- whole contexts


@pytest.fixture
def runs(built: Path, tmp_path: Path) -> Callable[..., tuple[str, list[str]]]:
    """Runs a model of two launches several times; gives the results and the calls that the driver got."""

    def start(
        language: Language,
        count: int,
        stream: str = "own",
        place: str = "host",
        *,
        fail: str = "",
        driver: str = "",
        version: int = 12020,
        **variables: str,
    ) -> tuple[str, list[str]]:
        log = tmp_path / "calls"
        log.unlink(missing_ok=True)
        more = environment(built / (driver or language.name), language.gpus, log, fail)
        env = child_environment(**more, FAKE_VERSION=str(version), **variables)
        argv = [str(built / f"context-{language.name}"), str(count), stream, place, language.image]
        done = run(argv, env=env, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), log.read_text().split("\n")

    return start


def counts(language: Language, calls: list[str], *names: str) -> list[int]:
    return [calls.count(language.calls[name]) for name in names]


@BOTH
@pytest.mark.parametrize("place", ["host", "device"])
def test_the_second_run_records_and_the_third_replays(language: Language, runs: Probe, place: str) -> None:
    for count, launched, recorded, replayed in ((1, 2, 0, 0), (2, 4, 1, 1), (3, 4, 1, 2), (4, 4, 1, 3)):
        printed, calls = runs(language, count, place=place)
        assert printed == " ".join(f"{4 * (one + 1)}" for one in range(count)) + " done"
        found = counts(language, calls, "launch", "capture", "instantiate", "replay", "forget")
        assert found == [launched, recorded, recorded, replayed, recorded]


@pytest.mark.parametrize(
    ("gpus", "image", "version", "overlapped"),
    [
        ("NVIDIA H100=9.0", "cubin:sm_90", 12030, 1),
        ("NVIDIA H100=9.0", "ptx:sm_90", 13000, 1),
        ("NVIDIA H100=9.0", "cubin:sm_90", 12020, 0),
        ("NVIDIA H100=9.0", "ptx:sm_80", 13000, 0),
        ("NVIDIA A10=8.6", "cubin:sm_86", 13000, 0),
    ],
)
def test_launches_of_a_recording_overlap(
    gpus: str, image: str, version: int, overlapped: int, runs: Probe
) -> None:
    """Where kernels wait for the launch before and the driver's graphs keep it: all but the first one."""
    language = replace(CUDA, gpus=gpus, image=image)
    printed, calls = runs(language, 3, version=version)
    assert printed == "4 8 12 done"
    assert calls.count("cuLaunchKernelEx") == calls.count("attribute 6 1") == overlapped
    assert counts(language, calls, "launch", "capture", "replay") == [4, 1, 2]


def edges(calls: list[str]) -> list[str]:
    """Of each recording what each launch comes behind."""
    return [call.partition(" ")[2] for call in calls if call.startswith("edges")]


@BOTH
@pytest.mark.parametrize("stream", ["own", "given"])
def test_branches_are_recorded_side_by_side(language: Language, runs: Probe, stream: str) -> None:
    printed, calls = runs(language, 4, stream, "forked")
    assert printed == "8 16 24 32 done"
    assert edges(calls) == ["- 0 0 1+2"]
    assert counts(language, calls, "launch", "capture", "replay") == [4 + 4, 1, 3]


@BOTH
def test_a_missing_edge_is_seen(language: Language, runs: Probe) -> None:
    """The last launch reads what the second one has not written yet; branches are joined all the same."""
    printed, calls = runs(language, 3, place="loose")
    assert edges(calls) == ["- 0 0 2"]
    assert printed == "8 8 16 done"


def test_launches_with_one_edge_overlap_on_branches(runs: Probe) -> None:
    """Only the third of four: none comes before the first, the second begins a branch, the last joins."""
    language = replace(CUDA, gpus="NVIDIA H100=9.0", image="cubin:sm_90")
    printed, calls = runs(language, 3, place="forked", version=12030)
    assert printed == "8 16 24 done"
    assert edges(calls) == ["- 0 0 1+2"]
    assert calls.count("attribute 6 1") == 1


@BOTH
@pytest.mark.parametrize("cause", ["fails", "is not recorded", "cannot be asked"])
def test_one_branch_is_recorded_where_several_fail(language: Language, runs: Probe, cause: str) -> None:
    """A runtime that records one stream alone would do launches of others at once: it is asked before."""
    asked = language.calls["capture"].replace("BeginCapture", "IsCapturing").removesuffix("_v2")
    fail = {"fails": f"{language.calls['follow']}=900", "cannot be asked": f"{asked}=900"}.get(cause, "")
    more = {"FAKE_NO_BRANCHES": "1"} if cause == "is not recorded" else {}
    printed, calls = runs(language, 3, place="forked", fail=fail, **more)
    assert printed == "8 16 24 done"
    assert edges(calls)[-1] == "- 0 1 2"
    assert counts(language, calls, "launch", "capture", "replay") == [4 + 4, 2, 2]


@BOTH
def test_other_pointers_are_recorded_anew(language: Language, runs: Probe) -> None:
    printed, calls = runs(language, 7, place="device")
    assert printed == "4 8 12 16 20 24 28 done"
    # Runs 1 and 5 launch, 2 and 6 record; all but 1 and 5 replay.
    assert counts(language, calls, "launch", "capture", "replay", "forget") == [8, 2, 5, 2]


@BOTH
@pytest.mark.parametrize(("call", "launched"), [("capture", 6), ("captured", 8), ("instantiate", 8)])
def test_runs_go_on_where_recording_fails(language: Language, runs: Probe, call: str, launched: int) -> None:
    printed, calls = runs(language, 3, fail=f"{language.calls[call]}=900")
    assert printed == "4 8 12 done"
    # Tried once; two launches of each run, and two while recording where that has begun.
    assert counts(language, calls, call, "replay", "launch") == [1, 0, launched]


@BOTH
def test_a_replay_that_fails_is_an_error(language: Language, runs: Probe) -> None:
    printed, _ = runs(language, 2, fail=f"{language.calls['replay']}=700")
    assert printed.startswith(f"4 status {TK_ERR_DEVICE}: a launch failed: ")


@BOTH
def test_a_step_is_measured_twenty_times_in_one_graph(language: Language, runs: Probe) -> None:
    """Between two marks there are twenty of a step, nothing of the host's; the result is that of one run."""
    printed, calls = runs(language, 2, place="steps")
    assert printed == "12500 12500 4 12500 12500 8 done"
    # Each run: what a step needs, twenty of it recorded, two replays; at last all of the run again.
    assert counts(language, calls, "launch", "capture", "replay") == [2 * (1 + 20 + 2 + 20 + 2), 4, 8]


@BOTH
def test_where_nothing_is_recorded_marks_stand_around_the_steps(language: Language, runs: Probe) -> None:
    printed, calls = runs(language, 1, place="steps", fail=f"{language.calls['capture']}=900")
    assert printed == "250000 250000 4 done"
    assert counts(language, calls, "replay") == [0]


@BOTH
def test_a_run_is_measured_as_a_whole(language: Language, runs: Probe) -> None:
    """Its kernels by twenty runs one behind the other; with copies by one."""
    printed, calls = runs(language, 2, place="whole")
    assert printed == "12500 250000 4 12500 250000 8 done"
    # The first run launches and the next one records; then there are replays only.
    assert counts(language, calls, "launch", "capture", "replay") == [4, 1, (1 + 20) + (1 + 1 + 20)]


def test_contexts_on_a_runtime_without_graphs(runs: Probe) -> None:
    printed, calls = runs(HIP, 3, driver="hip-old")
    assert printed == "4 8 12 done"
    assert calls.count("hipModuleLaunchKernel") == 6


@BOTH
@pytest.mark.parametrize(("stream", "name"), [("given", "the caller's"), ("default", "the default")])
def test_a_callers_stream(language: Language, runs: Probe, stream: str, name: str) -> None:
    """All work goes to it, nothing waits where all tensors lie on the device, and it is not closed.

    Launches are recorded on a stream apart, as no driver records those of its default stream.
    """
    printed, calls = runs(language, 3, stream, "device")
    assert printed == "4 8 12 done"
    assert calls.count(f"launch on {name} stream") == 2
    assert calls.count("launch on an own stream") == 2, "while they are recorded"
    assert calls.count(f"graph on {name} stream") == 2
    assert {call for call in calls if call.endswith("stream")} == {
        f"launch on {name} stream", "launch on an own stream", f"graph on {name} stream",
    }  # fmt: skip
    for change in ("StreamCreate", "StreamDestroy"):
        assert sum(change in call for call in calls) == 1
    assert calls.count(language.calls["wait"]) == 1  # when the context is closed
    _, calls = runs(language, 3, stream, "host")
    assert calls.count(language.calls["wait"]) == 4


@BOTH
def test_a_stream_of_its_own(language: Language, runs: Probe) -> None:
    _, calls = runs(language, 3, "own", "device")
    assert calls.count(language.calls["wait"]) == 4
    assert not any("on the caller's stream" in call or "on the default stream" in call for call in calls)


@BOTH
@pytest.mark.parametrize("place", ["part-host", "part-device"])
def test_a_run_that_has_a_part(language: Language, runs: Probe, place: str) -> None:
    """Columns, then rows; more of them and fewer."""
    assert runs(language, 1, place=place)[0] == "right " * 8 + "done"


@BOTH
def test_counters_are_cleared_at_first_and_behind_a_run_that_failed(language: Language, runs: Probe) -> None:
    printed, _ = runs(language, 1, place="counters")
    assert printed == "0 4 failed 0 done"


@BOTH
def test_buffers_in_turns_are_recorded_once_each(language: Language, runs: Probe) -> None:
    printed, calls = runs(language, 8, place="turns")
    assert printed == "4 8 12 16 20 24 28 32 done"
    # Runs 1 and 2 launch, 3 and 4 record; all from 3 on replay.
    assert counts(language, calls, "launch", "capture", "replay", "forget") == [8, 2, 6, 2]


@BOTH
def test_launches_end_with_what_a_run_has_and_are_recorded_for_each_grid(
    language: Language, runs: Probe
) -> None:
    """Three runs with two blocks, three with one, which leave the last element, and one with two."""
    printed, calls = runs(language, 7, place="sizes")
    assert printed == "4 8 12 -1 -1 -1 28 done"
    # Runs 1 and 4 launch, 2 and 5 record; all but 1 and 4 replay.
    assert counts(language, calls, "launch", "capture", "replay", "forget") == [8, 2, 5, 2]


def test_large_shared_memory_is_asked_for(probe: Probe) -> None:
    _, calls = probe(CUDA, "cubin:sm_70", shared=65536)
    assert "cuFuncSetAttribute 8 65536" in calls
    assert "dynamic shared 65536" in calls
    _, calls = probe(CUDA, "cubin:sm_70", shared=1024)
    assert not any(call.startswith("cuFuncSetAttribute") for call in calls)


@BOTH
def test_the_emulator_is_a_device(language: Language, probe: Probe) -> None:
    printed, calls = probe(language, language.image, selector="emulator", driver=None)
    assert printed == f"status {TK_ERR_LIBRARY}: the emulator was asked for"
    assert not calls
