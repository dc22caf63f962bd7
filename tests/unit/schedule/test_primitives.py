"""A primitive is one class: its name, its arguments and what it gives are said there and nowhere else."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import ClassVar

import pytest

from compiler.loops.build import Builder
from compiler.loops.ir import Func
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives import PRIMITIVES
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Program
from compiler.schedule.schedule import Schedule, method, replay
from compiler.schedule.trace import Trace


def doubled() -> Func:
    b = Builder("doubled")
    x = b.input("x", (4,))
    return b.finish([b.compute("y", (4,), lambda i: x[i] * 2.0)])


def test_a_new_primitive_is_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, slots=True)
    class Rename(Primitive[str]):
        """Give a Func another name."""

        name: ClassVar[str] = "rename"

        to: str
        block: str = "y"

        def apply(self, program: Program) -> tuple[Func, str]:
            if not self.to.isidentifier():
                raise self.refuse("a name is an identifier", f"got {self.to!r}", "use letters")
            return program.func.replace(name=self.to), self.to

    try:
        assert PRIMITIVES["rename"] is Rename
        schedule = Schedule(doubled())
        assert schedule.apply(Rename("other")) == "other"
        assert schedule.func.name == "other"
        trace = Trace.from_json(schedule.trace.to_json())
        assert trace == schedule.trace
        assert replay(trace, doubled()).func == schedule.func
        with pytest.raises(ScheduleError) as caught:
            schedule.apply(Rename("a b"))
        assert (caught.value.what, caught.value.where) == ("rename y: a name is an identifier", "block y")
        monkeypatch.setattr(Schedule, "rename", method(Rename), raising=False)
        assert schedule.rename(to="third") == "third"
    finally:
        del PRIMITIVES["rename"]


@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_primitive_has_its_method(name: str) -> None:
    assert inspect.getdoc(getattr(Schedule, name)) is not None
