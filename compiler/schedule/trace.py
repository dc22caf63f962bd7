"""What a schedule did: a list of instructions that can be stored as JSON and replayed.

An argument may refer to what an earlier sampling step gave (`{"ref": [step, output]}`), so that changing the
decision of that step changes the program that the rest of the trace makes.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Self, TypeAlias, Union, get_args, get_origin, get_type_hints

from compiler.core.diagnostics import BadInputError, did_you_mean
from compiler.schedule.primitives import PRIMITIVES
from compiler.schedule.primitives.base import Made, Primitive, Value
from compiler.schedule.primitives.sampling import Sampling

TRACE_VERSION = 3


@dataclass(frozen=True, slots=True)
class Ref:
    """Output number `output` of the instruction number `step`."""

    step: int
    output: int


class SampledInt(int):
    """An integer that a sampling step gave; as an argument it is recorded as a reference to that step."""

    ref: Ref

    def __new__(cls, value: int, ref: Ref) -> Self:
        self = super().__new__(cls, value)
        self.ref = ref
        return self


class SampledName(str):
    """A name that a sampling step gave; as an argument it is recorded as a reference to that step."""

    __slots__ = ("ref",)
    ref: Ref

    def __new__(cls, value: str, ref: Ref) -> Self:
        self = super().__new__(cls, value)
        self.ref = ref
        return self


def referable(value: int | str, ref: Ref) -> SampledInt | SampledName:
    """A value that a sampling step gave, which knows where it came from."""
    return SampledInt(value, ref) if isinstance(value, int) else SampledName(value, ref)


Outputs: TypeAlias = "tuple[str | int, ...]"
"""What a step made, as a trace records it."""

Argument: TypeAlias = "Value | Ref | tuple[Argument, ...]"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One applied primitive: its name, its arguments, the names or values it made, and what was decided."""

    name: str
    arguments: tuple[tuple[str, Argument], ...]
    outputs: Outputs
    decision: Value = None

    def primitive(self, outputs: list[Outputs]) -> Primitive[Any]:
        """The primitive with its references resolved by the outputs of the instructions before it."""
        cls = PRIMITIVES[self.name]
        where = f"instruction {len(outputs)} ({self.name})"
        values = {key: _resolve(value, outputs, where) for key, value in self.arguments}
        for key, kind in _argument_kinds(self.name).items():
            if key in values and not _fits(values[key], kind):
                raise BadInputError(f"{key} cannot be {values[key]!r}", where=where, why=f"it is {kind}")
        if issubclass(cls, Sampling):
            values["decision"] = self.decision
        return cls(**values)


def record(primitive: Primitive[Made], made: Made) -> Instruction:
    """The instruction of a primitive that was applied."""
    outputs: Outputs = () if made is None else made if isinstance(made, tuple) else (made,)
    arguments = primitive.arguments()
    decision = arguments.pop("decision", None) if isinstance(primitive, Sampling) else None
    return Instruction(
        primitive.name, tuple((key, _refer(value)) for key, value in arguments.items()), outputs, decision
    )


def _refer(value: Value) -> Argument:
    if isinstance(value, SampledInt | SampledName):
        return value.ref
    return tuple(_refer(item) for item in value) if isinstance(value, tuple) else value


def _resolve(value: Argument, outputs: list[Outputs], where: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_resolve(item, outputs, where) for item in value)
    if not isinstance(value, Ref):
        return value
    if value.step >= len(outputs) or value.output >= len(outputs[value.step]):
        why = f"step {value.step} gave nothing at place {value.output}"
        raise BadInputError("a reference leads nowhere", where=where, why=why)
    return referable(outputs[value.step][value.output], value)


@cache
def _argument_kinds(name: str) -> dict[str, Any]:
    """The types of the arguments of a primitive; those of any JSON value are left out."""
    cls = PRIMITIVES[name]
    checked = {item.name for item in dataclasses.fields(cls) if item.type != "Value"}
    hints = get_type_hints(cls, localns={"Value": object})
    return {key: kind for key, kind in hints.items() if key in checked}


def _fits(value: object, kind: Any) -> bool:
    """Whether a value from JSON is of a type made of str, int, float, None, unions and tuples."""
    if get_origin(kind) in {Union, UnionType}:
        return any(_fits(value, item) for item in get_args(kind))
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and _fits_tuple(value, get_args(kind))
    if kind in {int, float} and isinstance(value, bool):
        return False
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _fits_tuple(values: tuple[object, ...], kinds: tuple[Any, ...]) -> bool:
    if kinds[-1:] == (...,):
        return all(_fits(value, kinds[0]) for value in values)
    return len(values) == len(kinds) and all(_fits(*pair) for pair in zip(values, kinds, strict=True))


@dataclass(frozen=True, slots=True)
class Trace:
    """Instructions in the order in which they were applied."""

    instructions: tuple[Instruction, ...] = ()

    def __len__(self) -> int:
        return len(self.instructions)

    def then(self, instruction: Instruction) -> Trace:
        """This trace with one more instruction."""
        return Trace((*self.instructions, instruction))

    def decisions(self) -> dict[int, Value]:
        """The decision of every sampling step, by its number."""
        return {
            number: item.decision for number, item in enumerate(self.instructions) if _is_sampling(item.name)
        }

    def with_decision(self, step: int, decision: Value) -> Trace:
        """The trace with another decision at sampling step `step`, to be replayed."""
        items = list(self.instructions)
        if not 0 <= step < len(items) or not _is_sampling(items[step].name):
            raise BadInputError(f"step {step} of the trace takes no decision")
        items[step] = dataclasses.replace(items[step], decision=decision)
        return Trace(tuple(items))

    def to_json(self) -> str:
        """The trace as JSON text, one instruction a line."""
        lines = ",\n".join("  " + json.dumps(_instruction_json(item)) for item in self.instructions)
        return f'{{"version": {TRACE_VERSION}, "instructions": [\n{lines}\n]}}\n'

    @staticmethod
    def from_json(text: str) -> Trace:
        """Read what `to_json` wrote; BadInputError for anything else."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise BadInputError("the trace is not JSON", why=str(error)) from None
        body = _fields(data, {"version", "instructions"}, "trace")
        if body["version"] != TRACE_VERSION:
            why = f"version {body['version']!r}, this program reads version {TRACE_VERSION}"
            raise BadInputError("the trace has another version", why=why)
        if not isinstance(body["instructions"], list):
            raise BadInputError("the trace has no list of instructions")
        return Trace(
            tuple(_read_instruction(item, number) for number, item in enumerate(body["instructions"]))
        )


def _is_sampling(name: str) -> bool:
    return issubclass(PRIMITIVES[name], Sampling)


# ---------------------------------------------------------------- JSON


def _later(name: str) -> dict[str, Any]:
    """The arguments of a primitive that a trace may leave out, and what they are then."""
    cls = PRIMITIVES[name]
    return {field.name: field.default for field in dataclasses.fields(cls) if field.name in cls.later}


def _instruction_json(item: Instruction) -> dict[str, Any]:
    later = _later(item.name)
    told = ((key, value) for key, value in item.arguments if key not in later or value != later[key])
    data: dict[str, Any] = {
        "do": item.name,
        "with": {key: _to_json(value) for key, value in told},
        "gives": list(item.outputs),
    }
    return {**data, "decision": _to_json(item.decision)} if _is_sampling(item.name) else data


def _to_json(value: Argument) -> Any:
    if isinstance(value, Ref):
        return {"ref": [value.step, value.output]}
    return [_to_json(item) for item in value] if isinstance(value, tuple) else value


def _read_instruction(data: Any, number: int) -> Instruction:
    where = f"instruction {number}"
    name = data.get("do") if isinstance(data, dict) else None
    if not isinstance(name, str) or name not in PRIMITIVES:
        hint = did_you_mean(str(name), PRIMITIVES)
        raise BadInputError(f"unknown primitive {name!r}", where=where, hint=hint)
    sampling = _is_sampling(name)
    body = _fields(data, {"do", "with", "gives"} | ({"decision"} if sampling else set()), where)
    known = [field.name for field in dataclasses.fields(PRIMITIVES[name]) if field.name != "decision"]
    arguments = body["with"]
    if isinstance(arguments, dict):
        arguments = {**_later(name), **arguments}
    given = _fields(arguments, set(known), f"{where} ({name})")
    if not isinstance(body["gives"], list) or not all(isinstance(item, str | int) for item in body["gives"]):
        raise BadInputError("the outputs of an instruction are names or numbers", where=where)
    return Instruction(
        name,
        tuple((key, _from_json(given[key], number, where)) for key in known),
        tuple(body["gives"]),
        _from_json(body["decision"], -1, where) if sampling else None,
    )


def _from_json(value: Any, step: int, where: str) -> Any:
    if isinstance(value, list):
        return tuple(_from_json(item, step, where) for item in value)
    if isinstance(value, dict):
        return _read_ref(value, step, where)
    return value


def _read_ref(value: dict[str, Any], step: int, where: str) -> Ref:
    ref = _fields(value, {"ref"}, where)["ref"]
    ok = isinstance(ref, list) and [type(item) for item in ref] == [int, int] and 0 <= ref[0] < step
    if not ok or ref[1] < 0:
        raise BadInputError(
            "a reference names an earlier step and its output", where=where, why=f"got {ref!r}"
        )
    return Ref(*ref)


def _fields(data: Any, wanted: set[str], where: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise BadInputError("expected an object", where=where, why=f"got {type(data).__name__}")
    for key in sorted(set(data) - wanted):
        hint = did_you_mean(key, wanted) or f"known: {', '.join(sorted(wanted))}"
        raise BadInputError(f"unknown field {key!r}", where=where, hint=hint)
    for key in sorted(wanted - set(data)):
        raise BadInputError(f"field {key!r} is missing", where=where)
    return data
