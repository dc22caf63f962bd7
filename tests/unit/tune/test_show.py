"""A workload or record by the first digits of its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.core.diagnostics import UsageError
from compiler.tune.database import stats
from compiler.tune.database.stats import show_tuning
from compiler.tune.database.store import Database
from tests.support.tuned import plain_record, product

SMALL = product(2, 3, 4)


def test_names_are_looked_up_by_their_first_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database.open(tmp_path / "t.db")
    records = [plain_record(SMALL, 1e-3 * (n + 1), notes={"n": str(n)}) for n in range(40)]
    database.add([*records, plain_record(SMALL, None)], [SMALL])
    paths = [database.path]
    whole = show_tuning(SMALL.key[:12], paths, 3)
    assert (whole.workload, whole.tried, whole.failures) == (SMALL.key, 41, {"crash": 1})
    assert [one.id for one in whole.records] == [one.id for one in records[:3]]
    one = show_tuning(records[7].id, [*paths, *paths], 3)  # in two databases it is still one
    assert [(each.id, each.ms) for each in one.records] == [(records[7].id, 8)]
    monkeypatch.setattr(stats, "_SHORTEST", 1)
    digits = [each.id[0] for each in records]
    several = next(digit for digit in digits if digits.count(digit) > 1)
    with pytest.raises(UsageError, match="several are called") as caught:
        show_tuning(several, paths, 3)
    assert next(each.id for each in records if each.id[0] == several) in caught.value.why


@pytest.mark.parametrize("name", ["", "abc", "no digits", "%%%%", "____"])
def test_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    database = Database.open(tmp_path / "t.db")
    database.add([plain_record(SMALL)], [SMALL])
    with pytest.raises(UsageError, match="names neither"):
        show_tuning(name, [database.path], 3)
