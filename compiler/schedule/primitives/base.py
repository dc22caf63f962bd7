"""What a primitive is: a frozen record of its arguments with a precondition and a rewrite.

`apply` checks first and raises :class:`ScheduleError` in plain words, then returns the new Func and the names
it made. Loops and blocks are addressed by name; new names follow from old ones, so that a recorded schedule
gives the same program again.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from compiler.loops.ir import Func
from compiler.schedule.errors import ScheduleError
from compiler.schedule.program import Program

Value: TypeAlias = "str | int | float | tuple[Value, ...] | None"
"""What an argument of a primitive may be: it has to go through JSON unchanged."""

Made = TypeVar("Made", bound="int | str | tuple[int | str, ...] | None")
"""What a primitive gives: the names or numbers that it made."""

PRIMITIVES: dict[str, type[Primitive[Any]]] = {}
"""Every primitive by the name that traces use: a class is known as soon as it is defined."""


@dataclasses.dataclass(frozen=True, slots=True)
class Primitive(Generic[Made]):
    """One step of a schedule; subclasses are frozen records whose fields are the arguments.

    later: arguments that traces of before have not; a trace leaves them out where they have their default.
    """

    name: ClassVar[str]
    later: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls):
            PRIMITIVES[cls.name] = cls

    def apply(self, program: Program) -> tuple[Func, Made]:
        """Return the rewritten Func and the names made; ScheduleError when a precondition does not hold."""
        raise NotImplementedError

    def arguments(self) -> dict[str, Value]:
        """The fields by name, in order."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def refuse(self, what: str, why: str = "", hint: str = "", *, where: str = "") -> ScheduleError:
        """The error of this step.

        Without `where`, `what` is said of the first loop, block or buffer among the arguments.
        """
        heading = self.name
        if not where:
            named = {key: value for key, value in self.arguments().items() if key in _PLACES}
            where = ", ".join(f"{key} {value}" for key, value in named.items())
            heading = " ".join([self.name, *map(str, named.values())][:2])
        return ScheduleError(f"{heading}: {what}", where=where, why=why, hint=hint)


_PLACES = ("block", "buffer", "loop", "target")
