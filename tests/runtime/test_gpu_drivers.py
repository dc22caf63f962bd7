"""The devices behind CUDA's driver and HIP's runtime, against stand-ins for both: no GPU takes part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from compiler.core.process import run
from compiler.core.settings import child_environment
from compiler.runtime.library import INCLUDE, SOURCES
from tests.support import drivers
from tests.support.drivers import FIXTURES, FakeDriver, build_driver, compile_cpp, environment

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
    },
)
HIP = Language(
    "hip",
    drivers.HIP,
    "MI50=gfx906;MI210=gfx90a",
    "hsaco:gfx906",
    "MI50 (gfx906) type 10 number 0: 2 126, 250000 ns",
    {
        "allocate": "hipMalloc",
        "wait": "hipStreamSynchronize",
        "load": "hipModuleLoadData",
        "start": "hipGetDeviceCount",
    },
)
BOTH = pytest.mark.parametrize("language", [CUDA, HIP], ids=["cuda", "hip"])
Probe = Callable[..., tuple[str, list[str]]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both probes, each driver in a folder of its own."""
    directory = tmp_path_factory.mktemp("drivers")
    for language in (CUDA, HIP):
        build_driver(language.driver, directory)
        sources = [FIXTURES / "gpu_probe.cpp", SOURCES / "error.cpp", SOURCES / "devices" / "gpu.cpp"]
        sources.append(SOURCES / "devices" / f"{language.name}.cpp")
        include = ["-I", str(INCLUDE), "-I", str(SOURCES)]
        compile_cpp(directory, directory / f"probe-{language.name}", *include, *map(str, sources), "-ldl")
    return directory


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
        driver: bool = True,
    ) -> tuple[str, list[str]]:
        log = tmp_path / "calls"
        log.unlink(missing_ok=True)
        folder = built / language.name if driver else tmp_path
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
    printed, _ = probe(CUDA, "cubin:sm_70", driver=False)
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


def test_launches_are_recorded_and_replayed(probe: Probe) -> None:
    printed, calls = probe(CUDA, "cubin:sm_70")
    assert ": 126 126," in printed  # the first element is of the replay
    assert calls.count("cuGraphLaunch") == 1
    assert "cuGraphExecDestroy" in calls


def test_a_runtime_without_graphs_does(probe: Probe) -> None:
    printed, _ = probe(HIP, "hsaco:gfx906")
    assert ": 2 126," in printed


def test_large_shared_memory_is_asked_for(probe: Probe) -> None:
    _, calls = probe(CUDA, "cubin:sm_70", shared=65536)
    assert "cuFuncSetAttribute 8 65536" in calls
    assert "dynamic shared 65536" in calls
    _, calls = probe(CUDA, "cubin:sm_70", shared=1024)
    assert not any(call.startswith("cuFuncSetAttribute") for call in calls)


@BOTH
def test_the_emulator_is_a_device(language: Language, probe: Probe) -> None:
    printed, calls = probe(language, language.image, selector="emulator", driver=False)
    assert printed == f"status {TK_ERR_LIBRARY}: the emulator was asked for"
    assert not calls
