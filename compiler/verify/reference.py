"""Reference implementations that a library is compared with: onnxruntime where installed, else onnx's own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx

from compiler.core.diagnostics import BadInputError, HostError, UsageError, did_you_mean
from compiler.verify.report import REFERENCES

Array = npt.NDArray[Any]


class Reference(Protocol):
    """Something that runs an ONNX model; `name` includes the version."""

    name: str

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs by name."""


class OnnxRuntime:
    """onnxruntime on the CPU, with as many threads as asked for."""

    def __init__(self, model: Path, threads: int | None = None) -> None:
        runtime = importlib.import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        self.name = f"onnxruntime {runtime.__version__}"
        self._session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._outputs = [one.name for one in self._session.get_outputs()]
        self._inputs = {one.name for one in self._session.get_inputs()}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        known = {name: array for name, array in feeds.items() if name in self._inputs}
        return dict(zip(self._outputs, self._session.run(self._outputs, known), strict=True))


class OnnxEvaluator:
    """The reference evaluator of the onnx package: slow, written in numpy."""

    def __init__(self, model: Path) -> None:
        evaluator = importlib.import_module("onnx.reference").ReferenceEvaluator(str(model))
        self.name = f"onnx {onnx.__version__} reference evaluator"
        self._evaluator = evaluator

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        known = {name: array for name, array in feeds.items() if name in self._evaluator.input_names}
        values = self._evaluator.run(None, known)
        return {
            name: np.asarray(value) for name, value in zip(self._evaluator.output_names, values, strict=True)
        }


def has_onnxruntime() -> bool:
    """Whether onnxruntime can be imported here."""
    try:
        importlib.import_module("onnxruntime")
    except ImportError:
        return False
    return True


def make_reference(model: Path, choice: str, threads: int | None = None) -> tuple[Reference, tuple[str, ...]]:
    """The reference of this choice (one of REFERENCES) for a model, and notes on how it was chosen.

    Raises UsageError for another choice, HostError if onnxruntime is asked for and missing, BadInputError if
    the reference cannot load the model.
    """
    if choice not in REFERENCES:
        hint = did_you_mean(choice, REFERENCES) or "choose auto, onnxruntime or onnx"
        raise UsageError(f"no reference is called `{choice}`", where="--reference", hint=hint)
    if choice == "onnx":
        return _load_evaluator(model), ()
    if not has_onnxruntime():
        if choice == "auto":
            return _load_evaluator(model), ("onnxruntime is not installed: using onnx's slow evaluator",)
        raise HostError("onnxruntime is not installed", hint="pip install 'tk-toolchain[verify]'")
    try:
        return OnnxRuntime(model, threads), ()
    except Exception as error:
        # onnxruntime raises classes of its own, which cannot be named without importing it.
        if choice == "auto":
            return _load_evaluator(model), (f"onnxruntime cannot load this model: {_first_line(error)}",)
        raise _cannot_load("onnxruntime", model, error) from error


def _load_evaluator(model: Path) -> Reference:
    try:
        return OnnxEvaluator(model)
    except Exception as error:
        # a damaged protobuf, an operator it lacks, a failed check: the evaluator has no common class for them
        raise _cannot_load("onnx's reference evaluator", model, error) from error


def _cannot_load(what: str, model: Path, error: Exception) -> BadInputError:
    return BadInputError(f"{what} cannot load the model", where=str(model), why=_first_line(error))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
