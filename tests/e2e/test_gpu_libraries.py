"""Model libraries for GPUs from model to launch, on stand-ins for the drivers: no GPU takes part.

So no number is right. What is real: the compilers (NVRTC, hipcc), the images in the library, which of them is
loaded on which GPU, the launches, the graph, the messages.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import compiler
from compiler.core.diagnostics import HostError
from compiler.core.process import Completed, run
from compiler.core.settings import child_environment
from tests.support import drivers
from tests.support.drivers import build_driver, environment
from tests.support.onnx_models import model

_RUN = """
import sys, numpy, compiler
try:
    with compiler.load(sys.argv[1]) as model:
        for _ in range(4):
            model.run({"x": numpy.ones((4, 64), numpy.float32)})
except compiler.TkError as error:
    print(error)
    sys.exit(int(error.code))
"""


def _perceptron(path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((64, 64)).astype(np.float32) for name in ("a", "b")}
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "a"], ["p"]),
        onnx.helper.make_node("Relu", ["p"], ["q"]),
        onnx.helper.make_node("MatMul", ["q", "b"], ["r"]),
        onnx.helper.make_node("Softmax", ["r"], ["y"]),
    ]
    onnx.save(model(nodes, {"x": np.zeros((4, 64), np.float32)}, ["y"], constants=weights), path)


def _library(directory: Path, target: str) -> Path:
    _perceptron(directory / "m.onnx")
    options = compiler.CompileOptions(output=directory / "m.so", target=target)
    try:
        compiler.compile_model(directory / "m.onnx", options)
    except HostError as error:
        pytest.skip(str(error))
    return directory / "m.so"


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("cuda-library")
    return _library(directory, "cuda:sm_70,sm_80"), build_driver(drivers.CUDA, directory)


@pytest.fixture(scope="module")
def hip(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("hip-library")
    return _library(directory, "rocm:gfx906,gfx90a"), build_driver(drivers.HIP, directory)


def start(built: tuple[Path, Path], gpus: str, log: Path, **more: str) -> tuple[Completed, list[str]]:
    """Run the library four times on these GPUs; gives the process and the driver's calls."""
    library, folder = built
    env = child_environment(**environment(folder, gpus, log), **more)
    done = run([sys.executable, "-c", _RUN, str(library)], env=env, timeout=120)
    return done, log.read_text().split("\n") if log.exists() else []


def _launches(built: tuple[Path, Path]) -> int:
    return len(compiler.manifest_of(built[0])["kernels"])


def test_a_library_for_two_archs_runs_on_both(cuda: tuple[Path, Path], tmp_path: Path) -> None:
    for number, arch in enumerate(("7.0", "8.6", "9.0")):  # the last by PTX
        done, calls = start(cuda, f"A={arch}", tmp_path / f"calls{number}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "cuModuleLoadData" in calls


@pytest.mark.parametrize(
    ("language", "gpu", "begin", "launch", "replay"),
    [
        ("cuda", "A=7.0", "cuStreamBeginCapture_v2", "cuLaunchKernel", "cuGraphLaunch"),
        ("hip", "A=gfx90a", "hipStreamBeginCapture", "hipModuleLaunchKernel", "hipGraphLaunch"),
    ],
)
def test_repeated_runs_are_one_launch(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    language: str,
    gpu: str,
    begin: str,
    launch: str,
    replay: str,
) -> None:
    built = request.getfixturevalue(language)
    done, calls = start(built, gpu, tmp_path / "calls")
    assert done.returncode == 0, done.stdout + done.stderr
    single = calls.index(begin)
    assert calls[:single].count(launch) == calls[single:].count(launch) >= _launches(built)
    assert calls.count(replay) == 3  # the first run is without


def test_without_graphs_every_run_launches(hip: tuple[Path, Path], tmp_path: Path) -> None:
    old = build_driver(drivers.HIP, tmp_path, "-DFAKE_WITHOUT_GRAPHS")
    done, calls = start((hip[0], old), "A=gfx90a", tmp_path / "calls")
    assert done.returncode == 0, done.stdout + done.stderr
    assert calls.count("hipModuleLaunchKernel") % 4 == 0
    assert calls.count("hipModuleLaunchKernel") >= 4 * _launches(hip)


def test_an_arch_that_is_not_there(cuda: tuple[Path, Path], hip: tuple[Path, Path], tmp_path: Path) -> None:
    done, _ = start(cuda, "GTX 1080=6.1", tmp_path / "calls")
    assert done.returncode == compiler.ExitCode.BAD_INPUT
    assert "kernels for sm_70,sm_80, and GTX 1080 is sm_61" in done.stdout
    assert "`tk compile MODEL.onnx --target cuda-nvidia --arch sm_70,sm_80,sm_61`" in done.stdout
    done, _ = start(hip, "MI300X=gfx942", tmp_path / "calls")
    assert "--target rocm-amd --arch gfx906,gfx90a,gfx942`" in done.stdout


def test_a_machine_without_driver(cuda: tuple[Path, Path], tmp_path: Path) -> None:
    done, _ = start((cuda[0], tmp_path), "", tmp_path / "calls")
    if "no NVIDIA driver" not in done.stdout:
        pytest.skip("this machine has an NVIDIA driver")
    assert done.returncode == compiler.ExitCode.HOST
    assert "install it (it brings libcuda.so.1)" in done.stdout


def test_the_gpu_is_chosen_by_the_environment(hip: tuple[Path, Path], tmp_path: Path) -> None:
    gpus = "RX 6800=gfx1030;MI50=gfx906;MI210=gfx90a"
    done, _ = start(hip, gpus, tmp_path / "calls", TK_DEVICE="mi210")
    assert done.returncode == 0, done.stdout + done.stderr
    done, _ = start(hip, gpus, tmp_path / "calls", TK_DEVICE="0")
    assert "RX 6800 is gfx1030" in done.stdout
    done, _ = start(hip, gpus, tmp_path / "calls", TK_DEVICE="mi300")
    assert "there are 0: RX 6800 (gfx1030), 1: MI50 (gfx906), 2: MI210 (gfx90a)" in done.stdout
