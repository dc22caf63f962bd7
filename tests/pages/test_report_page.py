"""The page of a report in a real browser: what it shows, opens, sorts and loads."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the extra `report` is not installed")

from tests.support.browser import Browser
from tests.support.records import HOSTILE, hostile_records, team_records
from toolchain.report.content import make_report
from toolchain.report.html import html_report

COLOURS = """return [...document.querySelectorAll("body, .state, figure text, .chart-fill-1")].map(
  (one) => getComputedStyle(one)).map((one) => one.color + one.fill + one.backgroundColor)"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(html_report(make_report(team_records(("resnet", "vgg")), "onnxruntime")))
    return path


def test_it_shows_opens_filters_and_loads_nothing(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert [one.text for one in browser.all("#families tbody th")] == ["resnet", "vgg", "unet"]
    (cell,) = [one for one in browser.all("#families button.cell") if "resnet50-v1-7" in one.text]
    assert [one.text for one in cell.find_elements("css selector", ".state")] == ["✓ verified", "✗ wrong"]
    cell.send_keys("\n")
    assert browser.find("#details-title").text == "2 cells"
    summaries = browser.all("dialog summary")
    assert [one.text for one in summaries] == [
        "resnet-9 on SYCL-NVIDIA ✓ verified",
        "resnet50-v1-7 on SYCL-NVIDIA ✗ wrong",
    ]
    summaries[1].click()
    shown = browser.find("dialog details[open]").text
    for part in (
        "outputs differ",
        "[0, 7]: nan, onnxruntime has 0.25",
        "not a number",
        "Tesla V100-32GB",
        "run-2",
    ):
        assert part in shown
    browser.find("#close").click()
    assert browser.run("return document.activeElement === arguments[0]", cell)
    browser.find("[data-filters=trials] input").send_keys("vgg16")
    assert len([one for one in browser.all("#trials tbody tr") if one.is_displayed()]) == 1
    assert browser.requests() == []
    assert browser.problems() == []


@pytest.mark.slow
def test_charts_are_drawn_and_named(browser: Browser, page: Path) -> None:
    browser.open(page)
    names = [one.get_attribute("aria-label") for one in browser.all("figure")]
    assert names == ["Latency: resnet", "Latency: vgg", "Speed-up: Speed-up to onnxruntime",
                     "History: resnet-9", "History: vgg-9"]  # fmt: skip
    assert all(one.rect["width"] > 300 for one in browser.all("figure svg"))
    labels = {one.text for one in browser.all("figure svg text")}
    assert {"SYCL-NVIDIA", "onnxruntime beside cuda-NVIDIA"} <= labels


@pytest.mark.slow
def test_it_sorts_by_time(browser: Browser, page: Path) -> None:
    browser.open(page)
    (heading,) = [one for one in browser.all("#trials thead th") if one.text.startswith("ms")]
    button = heading.find_element("css selector", "button")
    for reverse in (False, True):
        button.send_keys("\n")
        values = browser.run("return [...document.querySelectorAll('#trials td.number[data-value]')].filter("
                             "(one) => one.cellIndex === 5).map((one) => one.dataset.value)")  # fmt: skip
        known = [float(one) for one in values if one]
        assert known == sorted(known, reverse=reverse)
        assert values[len(known) :] == [""] * (len(values) - len(known))
    assert heading.get_attribute("aria-sort") == "descending"


@pytest.mark.slow
def test_on_a_phone_nothing_is_wider_than_the_page(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.phone()
    browser.open(page)
    assert not browser.scrolls_sideways()
    browser.find("#families button.cell").click()
    assert not browser.scrolls_sideways()
    assert browser.find("dialog").rect["width"] <= 390
    assert browser.screenshot(tmp_path / "phone.png").stat().st_size > 1000


@pytest.mark.slow
def test_dark_mode_changes_every_colour(browser: Browser, page: Path) -> None:
    browser.open(page)
    light = browser.run(COLOURS)
    browser.colours("dark")
    dark = browser.run(COLOURS)
    assert len(light) > 20
    assert [one for one, other in zip(light, dark, strict=True) if one == other] == []


@pytest.mark.slow
def test_every_control_has_a_name_and_tables_have_heads(browser: Browser, page: Path) -> None:
    browser.open(page)
    for one in browser.all("button, input, select, summary, [role=region]"):
        if one.is_displayed():
            assert one.accessible_name, one.get_attribute("outerHTML")
    assert browser.run("return document.querySelectorAll('td:first-child').length") == 0
    assert browser.run("return [...document.querySelectorAll('th')].filter((one) => !one.scope).length") == 0


@pytest.mark.slow
def test_hostile_names_are_shown_and_nothing_runs(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(html_report(make_report(hostile_records())))
    browser.open(path)
    assert browser.all("img, iframe, object, script[src]") == []
    assert HOSTILE[0] in {one.text for one in browser.all("#families tbody th")}
    for button in browser.all("#families button.cell"):
        browser.run("arguments[0].click()", button)
        assert browser.find("dialog pre").text
        browser.find("#close").click()
    assert browser.requests() == []
    assert browser.problems() == []
