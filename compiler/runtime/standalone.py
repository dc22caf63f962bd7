"""Runs the model library that lies beside this package; needs nothing but the standard library.

    model = PackagedModel()
    outputs = model.run({"x": array})        # numpy arrays, array.array, bytes, DLPack objects
    numpy.asarray(outputs["y"])              # no copy; or outputs["y"].tolist(), outputs["y"].data

`tk package` puts this file into packages, as `__init__.py`; any Python from 3.10 on reads it.
"""

from __future__ import annotations

import ctypes
import json
import math
import struct
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from compiler.runtime.abi import API_SYMBOL, CPU, DLTensor, TkContextOptions, TkModelApi, TkTensorInfo
from compiler.runtime.specs import TensorSpec, extents_of, follows, shapes_by_library, spec_of

__all__ = ["ModelError", "OutputTensor", "PackagedModel", "TensorSpec"]

_FORMATS = {
    "float64": "d", "float32": "f", "float16": "e", "bfloat16": "H", "int64": "q", "int32": "i", "int16": "h",
    "int8": "b", "uint64": "Q", "uint32": "I", "uint16": "H", "uint8": "B", "bool": "?",
}  # fmt: skip
"""The letter of Python's struct module for each element type; bfloat16 as its bits."""
_HOSTS = (1, 3, 11)  # kDLCPU, and host memory that CUDA or ROCm pinned
_STREAMED = (2, 10, 13)  # kDLCUDA, kDLROCM, kDLCUDAManaged: asked for no wait
_NO_WAIT = -1


class ModelError(RuntimeError):
    """What went wrong, in one sentence; `status` is a TK_ERR_ code of tk_model.h, 0 for a wrong call."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class OutputTensor:
    """A result: `shape`, `dtype` (a numpy name) and `data`, a memoryview of its bytes.

    numpy.asarray takes it without a copy; bfloat16 has no name there and is taken as uint16, its bits.
    """

    __slots__ = ("data", "dtype", "shape")

    def __init__(self, dtype: str, shape: tuple[int, ...], data: memoryview) -> None:
        self.dtype = dtype
        self.shape = shape
        self.data = data

    @property
    def __array_interface__(self) -> dict[str, Any]:
        letter = _FORMATS[self.dtype]
        kind = {"e": "f", "f": "f", "d": "f", "?": "b"}.get(letter, "i" if letter.islower() else "u")
        typestr = f"{'|' if struct.calcsize(letter) == 1 else '<'}{kind}{struct.calcsize(letter)}"
        return {"version": 3, "shape": self.shape, "typestr": typestr, "data": self.data}

    def tolist(self) -> Any:
        """The elements as nested lists; a number for a scalar."""
        values: list[Any] = list(
            struct.unpack(f"={self.data.nbytes // self._bytes}{self._letter}", self.data)
        )
        for extent in self.shape[:0:-1]:
            values = [values[i : i + extent] for i in range(0, len(values), extent)] if extent else []
        return values if self.shape else values[0]

    @property
    def _letter(self) -> str:
        return _FORMATS[self.dtype]

    @property
    def _bytes(self) -> int:
        return struct.calcsize(f"={self._letter}")


class PackagedModel(AbstractContextManager["PackagedModel"]):
    """A loaded model. One run at a time: threads that share it wait for each other.

    `library` is the file, by default the one of this package; `threads` counts the calling thread, None is
    what the library was compiled for; `device` names a device of a library for one. Raises ModelError.
    """

    def __init__(
        self, library: str | Path | None = None, *, threads: int | None = None, device: str | None = None
    ) -> None:
        self.path = Path(library) if library is not None else _own_library()
        self._handle, self._context = ctypes.c_void_p(), ctypes.c_void_p()
        self._lock = threading.Lock()
        self._api = _interface(self.path)
        name = None if device is None else device.encode()
        self._check(self._api.model_open_on(name, ctypes.byref(self._handle)))
        api = self._api
        self.inputs = self._specs(api.model_input_count(self._handle), api.model_input)
        self.outputs = self._specs(api.model_output_count(self._handle), api.model_output)
        options = TkContextOptions(ctypes.sizeof(TkContextOptions), threads or 0, 0, None)
        status = api.context_open(self._handle, ctypes.byref(options), ctypes.byref(self._context))
        self._check(status)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give memory back. May be called twice."""
        with self._lock:
            if self._context.value:
                self._api.context_close(self._context)
                self._context = ctypes.c_void_p()
            if self._handle.value:
                self._api.model_close(self._handle)
                self._handle = ctypes.c_void_p()

    @property
    def manifest(self) -> dict[str, Any]:
        """What the compiler wrote down about this library."""
        size = ctypes.c_size_t()
        start = self._api.model_manifest(ctypes.byref(size))
        found: dict[str, Any] = json.loads(ctypes.string_at(start, size.value))
        return found

    def run(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None
    ) -> dict[str, OutputTensor | Any]:
        """One inference: outputs by name, new ones or what `out` gives to write to, which are given back.

        Inputs are buffers (numpy arrays, array.array, bytes) or DLPack objects; elements are never converted,
        and a flat buffer of the right size and type takes the input's shape. Raises ModelError naming what
        does not fit.
        """
        given = dict(out or {})
        _check_names("input", self.inputs, inputs, complete=True)
        _check_names("output", self.outputs, given, complete=False)
        sources = [_Source(spec, inputs[spec.name]) for spec in self.inputs]
        first, n_first = _tensors(sources)
        shapes = self._shapes(sources, first, n_first)
        targets = [
            _Source(spec, given[spec.name], shape, writable=True)
            if spec.name in given
            else _fresh(spec, shape)
            for spec, shape in zip(self.outputs, shapes, strict=True)
        ]
        second, n_second = _tensors(targets)
        with self._lock:
            if not self._context.value:
                raise ModelError("the model is closed")
            self._check(self._api.context_run(self._context, first, n_first, second, n_second))
        return {
            spec.name: given.get(spec.name, OutputTensor(spec.dtype, one.shape, one.bytes))
            for spec, one in zip(self.outputs, targets, strict=True)
        }

    def _shapes(self, sources: Sequence[_Source], tensors: Any, count: int) -> list[tuple[int, ...]]:
        """The shapes that outputs have in a run with these inputs."""
        if not follows(self.outputs, self.inputs):
            extents = extents_of(self.inputs, sources)
            return [spec.shape_at(extents) for spec in self.outputs]
        status, shapes = shapes_by_library(self._api.model_shapes, self._handle, tensors, count, self.outputs)
        self._check(status)
        return shapes

    def _specs(self, count: int, describe: Any) -> tuple[TensorSpec, ...]:
        infos = [TkTensorInfo() for _ in range(count)]
        for index, info in enumerate(infos):
            self._check(describe(self._handle, index, ctypes.byref(info)))
        return tuple(map(spec_of, infos))

    def _check(self, status: int) -> None:
        if status:
            raise ModelError(self._api.last_error().decode("utf-8", "replace") or f"status {status}", status)


class _Source:
    """Memory of a tensor as the library sees it, kept alive: a buffer's, or a DLPack object's."""

    def __init__(
        self, spec: TensorSpec, value: Any, shape: tuple[int, ...] | None = None, *, writable: bool = False
    ) -> None:
        self.bytes = memoryview(b"")
        self.tensor = DLTensor()
        try:
            view = memoryview(value)
        except (TypeError, ValueError, BufferError):
            self._take_dlpack(spec, value)
        else:
            self._take_buffer(spec, view, shape, writable=writable)
        if shape is not None and self.shape != shape:
            raise ModelError(
                f"what output {spec.name!r} is to be written to has the shape {self.shape}, not {shape}"
            )

    def _take_buffer(
        self, spec: TensorSpec, view: memoryview, shape: tuple[int, ...] | None, *, writable: bool
    ) -> None:
        letter = _FORMATS.get(spec.dtype)
        if letter is None:
            raise ModelError(f"{spec.name!r} holds {spec.dtype}: pass a DLPack object")
        self.shape = _shape_of(spec, view, letter, shape)
        if writable and (view.readonly or not view.c_contiguous):
            raise ModelError(f"what output {spec.name!r} is to be written to is not contiguous and writable")
        # ctypes hands out addresses of writable memory only: what is not is copied.
        plain = view if view.c_contiguous and not view.readonly else memoryview(bytearray(view.tobytes()))
        self.bytes = plain.cast("B") if plain.nbytes else memoryview(bytearray(1))[:0]
        self._memory = (ctypes.c_char * self.bytes.nbytes).from_buffer(self.bytes)
        self._extents = (ctypes.c_int64 * len(self.shape))(*self.shape)
        tensor = self.tensor
        tensor.data, tensor.ndim = ctypes.addressof(self._memory), len(self.shape)
        tensor.device.device_type = CPU
        code = {"f": 2, "i": 0, "u": 1}[spec.dtype[0]] if spec.dtype[0] != "b" else 4
        tensor.dtype.code = 6 if spec.dtype == "bool" else code
        tensor.dtype.bits, tensor.dtype.lanes = 8 * struct.calcsize(f"={letter}"), 1
        tensor.shape = ctypes.cast(self._extents, ctypes.POINTER(ctypes.c_int64))

    def _take_dlpack(self, spec: TensorSpec, value: Any) -> None:
        if not hasattr(value, "__dlpack__"):
            raise ModelError(
                f"{spec.name!r} is neither a buffer nor a DLPack object, but a {type(value).__name__}"
            )
        kind = int(value.__dlpack_device__()[0]) if hasattr(value, "__dlpack_device__") else CPU
        self._memory = value.__dlpack__(stream=_NO_WAIT) if kind in _STREAMED else value.__dlpack__()
        pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", ctypes.pythonapi)
        )
        # A DLManagedTensor, which begins with its DLTensor; the capsule frees it with this object.
        self.tensor = DLTensor.from_buffer_copy(DLTensor.from_address(pointer(self._memory, b"dltensor")))
        if kind in _HOSTS:
            self.tensor.device.device_type = CPU
        self.shape = tuple(self.tensor.shape[: self.tensor.ndim])


def _shape_of(
    spec: TensorSpec, view: memoryview, letter: str, shape: tuple[int, ...] | None
) -> tuple[int, ...]:
    """The shape that a buffer's elements have for the model; raises ModelError for other elements."""
    size = struct.calcsize(f"={letter}")
    is_raw = view.format in ("B", "c") and view.ndim == 1 and letter != "B"
    fits = view.itemsize == size and _kind(view.format) == _kind(letter)
    if not is_raw and not fits:
        raise ModelError(
            f"{spec.name!r} holds elements of format {view.format!r}, the model's are {spec.dtype}"
        )
    wanted = shape if shape is not None else spec.largest_shape
    if (is_raw or view.ndim == 1) and view.nbytes == math.prod(wanted) * size:
        return wanted
    if is_raw:
        raise ModelError(f"{spec.name!r} has {view.nbytes} bytes, the model's has {math.prod(wanted) * size}")
    return tuple(view.shape or ())


def _kind(letter: str) -> str:
    """What tells formats of one size apart: floats, truth values, signed, unsigned."""
    letter = letter.lstrip("@=<")
    if letter in ("e", "f", "d", "?") or len(letter) > 1:  # big-endian ones among them
        return letter
    return "signed" if letter.islower() else "unsigned"


def _fresh(spec: TensorSpec, shape: tuple[int, ...]) -> _Source:
    letter = _FORMATS.get(spec.dtype)
    if letter is None:
        raise ModelError(f"output {spec.name!r} holds {spec.dtype}: pass a DLPack object in `out`")
    memory = bytearray(math.prod(shape) * struct.calcsize(f"={letter}"))
    return _Source(spec, memory, shape, writable=True)


def _tensors(sources: Sequence[_Source]) -> tuple[Any, int]:
    array = (DLTensor * max(1, len(sources)))()
    for index, one in enumerate(sources):
        array[index] = one.tensor
    return array, len(sources)


def _check_names(kind: str, specs: Sequence[TensorSpec], given: Mapping[str, Any], *, complete: bool) -> None:
    names = [spec.name for spec in specs]
    unknown = [name for name in given if name not in names]
    missing = [name for name in names if name not in given] if complete else []
    if unknown or missing:
        wrong = f"no {kind} is called {unknown[0]!r}" if unknown else f"{kind} {missing[0]!r} is missing"
        raise ModelError(f"{wrong}; the model's are {', '.join(map(repr, names))}")


def _interface(path: Path) -> TkModelApi:
    try:
        library = ctypes.CDLL(str(path.absolute()))
        api = TkModelApi.in_dll(library, API_SYMBOL)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be loaded on this machine: {error}") from error
    if api.struct_size < TkModelApi.model_shapes.offset:  # which only newer libraries need
        raise ModelError(f"{path} has an older interface than this loader")
    return api


def _own_library() -> Path:
    """The library of this package: beside this file, or in the folder `lib` of what `tk package` wrote."""
    here = Path(__file__).resolve().parent
    places = [here / "model.so", here.parents[1] / "lib" / f"lib{here.name}.so"]
    found = next((one for one in places if one.is_file()), None)
    if found is None:
        raise ModelError(f"there is no library: neither {places[0]} nor {places[1]}")
    return found
