"""SYCL on the caller's queue, with tensors in memory of the device."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.core.diagnostics import UsageError
from compiler.core.process import run
from compiler.core.settings import load_settings
from compiler.runtime.vendor_runtimes import find_intel_runtime
from tests.support.device_tensors import ONE_API, FloatsOnDevice
from tests.support.model_library import FIXTURES
from tests.support.onnx_models import model

SHAPE = (4, 33)
BYTES = 4 * 4 * 33


class Caller:
    """A program with queues of its own; the runtime is the one that the model's library opened."""

    def __init__(self, path: Path) -> None:
        self.library: Any = ctypes.CDLL(str(path))
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self.library.make_queue.restype = self.library.make_memory.restype = pointer
        self.library.make_memory.argtypes = (pointer, size)
        self.library.copy.argtypes = (pointer, pointer, pointer, size)
        self.library.finish.argtypes = self.library.close_queue.argtypes = (pointer,)

    def queue(self, *, in_order: bool = True, profiling: bool = False, other: bool = False) -> int:
        made = self.library.make_queue(in_order, profiling, other)
        assert made
        return int(made)

    def tensor(self, queue: int) -> FloatsOnDevice:
        address = self.library.make_memory(queue, BYTES)
        assert address
        return FloatsOnDevice(address, SHAPE, ONE_API)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> compiler.Model:
    runtime = find_intel_runtime(load_settings())
    if runtime is None or runtime.sycl is None:
        pytest.skip("no SYCL runtime: pip install dpcpp-cpp-rt, or TK_SYCL_ROOT")
    directory = tmp_path_factory.mktemp("queue")
    feeds = {"x": np.zeros(SHAPE, np.float32)}
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])], feeds, ["y"]), directory / "m.onnx")
    options = compiler.CompileOptions(output=directory / "m.so", target="sycl-cpu")
    return compiler.load(compiler.compile_model(directory / "m.onnx", options).path)


@pytest.fixture(scope="module")
def caller(loaded: compiler.Model, tmp_path_factory: pytest.TempPathFactory) -> Caller:
    runtime = find_intel_runtime(load_settings())
    assert runtime is not None
    output = tmp_path_factory.mktemp("caller") / "caller.so"
    cxx = shutil.which("g++") or shutil.which("clang++") or "c++"
    argv = [cxx, "-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-isystem", str(runtime.headers)]
    source = str(FIXTURES / "sycl_caller.cpp")
    done = run([*argv, source, str(runtime.sycl), "-o", str(output)], timeout=300)
    assert done.returncode == 0, done.stderr[:3000]
    return Caller(output)


def test_work_before_and_behind_in_the_callers_queue(loaded: compiler.Model, caller: Caller) -> None:
    """Copies in and out are in the queue without a wait: only its order makes the result right."""
    assert loaded.native_context is None
    queue = caller.queue()
    x, y = caller.tensor(queue), caller.tensor(queue)
    with loaded.context(stream=queue) as context:
        bound = context.bind({"x": x}, out={"y": y})
        for seed in range(3):
            given = np.random.default_rng(seed).standard_normal(SHAPE, dtype=np.float32)
            got = np.full(SHAPE, -1, np.float32)
            caller.library.copy(queue, x.address, given.ctypes.data, BYTES)
            bound.run()
            caller.library.copy(queue, got.ctypes.data, y.address, BYTES)
            caller.library.finish(queue)
            np.testing.assert_array_equal(got, np.maximum(given, 0))
            assert bound.outputs()["y"] is y


def test_the_queue_stays_the_callers(loaded: compiler.Model, caller: Caller) -> None:
    queue = caller.queue()
    given = np.random.default_rng(5).standard_normal(SHAPE, dtype=np.float32)
    with loaded.context(stream=queue) as context:
        np.testing.assert_array_equal(context.run({"x": given})["y"], np.maximum(given, 0))
    tensor, got = caller.tensor(queue), np.zeros(SHAPE, np.float32)
    caller.library.copy(queue, tensor.address, given.ctypes.data, BYTES)
    caller.library.copy(queue, got.ctypes.data, tensor.address, BYTES)
    caller.library.finish(queue)
    np.testing.assert_array_equal(got, given)
    caller.library.close_queue(queue)


@pytest.mark.parametrize("profiling", [False, True])
def test_times_on_a_queue_with_and_without_profiling(
    loaded: compiler.Model, caller: Caller, profiling: bool
) -> None:
    with loaded.context(stream=caller.queue(profiling=profiling)) as context:
        times = context.profile({"x": np.zeros(SHAPE, np.float32)})
    assert times
    assert all(0 <= item.nanoseconds < 10**10 for item in times)


def test_queues_that_do_not_serve(loaded: compiler.Model, caller: Caller) -> None:
    with pytest.raises(UsageError, match=r"sycl::queue is not in order"):
        loaded.context(stream=caller.queue(in_order=False))
    with pytest.raises(UsageError, match=r"sycl::queue is not in the context of the model"):
        loaded.context(stream=caller.queue(other=True))
