"""One model of an exporter: compiled with few flags, run at its sizes, compared with onnxruntime."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import compiler
from compiler import CompileOptions, OpenDimensionsError, TkError
from toolchain import zoo
from toolchain.zoo.record import Network

MOST_ERROR = 1e-4
"""Of an element, as a part of its output's largest one."""

Sizes = Mapping[str, int]
Arrays = Mapping[str, np.ndarray]
Run = tuple[Sizes, Arrays, Sequence[np.ndarray]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a model.

    fixed: symbols that had to be given a value to compile it, none where it compiles without flags; why: what
    was said without flags. runs: how many sizes were run. error: the worst element, as a part of its output's
    scale. problem: what is wrong, empty where it is equal to onnxruntime at every size.
    """

    name: str
    fixed: tuple[str, ...] = ()
    runs: int = 0
    error: float = 0.0
    problem: str = ""
    why: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem and self.runs > 0


def attempt(
    name: str, folder: Path, sizes: int = 5, target: str = "cpu", device: str | None = None
) -> Outcome:
    """Try a model without flags, then with everything but the batch given, then with everything given."""
    record, path = zoo.network(name), folder / f"{name}.onnx"
    zoo.make(name, path)
    runs = list(itertools.islice(_references(record, path), sizes))
    symbols = [symbol for symbol, _ in record.free]
    plain = CompileOptions(output=folder / f"{name}.so", target=target)
    choices = dict.fromkeys([(), tuple(symbols[1:]), tuple(symbols)])
    why = ""
    for fixed in choices:
        if "batch" not in fixed and any(symbol in fixed for symbol in _nameless(record, path)):
            continue  # --shape gives a value to the batch, too
        try:
            worst = max(_differences(path, plain, record, fixed, runs, device))
        except OpenDimensionsError as error:
            why = why or error.not_free or "more than the batch is free"
        except (TkError, AssertionError) as error:
            what = f"{error.what}: {error.why}" if isinstance(error, TkError) else str(error)
            return Outcome(name, fixed, problem=f"{type(error).__name__}: {what}", why=why)
        else:
            problem = "" if worst <= MOST_ERROR else f"differs by {worst:.1e}"
            return Outcome(name, fixed, len(runs), worst, problem, why)
    return Outcome(name, tuple(symbols), problem="has open dimensions whatever is given", why=why)


def feeds_of(record: Network, size: Sizes, seed: int = 0) -> Arrays:
    """Seeded inputs of one size."""
    random, choices = np.random.default_rng(seed), dict(record.choices)
    found = {}
    for name, dims in record.inputs:
        shape = tuple(size[dim] if isinstance(dim, str) else dim for dim in dims)
        found[name] = (
            random.integers(0, choices[name], shape)
            if name in choices
            else random.standard_normal(shape, dtype=np.float32)
        )
    return found


def session_of(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _references(record: Network, path: Path) -> Iterator[Run]:
    session = session_of(path)
    for size in record.sizes:
        feeds = feeds_of(record, size)
        yield size, feeds, session.run(None, dict(feeds))


def _nameless(record: Network, path: Path) -> set[str]:
    """Symbols of a record for dimensions that have other names in the model, or none."""
    given = {one.name: one.type.tensor_type.shape.dim for one in onnx.load(path).graph.input}
    pairs = itertools.chain.from_iterable(zip(dims, given[name], strict=True) for name, dims in record.inputs)
    return {symbol for symbol, dim in pairs if isinstance(symbol, str) and dim.dim_param != symbol}


def _differences(
    path: Path,
    plain: CompileOptions,
    record: Network,
    fixed: Sequence[str],
    runs: Sequence[Run],
    device: str | None,
) -> Iterator[float]:
    """The worst difference at each size; what is fixed has the values of that size."""
    nameless = _nameless(record, path)
    for number, (size, feeds, expected) in enumerate(runs):
        if number == 0 or fixed:
            options = plain
            if nameless & set(fixed):
                options = replace(plain, shapes={k: v.shape for k, v in feeds.items()})
            elif fixed:
                options = replace(plain, dims={one: size[one] for one in fixed})
            compiler.compile_model(path, options)
        with compiler.load(plain.output, device=device) as model:
            actual = model.run(feeds)
        for (name, array), reference in zip(actual.items(), expected, strict=True):
            yield _difference(name, array, reference, size)


def _difference(name: str, actual: np.ndarray, expected: np.ndarray, size: Sizes) -> float:
    where = f"output {name} at {dict(size)}"
    assert actual.shape == expected.shape, f"{where} is {actual.shape}, expected {expected.shape}"
    assert np.isfinite(expected).all(), f"{where}: onnxruntime's is not finite"
    if expected.dtype.kind != "f":
        assert np.array_equal(actual, expected), f"{where} differs"
        return 0.0
    scale = float(np.abs(expected).max(initial=0.0)) or 1.0
    return float(np.abs(actual - expected).max(initial=0.0)) / scale
