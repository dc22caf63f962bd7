"""OpenCL on the caller's queue, with tensors in memory of the device."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.core.diagnostics import BadInputError, UsageError
from tests.support.device_tensors import ONE_API, OPENCL, FloatsOnDevice
from tests.support.onnx_models import model

SHAPE = (4, 33)
BYTES = 4 * 4 * 33
_DEVICES, _OUT_OF_ORDER, _PROFILING = 0x1081, 1, 2  # CL_CONTEXT_DEVICES, bits of CL_QUEUE_PROPERTIES


class OpenCl:
    """The loader that this process has open already, on a model's context."""

    def __init__(self, context: int) -> None:
        paths = set(re.findall(r"/\S*/libOpenCL\.so\S*", Path("/proc/self/maps").read_text()))
        self.library: Any = ctypes.CDLL(min(paths))
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        self.library.clCreateCommandQueue.restype = self.library.clSVMAlloc.restype = pointer
        self.library.clCreateCommandQueue.argtypes = (pointer, pointer, ctypes.c_uint64, pointer)
        self.library.clSVMAlloc.argtypes = (pointer, ctypes.c_uint64, size, ctypes.c_uint)
        self.library.clCreateContext.restype = pointer
        self.context = pointer(context)
        self.device = pointer()
        status = self.library.clGetContextInfo(
            self.context, _DEVICES, size(8), ctypes.byref(self.device), None
        )
        assert status == 0

    def queue(self, properties: int = 0, context: Any = None) -> int:
        status = ctypes.c_int()
        made = self.library.clCreateCommandQueue(
            context or self.context, self.device, properties, ctypes.byref(status)
        )
        assert status.value == 0
        return int(made)

    def other_context(self) -> Any:
        status = ctypes.c_int()
        devices = (ctypes.c_void_p * 1)(self.device)
        made = self.library.clCreateContext(None, 1, devices, None, None, ctypes.byref(status))
        assert status.value == 0
        return ctypes.c_void_p(made)

    def tensor(self) -> FloatsOnDevice:
        address = self.library.clSVMAlloc(self.context, 1, BYTES, 128)
        assert address
        return FloatsOnDevice(address, SHAPE, OPENCL)

    def copy(self, queue: int, to: int, start: int) -> None:
        """In the queue's order, without a wait."""
        status = self.library.clEnqueueSVMMemcpy(
            ctypes.c_void_p(queue), 0, ctypes.c_void_p(to), ctypes.c_void_p(start), ctypes.c_size_t(BYTES),
            0, None, None,
        )  # fmt: skip
        assert status == 0

    def finish(self, queue: int) -> None:
        assert self.library.clFinish(ctypes.c_void_p(queue)) == 0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("queue")
    feeds = {"x": np.zeros(SHAPE, np.float32)}
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])], feeds, ["y"]), directory / "m.onnx")
    options = compiler.CompileOptions(output=directory / "m.so", target="opencl-cpu")
    return compiler.compile_model(directory / "m.onnx", options).path


@pytest.fixture
def loaded(library: Path, opencl_driver: str) -> Iterator[compiler.Model]:
    with compiler.load(library, device=opencl_driver) as opened:
        yield opened


def opencl(loaded: compiler.Model) -> OpenCl:
    assert loaded.native_context is not None
    return OpenCl(loaded.native_context)


def test_work_before_and_behind_in_the_callers_queue(loaded: compiler.Model) -> None:
    """Copies in and out are in the queue without a wait: only its order makes the result right."""
    cl = opencl(loaded)
    queue, x, y = cl.queue(), cl.tensor(), cl.tensor()
    bound = loaded.context(stream=queue).bind({"x": x}, out={"y": y})
    for seed in range(3):
        given = np.random.default_rng(seed).standard_normal(SHAPE, dtype=np.float32)
        got = np.full(SHAPE, -1, np.float32)
        cl.copy(queue, x.address, given.ctypes.data)
        bound.run()
        cl.copy(queue, got.ctypes.data, y.address)
        cl.finish(queue)
        np.testing.assert_array_equal(got, np.maximum(given, 0))
        assert bound.outputs()["y"] is y


def test_tensors_of_the_host_on_the_callers_queue(loaded: compiler.Model) -> None:
    given = np.random.default_rng(5).standard_normal(SHAPE, dtype=np.float32)
    with loaded.context(stream=opencl(loaded).queue()) as context:
        np.testing.assert_array_equal(context.run({"x": given})["y"], np.maximum(given, 0))


@pytest.mark.parametrize("properties", [0, _PROFILING])
def test_times_on_a_queue_with_and_without_profiling(loaded: compiler.Model, properties: int) -> None:
    with loaded.context(stream=opencl(loaded).queue(properties)) as context:
        times = context.profile({"x": np.zeros(SHAPE, np.float32)})
    assert times
    assert all(0 <= item.nanoseconds < 10**10 for item in times)


def test_queues_that_do_not_serve(loaded: compiler.Model) -> None:
    cl = opencl(loaded)
    with pytest.raises(UsageError, match=r"another OpenCL context[\s\S]*tk_model_native_context_v1"):
        loaded.context(stream=cl.queue(context=cl.other_context()))
    with pytest.raises(UsageError, match="may change the order of its work"):
        loaded.context(stream=cl.queue(_OUT_OF_ORDER))


def test_tensors_of_another_device(loaded: compiler.Model) -> None:
    cl = opencl(loaded)
    elsewhere = FloatsOnDevice(cl.tensor().address, SHAPE, ONE_API)
    with loaded.context() as context, pytest.raises(BadInputError, match="x"):
        context.run({"x": elsewhere})
    wrong = FloatsOnDevice(cl.tensor().address, (4, 32), OPENCL)
    with loaded.context() as context, pytest.raises(BadInputError, match="'x'"):
        context.run({"x": wrong})
