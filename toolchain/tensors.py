"""Outputs of a run as files and as one line each."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import compiler
from toolchain.names import file_name

FORMATS = ("npy", "npz", "raw")
_INDEX = "outputs.json"

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class OutputSummary:
    """What `tk run` tells about one output; the numbers are None when it has no elements."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    minimum: float | None
    maximum: float | None
    mean: float | None
    file: str | None


def check_format(name: str) -> None:
    """Raise UsageError unless `name` is a file format that can be written."""
    if name not in FORMATS:
        raise compiler.UsageError(
            f"cannot write files of the format `{name}`",
            where="--format",
            hint=compiler.did_you_mean(name, FORMATS) or "choose npy, npz or raw",
        )


def summary(name: str, array: Array, file: str | None) -> OutputSummary:
    """Summarise one output; NaNs show in the numbers."""
    numbers = array.astype(np.float64) if array.size else None
    return OutputSummary(
        name=name,
        dtype=str(array.dtype),
        shape=array.shape,
        minimum=None if numbers is None else float(numbers.min()),
        maximum=None if numbers is None else float(numbers.max()),
        mean=None if numbers is None else float(numbers.mean()),
        file=file,
    )


def write_outputs(directory: Path, outputs: Mapping[str, Array], file_format: str) -> dict[str, str]:
    """Write every output and `outputs.json`, and return the file name of each output.

    npy and raw (row-major, little-endian): one file an output, its name percent-encoded; npz: `outputs.npz`
    with the percent-encoded names inside. The index is written last, so that it only names finished files.
    """
    if file_format == "npz":
        compiler.write_atomic(directory / "outputs.npz", _npz(outputs))
        files = dict.fromkeys(outputs, "outputs.npz")
    else:
        suffix = "npy" if file_format == "npy" else "bin"
        files = {name: f"{file_name(name)}.{suffix}" for name in outputs}
        for name, array in outputs.items():
            compiler.write_atomic(
                directory / files[name], npy_bytes(array) if suffix == "npy" else _raw(array)
            )
    index = {
        name: {"file": files[name], "key": file_name(name), "dtype": str(array.dtype), "shape": array.shape}
        for name, array in outputs.items()
    }
    compiler.write_atomic(directory / _INDEX, json.dumps({"outputs": index}, indent=2) + "\n")
    return files


def npy_bytes(array: Array) -> bytes:
    """An array as the content of an npy file."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def _npz(outputs: Mapping[str, Array]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **{file_name(name): array for name, array in outputs.items()})
    return stream.getvalue()


def _raw(array: Array) -> bytes:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
