"""Charts are the same bytes each time, show what they were given, and fit a page that allows no styles."""

from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree as ET

import pytest

from compiler import HostError

pytest.importorskip("matplotlib", reason="the extra `report` is not installed")

from toolchain import charts
from toolchain.charts import (
    Bar,
    BarChart,
    BarPanel,
    Chart,
    Line,
    LineChart,
    LinePoint,
    chart_element,
    chart_styles,
    draw_chart,
)

HOSTILE = "<script>$\\frac{x}$ \x00\ud800\u202e &amp; ☃"
BARS = BarChart(
    "Latency",
    "ms",
    (
        BarPanel("resnet50", (Bar("cpu", 8.0, 7.0, 9.0), Bar("sycl", 4.0, None, None, 1, alarming=True))),
        BarPanel(HOSTILE, (Bar(HOSTILE, 2.0, 1.0, math.nan, 99), Bar("nothing", math.nan))),
    ),
    reference=1.0,
)
LINES = LineChart(
    HOSTILE,
    "ms",
    tuple(f"run {i}" for i in range(10)),
    (
        Line("cpu", (LinePoint(0, 1.0, 0.9, 1.1), LinePoint(9, 2.0, 1.9, 2.1, alarming=True))),
        Line("none", ()),
    ),
)
LONG = "onnxruntime beside opencl-nvidia on a device with a long name"
WIDE = BarChart(
    LONG,
    "ms, median with its 95 % confidence interval",
    (
        BarPanel(LONG, (Bar("W" * 60, 1234567, 1.2e6, 1.24e6, alarming=True), Bar("x", 3.0))),
        BarPanel("none", ()),
    ),
)
MANY = LineChart(
    "",
    "ms, median with its 95 % confidence interval",
    ("a", "b"),
    tuple(
        Line(LONG, (LinePoint(0, 1e6 + i, 0.9e6, 1.1e6), LinePoint(1, 0.00123, 0.001, 0.002)))
        for i in range(9)
    ),
)
_SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: bytes) -> list[str]:
    return [one.text or "" for one in ET.fromstring(svg).iter(f"{_SVG}text")]


@pytest.mark.parametrize("chart", [BARS, LINES, BarChart("", "ms", ())], ids=["bars", "lines", "empty"])
def test_the_same_numbers_give_the_same_bytes(chart: Chart) -> None:
    svg = draw_chart(chart, "svg")
    assert draw_chart(chart, "svg") == svg
    assert not re.search(rb"20\d\d-\d\d|matplotlib", svg.replace(b'xmlns="http://www.w3.org/2000/svg"', b""))


def test_the_same_numbers_give_the_same_png() -> None:
    png = draw_chart(BARS, "png")
    assert png.startswith(b"\x89PNG")
    assert draw_chart(BARS, "png") == png


def test_bars_are_as_long_as_their_values() -> None:
    tree = ET.fromstring(draw_chart(BARS, "svg"))
    paths = [one for one in tree.iter(f"{_SVG}path") if re.search(r"chart-fill-[01]\b", one.get("class", ""))]
    long, short = ([float(x) for x in re.findall(r"[ML] ([\d.]+)", one.get("d", ""))] for one in paths[:2])
    assert max(long) - min(long) == pytest.approx(2 * (max(short) - min(short)), rel=1e-4)


def test_names_are_shown_as_they_are_and_never_read() -> None:
    shown = texts(draw_chart(BARS, "svg"))
    assert {"Latency", "resnet50", "cpu", "8", "4 (worse)", "ms"} <= set(shown)
    assert any(one.startswith("<script>$\\frac{x}$ \\x00\\ud800\\u202e") for one in shown)
    assert not any("nothing" in one for one in shown)


def test_colours_follow_the_page() -> None:
    element = chart_element(BARS, "first")
    assert "<style" not in element
    assert "style=" not in element
    used = set(re.findall(r"chart-(?:fill|stroke)-\w+", element))
    assert {"chart-fill-0", "chart-fill-1", "chart-fill-ink", "chart-stroke-grid", "chart-fill-alarm"} <= used
    styles = chart_styles()
    assert all(f".{one} {{" in styles for one in used)
    light, dark = (dict(re.findall(r"--chart-(\w+): (#\w+)", one)) for one in styles.splitlines()[:2])
    assert light.keys() == dark.keys()
    assert not set(light.values()) & set(dark.values())


def test_two_charts_of_a_page_share_no_identifier() -> None:
    found = []
    for prefix in ("a", "b"):
        element = chart_element(BARS, prefix)
        tree = ET.fromstring(element)
        identifiers = {one.get("id") for one in tree.iter() if one.get("id")}
        referred = set(re.findall(r"#([\w.-]+)\)?\"", element))
        assert identifiers <= {one for one in identifiers if one and one.startswith(f"{prefix}-")}
        assert {one for one in referred if not re.fullmatch("[0-9a-f]{6}", one)} == identifiers
        found.append(identifiers)
    assert found[0]
    assert not found[0] & found[1]


def test_a_setting_of_the_user_changes_nothing() -> None:
    import matplotlib as mpl

    before = draw_chart(BARS, "svg")
    with mpl.rc_context({"font.size": 30.0, "text.usetex": True, "axes.grid": True}):
        assert draw_chart(BARS, "svg") == before


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(HostError, match="matplotlib is not installed") as caught:
        draw_chart(BARS, "svg")
    assert "tk-toolchain[report]" in caught.value.hint


@pytest.mark.parametrize("chart", [BARS, LINES, WIDE, MANY], ids=["bars", "lines", "wide", "many"])
def test_no_text_is_cut(chart: Chart) -> None:
    """By what matplotlib finds that all of it takes, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with charts._drawn(chart) as figure:
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        taken, (width, height) = figure.get_tightbbox(canvas.get_renderer()), figure.get_size_inches()
    assert taken.x0 >= 0
    assert taken.y0 >= 0
    assert taken.x1 <= width
    assert taken.y1 <= height
