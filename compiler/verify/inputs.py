"""Inputs of a run: read from files where given, else random and the same on every machine."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler.core.diagnostics import BadInputError, UsageError, did_you_mean
from compiler.runtime.specs import SMALL, TensorSpec
from compiler.runtime.tensors import Array, PackedArray, numpy_dtype
from compiler.verify.sizes import Sizes


def read_feeds(
    specs: Sequence[TensorSpec], texts: Iterable[str], seed: int, run: int = 0, sizes: Sizes | None = None
) -> dict[str, Array]:
    """Arrays for all `specs`: those that `texts` (NAME=FILE, or an npz FILE) give, the others random.

    sizes: how large the random ones are; without, all their free dimensions are as those of a batch. Raises
    UsageError for an unknown name and BadInputError for a file that does not hold the array.
    """
    by_name = {spec.name: spec for spec in specs}
    feeds: dict[str, Array] = {}
    for text in texts:
        given = _read_text(text, by_name)
        if repeated := given.keys() & feeds.keys():
            raise UsageError(f"input `{min(repeated)}` is given twice", where=f"--input {text}")
        feeds |= given
    extents = (sizes or Sizes()).extents(specs, feeds, run)
    return {
        spec.name: feeds[spec.name] if spec.name in feeds else _random_array(spec, extents, seed, run)
        for spec in specs
    }


def _random_array(spec: TensorSpec, extents: Mapping[int, int], seed: int, run: int = 0) -> Array:
    """Standard normal numbers; whole range for 8-bit integers; 0 or 1 for others, which often are indices.

    An array depends on the seed, the run and the input's name alone, not on the other inputs.
    """
    generator = np.random.default_rng([seed, run, zlib.crc32(spec.name.encode())])
    dtype = numpy_dtype(spec.dtype)
    shape = spec.shape_at(extents)
    if dtype.kind not in "biu":
        return generator.standard_normal(shape, np.float32).astype(dtype)
    low, high = 0, 2
    if dtype.kind != "b" and dtype.itemsize == 1:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max) + 1
    return generator.integers(low, high, shape).astype(dtype)


def _read_text(text: str, by_name: dict[str, TensorSpec]) -> dict[str, Array]:
    """Split at the `=` that leaves a known name, as names and paths may hold others."""
    splits = [(text[:i], text[i + 1 :]) for i, char in enumerate(text) if char == "="]
    for name, file in splits:
        if name in by_name and file:
            return {name: _read_file(Path(file), by_name[name])}
    if Path(text).suffix == ".npz" and (not splits or Path(text).exists()):
        return _read_all(Path(text), by_name)
    if not splits:
        raise UsageError(
            f"expected NAME=FILE, found `{text}`", where="--input", hint=f"inputs: {_listed(by_name)}"
        )
    raise UsageError(
        f"the model has no input `{splits[0][0]}`",
        where=f"--input {text}",
        hint=did_you_mean(splits[0][0], by_name) or f"inputs: {_listed(by_name)}",
    )


def _read_all(path: Path, by_name: dict[str, TensorSpec]) -> dict[str, Array]:
    arrays = _load(path)
    assert isinstance(arrays, dict)
    unknown = [name for name in arrays if name not in by_name]
    if unknown:
        raise BadInputError(
            f"the model has no input `{unknown[0]}`",
            where=str(path),
            hint=did_you_mean(unknown[0], by_name) or f"inputs: {_listed(by_name)}",
        )
    return {name: _fit(array, by_name[name], path) for name, array in arrays.items()}


def _read_file(path: Path, spec: TensorSpec) -> Array:
    if path.suffix not in (".npy", ".npz"):
        return _read_raw(path, spec)
    loaded = _load(path)
    if not isinstance(loaded, dict):
        return _fit(loaded, spec, path)
    if spec.name in loaded:
        return _fit(loaded[spec.name], spec, path)
    if len(loaded) == 1:
        return _fit(next(iter(loaded.values())), spec, path)
    raise BadInputError(
        f"the file holds no array `{spec.name}`", where=str(path), why=f"it holds {_listed(loaded)}"
    )


def _load(path: Path) -> Array | dict[str, Array]:
    """Read an npy or npz file; object arrays, which would need code to be run, are refused."""
    try:
        with path.open("rb") as stream:
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            with loaded:
                return {name: loaded[name] for name in loaded.files}
    except OSError as error:
        raise BadInputError(
            "cannot read an input", where=str(path), why=error.strerror or str(error)
        ) from error
    except Exception as error:
        # numpy and zipfile raise many kinds for a damaged file; all mean the same to the user.
        raise BadInputError(
            "cannot read an input", where=str(path), why=f"it is no intact npy or npz file: {error}"
        ) from error


def _read_raw(path: Path, spec: TensorSpec) -> Array:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInputError(
            "cannot read an input", where=str(path), why=error.strerror or str(error)
        ) from error
    if spec.symbolic:
        raise BadInputError(
            f"a raw file does not say the shape of input `{spec.name}`",
            where=str(path),
            why=f"the model takes {_dims(spec.shape)}",
            hint="give an npy file",
        )
    if len(data) != spec.nbytes:
        raise BadInputError(
            f"a raw file for input `{spec.name}` has the wrong size",
            where=str(path),
            why=f"it has {len(data)} bytes; {spec.dtype} of {_dims(spec.largest_shape)} takes {spec.nbytes}",
        )
    dtype = numpy_dtype(spec.dtype)
    if spec.dtype in SMALL:
        packed = PackedArray(np.empty(spec.largest_shape, dtype))
        packed.memory[:] = np.frombuffer(data, np.uint8)
        packed.unpack()
        return packed.array
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(spec.largest_shape)


def _fit(array: Array, spec: TensorSpec, path: Path) -> Array:
    """Check shape and type; numbers of a type that the input's type holds exactly are converted."""
    if not _shape_fits(array.shape, spec):
        raise BadInputError(
            f"input `{spec.name}` has the wrong shape",
            where=str(path),
            why=f"it is {_dims(array.shape)}, the model takes {_dims(spec.shape)}",
            hint="these are fixed when compiling: see `--shape` of `tk compile`",
        )
    if not np.can_cast(array.dtype, numpy_dtype(spec.dtype), casting="safe"):
        raise BadInputError(
            f"input `{spec.name}` has the wrong type",
            where=str(path),
            why=f"it is {array.dtype}, the model takes {spec.dtype}",
            hint=f"convert it: array.astype('{spec.dtype}')",
        )
    # Not ascontiguousarray, which makes a scalar a vector.
    return np.asarray(array, numpy_dtype(spec.dtype), order="C")


def _shape_fits(shape: tuple[int, ...], spec: TensorSpec) -> bool:
    """Symbolic dimensions are left to the library, which knows how they depend on each other."""
    pairs = zip(shape, spec.shape, strict=False)
    return len(shape) == len(spec.shape) and all(d == s for d, s in pairs if isinstance(s, int))


def _dims(shape: Sequence[object]) -> str:
    return "x".join(map(str, shape)) or "a scalar"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
