"""How many times as long as the reference a model takes does not depend on what else the machine does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

import pytest

from compiler.reduce import trial

USUAL, BUSY = (1.0, 1.0, 1.0, 1.0), (9.0, 1.0, 7.0, 8.0)


@pytest.mark.parametrize("around_mine", [USUAL, BUSY])
@pytest.mark.parametrize("around_others", [USUAL, BUSY])
def test_it_is_the_ratio_of_the_quickest(
    around_mine: tuple[float, ...], around_others: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(trial.time, "perf_counter", lambda: now[0])

    def taking(seconds: float, load: Iterator[float]) -> Callable[[], None]:
        def run() -> None:
            now[0] += seconds * next(load)

        return run

    mine, others = taking(0.03, cycle(around_mine)), taking(0.01, cycle(around_others))
    assert trial.times_as_long(mine, others) == pytest.approx(3)
