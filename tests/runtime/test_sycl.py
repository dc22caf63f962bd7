"""SYCL: a hand-written module on the processor, models beside each other, and what is said when it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.core.diagnostics import BadInputError, BuildError, HostError
from compiler.core.process import run
from compiler.core.settings import child_environment, load_settings
from compiler.render.vocabulary_sycl import SYCL_CPU, SYCL_GPU
from compiler.runtime.vendor_runtimes import IntelRuntime, find_intel_runtime
from compiler.targets import sycl
from compiler.targets.sycl_tools import Binaries, ahead_text, build_shim, build_syclbin, module_text
from tests.support.onnx_models import model
from tests.support.sycl_ahead import HOST_COMPILERS, host_compiler, host_pass

_SCALE = """
TK_KERNEL(tk_k0_0, 1, 1, 1, const float *__restrict b0, float *__restrict b1) {
  const int64_t i0 = (int64_t)TK_GROUP_X;
  tk_store(b1 + i0 * 16, tk_load<tk_f32x16>(b0 + i0 * 16) * tk_splat<tk_f32x16>(2.0f));
}
"""
_REVERSE = """
TK_KERNEL(tk_k0_0, 8, 4, 1, const float *__restrict b0, float *__restrict b1) {
  TK_SHARED(float, s0, 32);
  const int i0 = TK_GROUP_X, i1 = TK_LOCAL_X, i2 = TK_LOCAL_Y;
  s0[i2 * 8 + i1] = b0[i0 * 32 + i2 * 8 + i1];
  TK_BARRIER();
  b1[i0 * 32 + i2 * 8 + i1] = s0[31 - i2 * 8 - i1] + tk_subgroup_add(1.0f);
}
"""


@pytest.fixture(scope="module")
def runtime() -> IntelRuntime:
    found = find_intel_runtime(load_settings())
    if found is None or found.sycl is None:
        pytest.skip("no SYCL runtime: pip install dpcpp-cpp-rt, or TK_SYCL_ROOT")
    return found


@pytest.fixture(scope="module")
def shim(runtime: IntelRuntime) -> bytes:
    return build_shim(runtime, load_settings())


def small(directory: Path, op: str, name: str) -> Path:
    """A library of one operator on 4x33 numbers."""
    feeds = {"x": np.zeros((4, 33), np.float32)}
    onnx.save(model([helper.make_node(op, ["x"], ["y"])], feeds, ["y"]), directory / f"{name}.onnx")
    output = directory / f"{name}.so"
    compiler.compile_model(
        directory / f"{name}.onnx", compiler.CompileOptions(output=output, target="sycl-cpu")
    )
    return output


@pytest.fixture(scope="module")
def relu(runtime: IntelRuntime, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert runtime.sycl is not None
    return small(tmp_path_factory.mktemp("sycl"), "Relu", "relu")


@pytest.mark.parametrize("lanes", [8, *(pytest.param(n, marks=pytest.mark.slow) for n in (16, 32, 64))])
def test_gpu_words_are_understood(runtime: IntelRuntime, shim: bytes, lanes: int) -> None:
    text = module_text(SYCL_GPU.prelude + _REVERSE, "00000000", lanes)
    assert build_syclbin(text, "00000000", runtime, shim, load_settings()).pieces


def test_compiler_messages_are_shown(runtime: IntelRuntime, shim: bytes) -> None:
    text = module_text(SYCL_CPU.prelude + _SCALE.replace("i0 * 16", "i0 * missing"), "00000000", None)
    with pytest.raises(BuildError, match="missing"):
        build_syclbin(text, "00000000", runtime, shim, load_settings())


@pytest.mark.sample(4)
@pytest.mark.parametrize("names", HOST_COMPILERS, ids=lambda names: names[0])
@pytest.mark.parametrize(("kernels", "lanes"), [(_SCALE, None), (_REVERSE, 32)])
def test_host_pass_of_the_text_ahead_of_time(
    runtime: IntelRuntime, tmp_path: Path, names: tuple[str, ...], kernels: str, lanes: int | None
) -> None:
    words = SYCL_CPU if lanes is None else SYCL_GPU
    text = module_text(words.prelude + kernels, "0a1b2c3d", lanes)
    done = host_pass(text, "sm_80", host_compiler(names), runtime, tmp_path)
    assert done.returncode == 0, done.stderr[:3000]


@pytest.mark.parametrize(
    ("kernels", "lanes"), [pytest.param(_SCALE, None, marks=pytest.mark.slow), (_REVERSE, 32)]
)
def test_device_pass_of_the_text_ahead_of_time(
    runtime: IntelRuntime, shim: bytes, kernels: str, lanes: int | None
) -> None:
    """The runtime's compiler takes kernels in lambdas, too: what DPC++ would be given, but for the shim."""
    words = SYCL_CPU if lanes is None else SYCL_GPU
    text = ahead_text(module_text(words.prelude + kernels, "0a1b2c3d", lanes), "spir64")
    alone = "#define TK_AHEAD 1\n" + text.replace('#include "shim.cpp"\n', "")
    assert build_syclbin(alone, "00000000", runtime, shim, load_settings()).pieces


def test_models_with_kernels_of_the_same_name(relu: Path, tmp_path: Path) -> None:
    other = small(tmp_path, "Neg", "neg")
    x = np.random.default_rng(1).standard_normal((4, 33), dtype=np.float32)
    with compiler.load(relu) as first, compiler.load(other) as second:
        for _ in range(3):
            np.testing.assert_array_equal(first.run({"x": x})["y"], np.maximum(x, 0))
            np.testing.assert_array_equal(second.run({"x": x})["y"], -x)


@pytest.mark.parametrize("selector", ["cpu", "cpu:0", "opencl", "0", "INTEL"])
def test_selectors(relu: Path, selector: str) -> None:
    with compiler.load(relu, device=selector) as loaded:
        assert "cpu" in loaded.device
        assert loaded.run({"x": np.full((4, 33), -1, np.float32)})["y"].max() == 0


@pytest.mark.parametrize("selector", ["gpu:7", "no such card", "99"])
def test_a_device_that_is_not_there(relu: Path, selector: str) -> None:
    with pytest.raises(BadInputError, match="cpu:0") as caught:
        compiler.load(relu, device=selector)
    assert selector in str(caught.value)


def test_profiled_runs_tell_times(relu: Path) -> None:
    with compiler.load(relu) as loaded, loaded.context() as context:
        times = context.profile({"x": np.zeros((4, 33), np.float32)})
    assert times
    assert all(0 <= item.nanoseconds < 10**10 for item in times)


def test_source_is_built_where_the_binary_is_missing(
    runtime: IntelRuntime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert runtime.sycl is not None
    monkeypatch.setattr(sycl, "build_syclbin", lambda *_: Binaries((), "no device here"))
    x = np.random.default_rng(2).standard_normal((4, 33), dtype=np.float32)
    with compiler.load(small(tmp_path, "Abs", "abs")) as loaded:
        np.testing.assert_array_equal(loaded.run({"x": x})["y"], np.abs(x))


def test_a_damaged_binary_is_not_the_end(
    runtime: IntelRuntime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert runtime.sycl is not None
    monkeypatch.setattr(sycl, "build_syclbin", lambda *_: Binaries((b"no binary of anything" * 40,)))
    x = np.random.default_rng(3).standard_normal((4, 33), dtype=np.float32)
    with compiler.load(small(tmp_path, "Floor", "floor")) as loaded:
        np.testing.assert_array_equal(loaded.run({"x": x})["y"], np.floor(x))


def test_without_a_runtime_loading_says_what_to_install(relu: Path) -> None:
    code = "import sys, compiler\ncompiler.load(sys.argv[1])"
    env = child_environment(
        TK_SYCL_ROOT="", LD_LIBRARY_PATH="", ONEAPI_ROOT="", CMPLR_ROOT="", PYTHONPATH=":".join(sys.path)
    )
    done = run([sys.executable, "-c", code, str(relu)], env=env, timeout=120)
    if done.returncode == 0:
        pytest.skip("this Python or this machine has a SYCL runtime of its own")
    assert "pip install dpcpp-cpp-rt" in done.stderr
    assert "HostError" in done.stderr


@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("packages", ["lib/python3.12/site-packages", "lib64/python3.12/site-packages", "."])
def test_packages_of_a_prefix_and_of_one_folder_are_found(
    packages: str, absolute: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / packages
    for made in (tmp_path / "lib", folder, folder / "intel_sycl_rt-1.2.dist-info"):
        made.mkdir(parents=True, exist_ok=True)
    (tmp_path / "lib" / "libsycl.so.9").touch()
    monkeypatch.delenv("TK_SYCL_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(folder) if absolute else packages])
    found = find_intel_runtime(load_settings())
    assert found is not None
    assert found.libraries == tmp_path / "lib"


def test_without_a_runtime_compiling_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("LD_LIBRARY_PATH", "ONEAPI_ROOT", "CMPLR_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TK_SYCL_ROOT", str(tmp_path))
    with pytest.raises(HostError, match="TK_SYCL_ROOT"):
        find_intel_runtime(load_settings())
