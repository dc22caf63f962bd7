"""docs/lint.md is what the rules say."""

from __future__ import annotations

import pytest

from tests.support.sources import ROOT
from toolchain.lint.page import rules_page

PAGE = ROOT / "docs" / "lint.md"


def test_page(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(rules_page())
    assert PAGE.read_text() == rules_page(), "run `bin/just golden` and review what it writes"
