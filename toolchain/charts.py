"""Charts as SVG and PNG, drawn by matplotlib: the same bytes for the same numbers.

An SVG keeps its texts as text. Its colours stand there twice: as attributes, for programs that show images,
and as classes that `chart_styles` describes, so that a page or a browser shows them light or dark.
"""

from __future__ import annotations

import importlib.util
import io
import math
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from compiler import HostError, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ChartForm = Literal["svg", "png"]

# Light and dark; told apart by people who see few colours, too (Okabe and Ito, "Color Universal Design").
_SERIES = (
    ("#0072b2", "#56b4e9"), ("#d55e00", "#f0883e"), ("#009e73", "#2fc29a"), ("#a3527f", "#dd9bc1"),
    ("#7a5c00", "#e0c050"), ("#5b4fc4", "#a99ff5"), ("#6b7280", "#9aa4b2"),
)  # fmt: skip
_INK, _GRID, _ALARM = ("#1f2328", "#e6edf3"), ("#d0d7de", "#3d444d"), ("#b3001b", "#ff7b72")
_COLOURS = {"ink": _INK, "grid": _GRID, "alarm": _ALARM} | {str(i): one for i, one in enumerate(_SERIES)}
_CLASS_OF = {light: name for name, (light, _) in _COLOURS.items()}
SERIES_COLOURS = len(_SERIES)
"""How many series have a colour of their own; the next begin anew."""

# All in inches. Margins follow from the texts, which are measured: asking matplotlib for a layout that fits
# ("constrained") draws everything several times.
_WIDTH, _BAR, _LINES = 7.5, 0.26, 2.9
_EDGE, _PAD = 0.1, 0.08
_SUPTITLE, _PANEL_TITLE, _TICKS, _UNIT, _LEGEND_ROW = 0.34, 0.27, 0.25, 0.2, 0.18
_ROOM_BEYOND = 0.14  # of the longest bar: for its value
_POINTS_OF_TITLE, _POINTS_OF_TICKS, _POINTS_OF_SMALL = 9.5, 9.0, 8.0
_MOST_LABEL = 40
_Box = tuple[float, float, float, float]
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tk",
    "text.parse_math": False,  # names are no formulas
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib
    "font.size": _POINTS_OF_TICKS,
    "text.color": _INK[0],
    "axes.edgecolor": _INK[0],
    "axes.labelcolor": _INK[0],
    "axes.titlesize": _POINTS_OF_TITLE,
    "axes.titlelocation": "left",
    "xtick.color": _INK[0],
    "ytick.color": _INK[0],
    "grid.color": _GRID[0],
    "legend.frameon": False,
    "savefig.dpi": 150,
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar, with the interval of its value where it has one. series: by which it is coloured."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    series: int = 0
    alarming: bool = False


@dataclass(frozen=True, slots=True)
class BarPanel:
    """Bars on one axis from zero, under a title."""

    title: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class BarChart:
    """Panels below each other. reference: a value that a line marks, as 1 for a speed-up."""

    title: str
    unit: str
    panels: tuple[BarPanel, ...]
    reference: float | None = None


@dataclass(frozen=True, slots=True)
class LinePoint:
    """A value at one of the chart's steps, with its interval. alarming: marked as got worse."""

    step: int
    value: float
    low: float
    high: float
    alarming: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """Points of one series, from left to right."""

    label: str
    points: tuple[LinePoint, ...]


@dataclass(frozen=True, slots=True)
class LineChart:
    """Lines over steps, as runs one after the other."""

    title: str
    unit: str
    steps: tuple[str, ...]
    lines: tuple[Line, ...]


Chart = BarChart | LineChart


def draw_chart(chart: Chart, form: ChartForm) -> bytes:
    """A chart as a file of its own; raises HostError when matplotlib is not installed."""
    if form == "svg":
        return _standalone(_svg_tree(chart, prefix="chart"))
    stream = io.BytesIO()
    with _drawn(chart) as figure:
        figure.savefig(stream, format="png", facecolor="white", metadata={"Software": None})
    return stream.getvalue()


def chart_element(chart: Chart, prefix: str) -> str:
    """A chart as an SVG element for a page that has `chart_styles`; raises as `draw_chart` does.

    prefix: begins the identifiers in it, and is no other chart's of the page.
    """
    return ET.tostring(_svg_tree(chart, prefix), encoding="unicode")


def chart_styles() -> str:
    """CSS for the colours of charts, light and dark."""
    rules = [f":root {{ {_variables(0)} }}",
             f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(1)} }} }}"]  # fmt: skip
    for name in _COLOURS:
        rules += [f".chart-fill-{name} {{ fill: var(--chart-{name}); }}",
                  f".chart-stroke-{name} {{ stroke: var(--chart-{name}); }}"]  # fmt: skip
    return "\n".join(rules)


def _variables(scheme: int) -> str:
    return " ".join(f"--chart-{name}: {both[scheme]};" for name, both in _COLOURS.items())


def require_matplotlib() -> None:
    """Raise HostError where charts could not be drawn, before what they would show takes time."""
    if importlib.util.find_spec("matplotlib") is None:
        raise HostError("matplotlib is not installed", hint="pip install 'tk-toolchain[report]'")


@contextmanager
def _drawn(chart: Chart) -> Iterator[Figure]:
    """The figure, under settings of ours alone, whatever the user's matplotlibrc says."""
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)  # type: ignore[arg-type]  # keys are one of a list there
        figure = Figure(figsize=(_WIDTH, 1.0))
        top = _EDGE + (_SUPTITLE if chart.title else 0.0)
        if isinstance(chart, BarChart):
            _draw_panels(figure, chart, top)
        else:
            _draw_lines(figure, chart, top)
        if chart.title:
            high = 1 - _EDGE / figure.get_figheight()
            title = _label(chart.title, 80)
            figure.suptitle(title, x=0.01, y=high, ha="left", va="top", fontsize=11, weight="bold")
        yield figure


def _widest(texts: Iterable[str], points: float) -> float:
    """Inches that the widest of these texts takes; 0 without any."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties()))
    font.set_size(points, 72.0)
    widths = [0.0]
    for text in texts:
        font.set_text(text)
        widths.append(font.get_width_height()[0] / 64 / 72)  # in 64ths of a pixel, 72 of which are an inch
    return max(widths) * 1.03  # glyphs are drawn at whole pixels


def _box(figure: Figure, left: float, right: float, above: float, height: float) -> _Box:
    """Where axes are: by distances from the left, right and upper edge of the figure, and their height."""
    whole = figure.get_figheight()
    return left / _WIDTH, 1 - (above + height) / whole, (_WIDTH - left - right) / _WIDTH, height / whole


def _draw_panels(figure: Figure, chart: BarChart, above: float) -> None:
    panels = chart.panels or (BarPanel("nothing was timed", ()),)
    bars = [_finite(panel) for panel in panels]
    heights = [_BAR * max(1, len(some)) for some in bars]
    figure.set_figheight(
        above + sum(heights) + (_PANEL_TITLE + _TICKS + _PAD) * len(panels) + _UNIT + _EDGE - _PAD
    )
    every = [one for some in bars for one in some]
    left = 2 * _EDGE + _widest((_label(one.label) for one in every), _POINTS_OF_TICKS) + _PAD
    part = _ROOM_BEYOND / (1 + _ROOM_BEYOND)  # of the axes, beyond the longest bar
    needed = _widest(map(_value_words, every), _POINTS_OF_SMALL) + _EDGE + _PAD
    right = max(_EDGE + _PAD, (needed - part * (_WIDTH - left)) / (1 - part))
    for panel, some, height in zip(panels, bars, heights, strict=True):
        axis = figure.add_axes(_box(figure, left, right, above + _PANEL_TITLE, height))
        title = _label(panel.title, 80)
        too_long = max(0.0, _widest([title], _POINTS_OF_TITLE) + left + _EDGE - _WIDTH)
        axis.set_title(title, x=-min(too_long, left - _EDGE) / (_WIDTH - left - right))
        _draw_bars(axis, some, chart.reference)
        above += _PANEL_TITLE + height + _TICKS + _PAD
    figure.axes[-1].set_xlabel(chart.unit)


def _finite(panel: BarPanel) -> list[Bar]:
    return [one for one in panel.bars if math.isfinite(one.value)]


def _value_words(bar: Bar) -> str:
    return f"{bar.value:.3g}" + (" (worse)" if bar.alarming else "")


def _draw_bars(axis: Axes, bars: Sequence[Bar], reference: float | None) -> None:
    axis.set_yticks(range(len(bars)), [_label(one.label) for one in bars])
    axis.set_ylim(len(bars) - 0.4, -0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="x", linewidth=0.6)
    axis.set_axisbelow(True)
    right = [_end(one) for one in bars]
    axis.set_xlim(0, (max([*right, reference or 0.0]) or 1.0) * (1 + _ROOM_BEYOND))
    values, places = [one.value for one in bars], range(len(bars))
    axis.barh(places, values, height=0.66, color=[_SERIES[one.series % len(_SERIES)][0] for one in bars])
    axis.errorbar(values, places, xerr=_reach(bars), fmt="none", ecolor=_INK[0], capsize=3, elinewidth=1)
    for place, one in enumerate(bars):
        axis.annotate(
            _value_words(one), (_end(one), place), (4, 0), textcoords="offset points", va="center",
            fontsize=_POINTS_OF_SMALL, color=_ALARM[0] if one.alarming else _INK[0],
        )  # fmt: skip
    if reference is not None:
        axis.axvline(reference, color=_INK[0], linewidth=1, linestyle="--")


def _reach(shown: Sequence[Bar | LinePoint]) -> list[list[float]]:
    """How far intervals reach below and above their values; NaN where there is none."""
    below = [math.nan if one.low is None else max(0.0, one.value - one.low) for one in shown]
    above = [math.nan if one.high is None else max(0.0, one.high - one.value) for one in shown]
    return [below, above]


def _end(bar: Bar) -> float:
    """Where a bar ends, with its interval."""
    return bar.high if bar.high is not None and math.isfinite(bar.high) else bar.value


def _draw_lines(figure: Figure, chart: LineChart, above: float) -> None:
    labels = [_label(one.label) for one in chart.lines]
    columns = max(1, min(3, int((_WIDTH - 0.6) / (_widest(labels, _POINTS_OF_SMALL) + 0.6))))
    legend = _LEGEND_ROW * math.ceil(len(labels) / columns)
    above += _PAD  # of large numbers, their common factor stands above the axes
    figure.set_figheight(above + _LINES + _TICKS + _PAD + legend + _EDGE)
    axis = figure.add_axes(_box(figure, _EDGE, _EDGE, above, _LINES))
    _draw_series(axis, chart)
    ticks = axis.yaxis.get_major_formatter().format_ticks(list(axis.get_yticks()))
    left = _EDGE + _UNIT + _widest(ticks, _POINTS_OF_TICKS) + 2 * _PAD
    axis.set_position(_box(figure, left, _EDGE, above, _LINES))
    if labels:
        axis.legend(loc="upper left", bbox_to_anchor=(0, -_TICKS / _LINES), ncols=columns,
                    fontsize=_POINTS_OF_SMALL, borderaxespad=0)  # fmt: skip


def _draw_series(axis: Axes, chart: LineChart) -> None:
    for number, line in enumerate(chart.lines):
        colour = _SERIES[number % len(_SERIES)][0]
        points = [one for one in line.points if math.isfinite(one.value)]
        steps, values = [one.step for one in points], [one.value for one in points]
        style = ("-", "--", ":", "-.")[number // len(_SERIES) % 4]
        axis.errorbar(steps, values, yerr=_reach(points), color=colour, linestyle=style, marker="o",
                      markersize=4, linewidth=1.4, capsize=3, label=_label(line.label))  # fmt: skip
        worse = [one for one in points if one.alarming]
        axis.plot([one.step for one in worse], [one.value for one in worse], "o", markersize=11,
                  markerfacecolor="none", markeredgecolor=_ALARM[0], markeredgewidth=1.6)  # fmt: skip
    axis.set_ylim(bottom=0)
    axis.set_xlim(-0.5, max(1, len(chart.steps)) - 0.5)
    shown = range(0, len(chart.steps), max(1, math.ceil(len(chart.steps) / 8)))
    axis.set_xticks(list(shown), [_label(chart.steps[i], 16) for i in shown])
    axis.set_ylabel(chart.unit)
    axis.grid(axis="y", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)


def _label(text: str, most: int = _MOST_LABEL) -> str:
    shown = visible(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _svg_tree(chart: Chart, prefix: str) -> ET.Element:
    stream = io.BytesIO()
    with _drawn(chart) as figure:
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    for name, uri in (("", _SVG), ("xlink", _XLINK)):
        ET.register_namespace(name, uri)
    root = ET.fromstring(stream.getvalue())  # noqa: S314 - drawn here
    _without(root, lambda one: one.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"))
    used = set(re.findall(r"#([\w.-]+)", ET.tostring(root, encoding="unicode")))
    for element in root.iter():
        _describe_by_attributes(element)
        _name_apart(element, prefix, used)
    width, height = (root.attrib.pop(name).removesuffix("pt") for name in ("width", "height"))
    root.attrib |= {"role": "img", "aria-label": visible(chart.title), "width": width, "height": height,
                    "stroke-linejoin": "round", "stroke-linecap": "butt"}  # fmt: skip
    return root


def _standalone(root: ET.Element) -> bytes:
    style = ET.Element(f"{{{_SVG}}}style")
    style.text = f":root {{ color-scheme: light dark; }}\n{chart_styles()}"
    root.insert(0, style)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _without(element: ET.Element, unwanted: Callable[[ET.Element], bool]) -> None:
    for child in list(element):
        if unwanted(child):
            element.remove(child)
        else:
            _without(child, unwanted)


def _describe_by_attributes(element: ET.Element) -> None:
    """Attributes in place of a `style`, which a page's policy does not allow; colours get classes, too."""
    declarations = [one.partition(":") for one in element.attrib.pop("style", "").split(";") if one.strip()]
    element.attrib |= {name.strip(): value.strip() for name, _, value in declarations}
    classes = [
        f"chart-{name}-{_CLASS_OF[element.attrib[name].lower()]}"
        for name in ("fill", "stroke")
        if element.attrib.get(name, "").lower() in _CLASS_OF
    ]
    if classes:
        element.attrib["class"] = " ".join(classes)


def _name_apart(element: ET.Element, prefix: str, used: Sequence[str] | set[str]) -> None:
    """Identifiers that no other chart of a page has; those that nothing refers to go."""
    if (own := element.attrib.pop("id", "")) in used and own:
        element.attrib["id"] = f"{prefix}-{own}"
    for name, value in element.attrib.items():
        if name.endswith("href") or value.startswith("url("):
            element.attrib[name] = value.replace("#", f"#{prefix}-")
