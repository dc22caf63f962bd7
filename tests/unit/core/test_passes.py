"""Passes run in order and are observed."""

from __future__ import annotations

import pytest

from compiler.core.passes import Applications, Limits, Pass, PassEvent, run_passes


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


class _Letters:
    """A pass that changes one letter after the other."""

    def __call__(self, text: str) -> str:
        return text.upper()

    def within(self, text: str, applications: Applications) -> str:
        made = ""
        for letter in text:
            takes = applications.are_left and letter.islower()
            made += letter.upper() if takes else letter
            if takes:
                applications.add(letter)
        return made


@pytest.mark.parametrize(
    ("most", "made", "count", "last"), [(0, "abc!", 0, ""), (2, "ABc!", 2, "b"), (9, "ABC!", 3, "c")]
)
def test_a_limit_ends_a_pass_in_the_middle(most: int, made: str, count: int, last: str) -> None:
    limits = Limits({"up": most})
    assert run_passes([Pass[str]("up", _Letters())], "abc!", (), limits, "a text") == made
    assert limits.of("up") == Applications(most, count, last)


def test_what_is_done_to_all_at_once_is_one_application_of_each_program_that_it_changes() -> None:
    limits = Limits({"up": 1})
    passes = [Pass[str]("up", lambda text: text if text.isupper() else text.upper())]
    made = [run_passes(passes, text, (), limits, text) for text in ("A", "b", "c")]
    assert made == ["A", "B", "c"]
    assert limits.of("up") == Applications(1, 1, "b")
