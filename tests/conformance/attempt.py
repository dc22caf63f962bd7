"""Tries cases on a target: many in one model, so that one compile serves them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnx.compose

import compiler
from compiler.core.diagnostics import BadInputError, InternalError, TkError
from compiler.core.files import private_directory
from compiler.frontend.onnx import import_proto
from compiler.frontend.refusals import UnsupportedModelError
from compiler.verify.device import load_anywhere
from tests.conformance.cases import OnnxCase
from tests.conformance.judge import judge
from tests.conformance.outcome import Outcome, State

Arrays = dict[str, np.ndarray]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """A target, one of its architectures and a device; empty for the usual one."""

    target: str
    arch: str | None = None
    device: str | None = None


@dataclass(frozen=True)
class _Ready:
    """A case that can be imported. bound: inputs that were given to the compiler, and why."""

    case: OnnxCase
    model: onnx.ModelProto
    bound: frozenset[str] = frozenset()
    why: str = ""

    def feeds(self, number: int) -> Arrays:
        """What is given in data set `number`, or the last one."""
        given, _ = self.case.data[min(number, len(self.case.data) - 1)]
        names = _input_names(self.case.model)
        return {name: array for name, array in zip(names, given, strict=True) if name not in self.bound}

    def outcome(self, made: Sequence[Arrays]) -> Outcome:
        """How the case ends with these outputs."""
        state, why = judge(self.case, [[got[name] for name in self.case.outputs] for got in made])
        if state is State.PASSED and self.bound:
            return Outcome(self.case.name, State.BOUND, self.why)
        return Outcome(self.case.name, state, why)


def attempt(cases: Sequence[OnnxCase], place: Place, tell: Tell) -> list[Outcome]:
    """How cases end; `tell` is told which are tried next."""
    found, ready = [], []
    for case in cases:
        tell(case.name)
        prepared = _prepare(case)
        if isinstance(prepared, Outcome):
            found.append(prepared)
        else:
            ready.append(prepared)
    return found + _by_opsets(ready, place, tell)


def _by_opsets(ready: Sequence[_Ready], place: Place, tell: Tell) -> list[Outcome]:
    groups: dict[object, list[_Ready]] = {}
    for item in ready:
        groups.setdefault((item.case.opsets, item.model.ir_version), []).append(item)
    return [outcome for group in groups.values() for outcome in _compute(group, place, tell)]


def _prepare(case: OnnxCase) -> _Ready | Outcome:
    """What can be compiled, shape inputs bound where only that helps; else why it cannot."""
    refused = _refusal(case.model, {})
    if refused is None:
        return _Ready(case, case.model)
    for binds in _binds(case) if refused.state is State.UNSUPPORTED else ():
        if _refusal(case.model, binds) is None:
            return _Ready(case, _bound(case.model, binds), frozenset(binds), refused.reason)
    return replace(refused, case=case.name)


def _refusal(model: onnx.ModelProto, binds: Mapping[str, np.ndarray]) -> Outcome | None:
    try:
        import_proto(model, Path(), {}, binds)
    except UnsupportedModelError as error:
        return Outcome("", State.UNSUPPORTED, "; ".join(f"{one.op}: {one.reason}" for one in error.refusals))
    except InternalError as error:
        return Outcome("", State.INTERNAL, str(error))
    except BadInputError as error:
        unsupported = "not supported" in f"{error} {error.why}" or "cannot be used" in str(error)
        return Outcome("", State.UNSUPPORTED if unsupported else State.FAILED, _text(error))
    except TkError as error:
        return Outcome("", State.UNSUPPORTED, _text(error))
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return Outcome("", State.INTERNAL, f"{type(error).__name__}: {error}")
    return None


def _text(error: TkError) -> str:
    return f"{error.what}: {error.why}" if error.why else error.what


def _binds(case: OnnxCase) -> list[dict[str, np.ndarray]]:
    """Inputs that may decide shapes: short ones, at first without the first input."""
    given = zip(_input_names(case.model), case.data[0][0], strict=True)
    arrays = {name: np.asarray(one) for name, one in given if isinstance(one, (np.ndarray, np.generic))}
    small = {name: array for name, array in arrays.items() if array.ndim < 2}
    later = {name: array for name, array in small.items() if name != case.model.graph.input[0].name}
    return [binds for binds in (later, small) if binds]


def _bound(model: onnx.ModelProto, binds: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    # No initializers: onnx.compose does not rename those that subgraphs read.
    for name, array in binds.items():
        constant = onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array))
        copy.graph.node.insert(0, constant)
    kept = [item for item in copy.graph.input if item.name not in binds]
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    return copy


def _input_names(model: onnx.ModelProto) -> list[str]:
    known = {item.name for item in model.graph.initializer}
    return [item.name for item in model.graph.input if item.name not in known]


# ---------------------------------------------------------------- compiled and run


def _compute(ready: Sequence[_Ready], place: Place, tell: Tell) -> list[Outcome]:
    """Compile cases of the same opsets as one model, run it and compare; on trouble in halves."""
    tell(" ".join(item.case.name for item in ready))
    try:
        made = _run(ready, place)
    except Exception as error:  # noqa: BLE001 - whose fault it is, the halves tell
        if len(ready) == 1:
            return [Outcome(ready[0].case.name, *_failure(error))]
        middle = len(ready) // 2
        return [*_compute(ready[:middle], place, tell), *_compute(ready[middle:], place, tell)]
    return [item.outcome(made[number]) for number, item in enumerate(ready)]


def _failure(error: Exception) -> tuple[State, str]:
    if isinstance(error, TkError) and not isinstance(error, InternalError):
        return State.FAILED, _text(error)
    return State.INTERNAL, f"{type(error).__name__}: {error}"


def _run(ready: Sequence[_Ready], place: Place) -> list[list[Arrays]]:
    """For each case the outputs of each of its data sets."""
    merged = _merged([item.model for item in ready])
    sets = max(len(item.case.data) for item in ready)
    made: list[list[Arrays]] = [[] for _ in ready]
    with private_directory("tk-conformance") as directory:
        onnx.save(merged, directory / "m.onnx")
        options = compiler.CompileOptions(output=directory / "m.so", target=place.target, arch=place.arch)
        compiler.compile_model(directory / "m.onnx", options)
        with (
            load_anywhere(directory / "m.so", threads=1, device=place.device) as model,
            model.context() as context,
        ):
            for number in range(sets):
                feeds = {
                    f"c{at}_{name}": np.asarray(array, order="C")
                    for at, item in enumerate(ready)
                    for name, array in item.feeds(number).items()
                }
                got = context.run(feeds)
                for at, item in enumerate(ready):
                    made[at].append({name: np.array(got[f"c{at}_{name}"]) for name in item.case.outputs})
    return made


def _merged(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """The models side by side in one; names of model N begin with `cN_`."""
    together = onnx.ModelProto()
    together.CopyFrom(models[0])
    together.graph.Clear()
    together.graph.name = "cases"
    for number, model in enumerate(models):
        part = onnx.compose.add_prefix(model, f"c{number}_", rename_functions=False).graph
        for kind in ("node", "input", "output", "initializer", "value_info"):
            getattr(together.graph, kind).extend(getattr(part, kind))
        known = {(item.domain, item.name, item.overload) for item in together.functions}
        more = (item for item in model.functions if (item.domain, item.name, item.overload) not in known)
        together.functions.extend(more)
    return together
