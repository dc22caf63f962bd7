"""Loads a model library into this process: numpy arrays and DLPack objects in, numpy arrays out."""

from __future__ import annotations

import ctypes
import math
import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, cast
from weakref import WeakSet, finalize

from compiler.core.diagnostics import BadInputError, HostError, InternalError, TkError, UsageError
from compiler.core.settings import load_settings
from compiler.runtime import abi
from compiler.runtime.abi import Status, TkModelApi
from compiler.runtime.elf import check_library, machine_of, read_images
from compiler.runtime.manifest import labels_of, manifest_of, parse_manifest
from compiler.runtime.specs import SymbolicDim, TensorSpec, extents_of, follows, shapes_by_library, spec_of
from compiler.runtime.streams import stream_option
from compiler.runtime.tensors import (
    Array,
    DeviceTensor,
    PackedArray,
    TensorArray,
    aligned_empty,
    as_input,
    in_memory,
    lies_on_device,
    numpy_dtype,
    pick,
)
from compiler.runtime.times import RunTimes, StepTime
from compiler.runtime.vendor_runtimes import reach_runtimes

__all__ = ["BoundRun", "Context", "Model", "StepTime", "SymbolicDim", "TensorSpec", "manifest_of"]

_ERRORS: dict[int, type[TkError]] = {
    Status.ARGUMENT: UsageError,
    Status.INPUT: BadInputError,
    Status.OUTPUT: BadInputError,
    Status.HOST: HostError,
    Status.MEMORY: HostError,
    Status.DEVICE: BadInputError,
    Status.BUSY: UsageError,
    Status.LIBRARY: BadInputError,
}

# The files that each path was loaded from in this process, in order. The dynamic linker knows a library by
# the text of its path: without a text of its own, a rebuilt library would give the old one again.
_lock = threading.Lock()
_loaded: dict[Path, list[tuple[int, ...]]] = {}


class Model(AbstractContextManager["Model"]):
    """A loaded model; immutable, may be shared by threads. `close`, or a with block, gives memory back."""

    def __init__(self, path: Path, *, threads: int | None = None, device: str | None = None) -> None:
        self.path = path
        self._threads = threads
        self._library = _open_library(path)
        if read_images(path):
            reach_runtimes(load_settings())
        self._api = _api_of(self._library, path)
        self._handle = ctypes.c_void_p()
        _check(self._api, self._open(device), str(path))
        self._open_contexts: list[finalize[[TkModelApi, ctypes.c_void_p], Context]] = []
        closing = (self._api, self._handle, self._library, self._open_contexts)
        self._finalizer = finalize(self, _close_model, *closing)
        self._finalizer.atexit = False
        self.inputs = self._describe(self._api.model_input_count, self._api.model_input)
        self.outputs = self._describe(self._api.model_output_count, self._api.model_output)
        self.states = self._describe_states()
        self._lock = threading.Lock()
        self._default: Context | None = None
        self._contexts: WeakSet[Context] = WeakSet()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, device: str | None) -> int:
        if device is None:
            return int(self._api.model_open(ctypes.byref(self._handle)))
        if not self.offers("model_open_on"):
            raise BadInputError("this library is too old to be told a device", where=str(self.path))
        return int(self._api.model_open_on(device.encode(), ctypes.byref(self._handle)))

    @cached_property
    def device(self) -> str:
        """What it runs on, for people: `NVIDIA H100 (sm_90)`; empty where its kernels are the host's code."""
        return str(self._api.model_device(self._handle).decode("utf-8", "replace"))

    def offers(self, function: str) -> bool:
        """Whether the library is new enough to have a function of the interface."""
        return int(self._api.struct_size) > int(getattr(TkModelApi, function).offset)

    @property
    def native_context(self) -> int | None:
        """Where a stream to hand over has to be made, as a pointer: OpenCL's cl_context; None elsewhere."""
        if not self._finalizer.alive or not self.offers("model_native_context"):
            return None
        context = self._api.model_native_context(self._handle)
        return None if context is None else int(context)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What the compiler wrote down about this library."""
        size = ctypes.c_size_t()
        start = self._api.model_manifest(ctypes.byref(size))
        return parse_manifest(ctypes.string_at(start, size.value), str(self.path))

    @cached_property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """The strings that the elements of outputs are the numbers of, by output; none for most."""
        return labels_of(self.manifest)

    def run(
        self, inputs: Mapping[str, object], *, out: Mapping[str, object] | None = None
    ) -> dict[str, Array]:
        """One inference in a context that this model keeps; calls from several threads wait for each other.

        For arguments and errors see `Context.run`.
        """
        with self._lock:
            if self._default is None:
                self._default = self.context()
            return self._default.run(inputs, out=out)

    def output_shapes(self, inputs: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
        """The shapes that a run with these inputs gives to the outputs; nothing runs.

        Raises BadInputError for inputs that do not fit, as far as their shapes decide over those of outputs.
        """
        pick("input", self.inputs, inputs)
        shapes = self.shapes_for([as_input(info, inputs[info.name]) for info in self.inputs])
        return {info.name: shape for info, shape in zip(self.outputs, shapes, strict=True)}

    def shapes_for(self, inputs: Sequence[Array | DeviceTensor]) -> list[tuple[int, ...]]:
        """The same for all inputs in their order; where these are wrong, perhaps any."""
        if not follows(self.outputs, self.inputs):
            extents = extents_of(self.inputs, inputs)
            return [info.shape_at(extents) for info in self.outputs]
        given, shapes_of = TensorArray(inputs), self._api.model_shapes
        status, shapes = shapes_by_library(shapes_of, self._handle, given.tensors, given.count, self.outputs)
        _check(self._api, status, str(self.path))
        return shapes

    def context(
        self, threads: int | None = None, *, flush_subnormals: bool = False, stream: int | None = None
    ) -> Context:
        """A context of its own; open one for each thread that runs the model at the same time.

        `threads` counts the calling thread; None takes the model's default. `stream` is the caller's stream
        or queue as a pointer (`torch.cuda.Stream().cuda_stream`), or DLPack's number of a default stream: on
        CUDA 1 (legacy) and 2 (per-thread), on ROCm 0; -1 and None: one of the context's own. It must outlive
        the context; runs on it whose tensors all lie on the device return when their work is in it. Raises
        UsageError for a number out of range, stream 0 of CUDA, which may be either, or a stream where there
        is no device, and HostError when there is not enough memory.
        """
        if not self._finalizer.alive:
            raise UsageError("the model is closed", where=str(self.path))
        threads = threads if threads is not None else self._threads
        context = Context(self, threads, flush_subnormals=flush_subnormals, stream=stream)
        self._contexts.add(context)
        self._open_contexts[:] = [item for item in self._open_contexts if item.alive]
        self._open_contexts.append(context._finalizer)  # noqa: SLF001 - two halves of one object
        return context

    def close(self) -> None:
        """Close the model and its contexts. May be called twice."""
        for context in self._contexts:
            context.close()
        self._finalizer()

    def _describe_states(self) -> dict[str, str]:
        """The input of each state -> its output: what a context keeps from run to run."""
        found = {}
        for index in range(self._api.model_state_count(self._handle) if self.offers("context_reset") else 0):
            info = abi.TkStateInfo()
            _check(self._api, self._api.model_state(self._handle, index, ctypes.byref(info)), str(self.path))
            found[self.inputs[info.input].name] = self.outputs[info.output].name
        return found

    def without_states(self) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """The inputs and outputs that are no states."""
        kept = {*self.states, *self.states.values()}
        inputs, outputs = (
            tuple(info for info in infos if info.name not in kept) for infos in (self.inputs, self.outputs)
        )
        return inputs, outputs

    def _describe(self, count: Callable[..., int], describe: Callable[..., int]) -> tuple[TensorSpec, ...]:
        infos = []
        for index in range(count(self._handle)):
            info = abi.TkTensorInfo()
            _check(self._api, describe(self._handle, index, ctypes.byref(info)), str(self.path))
            infos.append(spec_of(info))
        return tuple(infos)


class Context(AbstractContextManager["Context"]):
    """Arena, scratch and threads of one inference at a time; made by `Model.context`."""

    def __init__(
        self, model: Model, threads: int | None, *, flush_subnormals: bool, stream: int | None
    ) -> None:
        self.model = model
        self._api = model._api  # noqa: SLF001 - two halves of one object
        defaults = () if stream is None else model.manifest.get("default_streams", ())
        pointer, flag = stream_option(defaults, stream)
        flags = flag | flush_subnormals
        options = abi.TkContextOptions(ctypes.sizeof(abi.TkContextOptions), threads or 0, flags, pointer)
        self._handle = ctypes.c_void_p()
        handle = model._handle  # noqa: SLF001 - as above
        if threads is not None and threads < 1:
            raise UsageError(f"a context cannot have {threads} threads", hint="1 is the calling thread alone")
        status = self._api.context_open(handle, ctypes.byref(options), ctypes.byref(self._handle))
        _check(self._api, status, str(model.path))
        # The finalizer holds the library, so it outlives this context whatever is collected first.
        self._finalizer = finalize(self, _close_context, self._api, self._handle)
        self._finalizer.atexit = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def threads(self) -> int:
        """Threads that a run uses, the calling one included."""
        self.check_open()
        return int(self._api.context_threads(self._handle))

    @threads.setter
    def threads(self, count: int) -> None:
        self.check_open()
        _check(self._api, self._api.context_set_threads(self._handle, count), str(self.model.path))

    def run(
        self, inputs: Mapping[str, object], *, out: Mapping[str, object] | None = None
    ) -> dict[str, Array]:
        """One inference: outputs by name, as new arrays or in the arrays of `out`, which may be inputs too.

        Inputs are numpy arrays or objects that speak DLPack; elements are never converted. Both may lie on
        the model's device (`out` as DLPack objects, which are given back as they are); work that fills them
        must be done, or be in this context's stream. With symbolic dimensions the result is a view of the
        actual shape. Raises BadInputError naming the input or output that does not fit, and UsageError when
        another thread is running this context.

        States (`Model.states`, as keys and values of a decoder) may be left out: the run goes on from those
        of the last run, nothing at first, which the context extends in its memory. Then they are no outputs,
        unless `out` has all of them.
        """
        bound = self.bind(inputs, out=out)
        bound.run()
        return bound.outputs()

    def bind(self, inputs: Mapping[str, object], *, out: Mapping[str, object] | None = None) -> BoundRun:
        """A run with fixed arrays, to be repeated at the least cost (under 2 us beyond the inference)."""
        self.check_open()
        model, kept = self.model, self.model.states and self.model.states.keys().isdisjoint(inputs)
        pick("input", model.inputs, inputs, model.states if kept else ())
        pick("output", model.outputs, out or {})
        operands, results = model.without_states() if kept else (model.inputs, model.outputs)
        if kept and not set(model.states.values()).isdisjoint(out or {}):
            results = model.outputs
        arrays = [as_input(info, inputs[info.name]) for info in operands]
        shapes = self._shapes_for(operands, arrays, results) if kept else model.shapes_for(arrays)
        outputs = [_output(info, out, shape) for info, shape in zip(results, shapes, strict=True)]
        return BoundRun(self, arrays, outputs, results)

    def _shapes_for(
        self,
        operands: Sequence[TensorSpec],
        arrays: Sequence[Array | DeviceTensor],
        results: Sequence[TensorSpec],
    ) -> list[tuple[int, ...]]:
        """The shapes that a run gives to outputs that goes on from what is kept."""
        if not follows(results, operands):
            extents = extents_of(operands, arrays)
            return [info.shape_at(extents) for info in results]
        given, shapes_of = TensorArray(arrays), self._api.context_shapes
        status, shapes = shapes_by_library(shapes_of, self._handle, given.tensors, given.count, results)
        _check(self._api, status, str(self.model.path))
        return shapes

    def reset(self, length: int = 0) -> None:
        """Forget what is kept of runs before, but for the first `length` places: tokens of a decoder.

        Raises UsageError where there are fewer.
        """
        self.check_open()
        _check(self._api, self._api.context_reset(self._handle, length), str(self.model.path))

    def profile(self, inputs: Mapping[str, object]) -> tuple[StepTime, ...]:
        """One inference with the time of each step."""
        return self.bind(inputs).profile()

    def check_open(self) -> None:
        """Raise UsageError when this context or its model was closed."""
        if not self._finalizer.alive:
            raise UsageError("the context is closed", where=str(self.model.path))

    def close(self) -> None:
        """Give memory back. May be called twice."""
        self._finalizer()


class BoundRun:
    """One context with its input and output arrays; change the inputs in place and `run` again."""

    def __init__(
        self,
        context: Context,
        inputs: Sequence[Array | DeviceTensor],
        outputs: Sequence[Array | DeviceTensor],
        results: Sequence[TensorSpec],
    ) -> None:
        self.context, self._results = context, results
        given, made = [in_memory(one) for one in inputs], [in_memory(one) for one in outputs]
        self._packed = tuple(one for one in given if isinstance(one, PackedArray))
        self._unpacked = tuple(one for one in made if isinstance(one, PackedArray))
        self._inputs = TensorArray(given)
        self._outputs = TensorArray(made)
        self._arrays = list(outputs)
        self._api = context._api  # noqa: SLF001 - two halves of one object
        self._arguments = (
            context._handle,  # noqa: SLF001 - as above
            self._inputs.tensors,
            self._inputs.count,
            self._outputs.tensors,
            self._outputs.count,
        )
        self._call = self._api.context_run

    def run(self) -> None:
        """One inference into the bound outputs; errors as `Context.run`."""
        self.context.check_open()
        for one in self._packed:
            one.pack()
        status = self._call(*self._arguments)
        if status != 0:
            self._fail(status)
        for one in self._unpacked:
            one.unpack()

    def profile(self) -> tuple[StepTime, ...]:
        """As `run`, with the time of each step."""
        self.context.check_open()
        count = ctypes.c_int32(0)
        self._fail(self._api.context_profile(*self._arguments, None, ctypes.byref(count)))
        times = (abi.TkStepTime * max(1, count.value))()
        self._timed(self._api.context_profile, times, ctypes.byref(count))
        return tuple(StepTime(one.kernel, one.nanoseconds) for one in times[: count.value])

    def measure(self) -> RunTimes | None:
        """As `run`, with what it took by the device's clock; None of a library that is too old to say."""
        self.context.check_open()
        if not self.context.model.offers("context_measure"):
            return None
        times = abi.TkRunTimes(struct_size=ctypes.sizeof(abi.TkRunTimes))
        self._timed(self._api.context_measure, ctypes.byref(times))
        return RunTimes(times.kernels, times.with_copies)

    def _timed(self, function: Callable[..., int], *more: object) -> None:
        for one in self._packed:
            one.pack()
        self._fail(function(*self._arguments, *more))
        for held in self._unpacked:
            held.unpack()

    def outputs(self) -> dict[str, Array]:
        """The outputs of the last run by name, cut to their actual shapes; not copied.

        Those on the device are the objects that were given, uncut.
        """
        found: dict[str, Array] = {}
        for index, (info, array) in enumerate(zip(self._results, self._arrays, strict=True)):
            if isinstance(array, DeviceTensor):
                found[info.name] = array.owner
            elif info.symbolic:
                tensor = self._outputs.tensors[index]
                shape = tuple(tensor.shape[: tensor.ndim])
                cut = array.reshape(-1)[: math.prod(shape)].reshape(shape)
                found[info.name] = array if shape == array.shape else cut
            else:
                found[info.name] = array
        return found

    def _fail(self, status: int) -> None:
        _check(self._api, status, str(self.context.model.path))


def _output(
    info: TensorSpec, out: Mapping[str, object] | None, shape: tuple[int, ...]
) -> Array | DeviceTensor:
    if out is None or info.name not in out:
        return aligned_empty(shape, numpy_dtype(info.dtype))
    given = out[info.name]
    if lies_on_device(given):
        return DeviceTensor(info.name, given)  # the library checks the rest
    array = cast(Array, given)
    problem = _output_problem(info, array, shape)
    if problem:
        raise BadInputError(f"the array for output {info.name!r} does not fit", why=problem)
    return array


def _output_problem(info: TensorSpec, array: Array, shape: tuple[int, ...]) -> str:
    """What keeps `array` from taking an output of this shape, or the largest; empty when nothing does."""
    if array.dtype != numpy_dtype(info.dtype):
        return f"it holds {array.dtype}, the output is {info.dtype}"
    if array.shape not in (shape, info.largest_shape):
        return f"its shape is {array.shape}, the output takes {shape}"
    if not array.flags.c_contiguous or not array.flags.writeable:
        return "it is not contiguous and writeable"
    return ""


def _open_library(path: Path) -> ctypes.CDLL:
    try:
        absolute = path.resolve(strict=True)
        stat = absolute.stat()
        identity = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise BadInputError("cannot read the library", where=str(path), why=error.strerror or "") from error
    check_library(absolute)
    _check_machine(absolute)
    with _lock:
        seen = _loaded.setdefault(absolute, [])
        if identity not in seen:
            seen.append(identity)
        spelling = "./" * seen.index(identity)
    try:
        return ctypes.CDLL(f"{absolute.parent}/{spelling}{absolute.name}")
    except OSError as error:
        raise _load_error(path, str(error)) from error


def _check_machine(path: Path) -> None:
    machine, here = machine_of(path), platform.machine()
    if machine != here:
        raise HostError(
            f"this library is for {machine}, and this machine is {here}",
            where=str(path),
            hint="compile the model for this machine; `tk verify` runs such a library in an emulator",
        )


def _load_error(path: Path, message: str) -> TkError:
    """A file that is no library, or a library that needs another one which this machine lacks."""
    if "cannot open shared object file" in message or "GLIBC" in message:
        return HostError(
            "this machine lacks a library that the model needs",
            where=str(path),
            why=message,
            hint="install the C++ runtime (Debian, Ubuntu: apt install libstdc++6), or build on this machine",
        )
    return BadInputError("this file is no model library", where=str(path), why=message)


def _api_of(library: ctypes.CDLL, path: Path) -> TkModelApi:
    why = "its interface is older"
    try:
        api = TkModelApi.in_dll(library, abi.API_SYMBOL)
        if api.struct_size >= TkModelApi.model_shapes.offset:  # which only newer libraries need
            return api
    except ValueError:
        why = f"it does not export {abi.API_SYMBOL}"
    raise BadInputError("this file is no model library of this version", where=str(path), why=why)


def _check(api: TkModelApi, status: int, where: str) -> None:
    if status == Status.OK:
        return
    message = cast(bytes, api.last_error()).decode("utf-8", "replace")
    what, _, hint = message.partition("; ")
    raise _ERRORS.get(status, InternalError)(what or f"status {status}", where=where, hint=hint)


def _close_context(api: TkModelApi, handle: ctypes.c_void_p) -> None:
    api.context_close(handle)


def _close_model(
    api: TkModelApi, handle: ctypes.c_void_p, library: ctypes.CDLL, contexts: Sequence[Callable[[], object]]
) -> None:
    # Collected together, a model may be closed before its contexts, which need it.
    for close in contexts:
        close()
    # The library stays mapped: a context that is collected later still needs its code.
    del library
    api.model_close(handle)
