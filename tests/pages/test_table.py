"""Tables of pages in a real browser: sorted and filtered by mouse and keys, on a desk and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import Browser
from toolchain.pages.page import TABLE_SCRIPT, Page, render_page

pytestmark = pytest.mark.slow

TEMPLATE = """{% extends "page.html.j2" %}
{% block content %}
<div data-filters="t" hidden>
<input type="search" aria-label="Search">
<select data-among="states" aria-label="State"><option value="">any<option>wrong</select>
<select data-columns aria-label="Column"><option value="">all<option value="2">ms</select>
<output></output>
</div>
<div class="scroll" tabindex="0"><table id="t" data-sortable>
<thead><tr><th>name</th><th>note</th><th>ms</th><th data-unsorted>log</th></tr></thead>
<tbody>
{% for name, note, ms, states in rows %}
<tr data-states="{{ states }}"><th>{{ name }}</th><td>{{ note }}</td>
<td data-value="{{ ms }}">{{ ms }} ms</td>
<td>{{ "wide" * 40 }}</td></tr>
{% endfor %}
</tbody></table></div>
{% endblock %}
"""
ROWS = [
    ("net10", "b", 3.5, "verified"),
    ("net9", "a", 12, "wrong verified"),
    ("<b>net</b>", "", "", "not-run"),
    ("net2", "c", 1e-3, "wrong"),
]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "table.html.j2").write_text(TEMPLATE)
    path = tmp_path / "page.html"
    path.write_text(
        render_page(Page(tmp_path / "table.html.j2", "Rows", {"rows": ROWS}, scripts=[TABLE_SCRIPT]))
    )
    return path


def names(browser: Browser) -> list[str]:
    return [one.text for one in browser.all("tbody th") if one.is_displayed()]


def test_it_sorts_by_click_and_key(browser: Browser, page: Path) -> None:
    browser.open(page)
    buttons = browser.all("th button")
    assert [one.text for one in buttons] == ["name", "note", "ms"]
    buttons[2].click()
    assert names(browser) == ["net2", "net10", "net9", "<b>net</b>"]
    headings = browser.all("thead th")
    assert [one.get_attribute("aria-sort") for one in headings] == ["none", "none", "ascending", None]
    buttons[2].click()
    assert names(browser) == ["net9", "net10", "net2", "<b>net</b>"]
    assert headings[2].get_attribute("aria-sort") == "descending"
    buttons[0].send_keys("\n")
    assert names(browser) == ["<b>net</b>", "net2", "net9", "net10"]
    assert [one.get_attribute("aria-sort") for one in headings] == ["ascending", "none", "none", None]
    assert browser.requests() == []
    assert browser.problems() == []


def test_it_filters(browser: Browser, page: Path) -> None:
    browser.open(page)
    search = browser.find("input")
    search.send_keys("NET1")
    assert names(browser) == ["net10"]
    assert browser.find("output").text == "1 of 4 rows"
    search.clear()
    browser.find("select[data-among] option:last-child").click()
    assert names(browser) == ["net9", "net2"]
    browser.find("select[data-columns] option:last-child").click()
    assert [one.text for one in browser.all("thead th") if one.is_displayed()] == ["name", "ms"]


def test_what_is_wide_scrolls_in_itself(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.phone()
    browser.open(page)
    assert not browser.scrolls_sideways()
    assert browser.run("const s = document.querySelector('.scroll'); return s.scrollWidth > s.clientWidth")
    assert browser.screenshot(tmp_path / "phone.png").stat().st_size > 1000


def test_dark_mode_has_colours_of_its_own(browser: Browser, page: Path) -> None:
    script = "const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]"
    browser.open(page)
    light = browser.run(script)
    browser.colours("dark")
    dark = browser.run(script)
    assert len({*light, *dark}) == 4


def test_the_fixture_sees_requests_and_refusals(browser: Browser, tmp_path: Path) -> None:
    """So that their absence says something."""
    loading = tmp_path / "loading.html"
    loading.write_text("<img src='http://localhost:9/x.png'><script>undefinedName()</script>")
    browser.open(loading)
    assert browser.requests() == ["http://localhost:9/x.png"]
    assert any("undefinedName" in one for one in browser.problems())
    refused = tmp_path / "refused.html"
    refused.write_text(
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\">"
        "<style>p{color:red}</style><script>document.title = 'ran'</script>"
    )
    browser.open(refused)
    assert browser.driver.title != "ran"
    assert len([one for one in browser.problems() if "Content Security Policy" in one]) == 2
