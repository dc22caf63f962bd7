"""Passes run in order and are observed."""

from __future__ import annotations

import pytest

from compiler.core.passes import Pass, PassEvent, run_passes


def test_order_and_events() -> None:
    events: list[PassEvent[str]] = []
    passes = [Pass[str]("add", lambda t: t + "a"), Pass[str]("keep", lambda t: t), Pass[str]("up", str.upper)]
    assert run_passes(passes, "x", [events.append]) == "XA"
    assert [(e.name, e.before, e.after, e.changed) for e in events] == [
        ("add", "x", "xa", True),
        ("keep", "xa", "xa", False),
        ("up", "xa", "XA", True),
    ]
    assert all(event.seconds >= 0 for event in events)


def test_errors_name_the_pass() -> None:
    def broken(_text: str) -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        run_passes([Pass("broken", broken)], "x")
    assert caught.value.__notes__ == ["in pass broken"]


def test_an_observer_can_refuse() -> None:
    def verify(event: PassEvent[str]) -> None:
        raise ValueError(f"not valid after {event.name}")

    with pytest.raises(ValueError, match="not valid after same"):
        run_passes([Pass("same", lambda t: t)], "x", [verify])
