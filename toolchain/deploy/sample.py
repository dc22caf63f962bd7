"""Inputs and outputs of one run, which an image keeps to test itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler import TkError, load, read_feeds, sizes_of
from toolchain.deploy.library import PackagedLibrary
from toolchain.deploy.packed import PackedFile
from toolchain.tensors import npy_bytes


@dataclass(frozen=True, slots=True)
class Sample:
    """Files `input0.npy`, `output0.npy` and so on; or none, and why there are none."""

    files: tuple[PackedFile, ...] = ()
    missing: str = ""


def make_sample(library: PackagedLibrary, inputs: Sequence[str], seed: int) -> Sample:
    """Run a library once, on this machine: on inputs from files (NAME=FILE), or random ones.

    A library that this machine cannot run has no sample. Raises BadInputError for inputs that do not fit.
    """
    if library.is_foreign:
        return Sample(missing=f"this machine does not run code for {library.needs.machine}")
    try:
        model = load(library.path)
    except TkError as error:
        return Sample(missing=error.what)
    with model:
        feeds = read_feeds(model.inputs, inputs, seed, sizes=sizes_of(model.manifest, model.inputs))
        outputs = model.run(feeds)
        named = [
            *((f"input{number}", feeds[one.name]) for number, one in enumerate(model.inputs)),
            *((f"output{number}", outputs[one.name]) for number, one in enumerate(model.outputs)),
        ]
        return Sample(tuple(PackedFile(f"{name}.npy", npy_bytes(array.copy())) for name, array in named))
