"""A compile as a page: its data, packed, and the scripts that show it."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

from compiler import Profile, ViewReport, __version__, counted
from toolchain.console import jsonable
from toolchain.pages.page import Page, visible_texts
from toolchain.view.drawing import WIDTHS, draw_graph

_HERE = Path(__file__).parent
_SCRIPTS = ("model", "elements", "panzoom", "graph", "texts", "roofline", "details", "memory", "lists", "app")
"""In the order in which they are read: each uses those before it."""
_TEXTS = ("loops", "trace", "scheduled", "lowered", "source", "assembly")
"""Fields of a kernel that are unpacked when somebody looks at them."""


def view_page(report: ViewReport) -> Page:
    """The page of a compile; the same for the same report."""
    document = jsonable(report)
    texts = [{name: kernel.pop(name) for name in _TEXTS} for kernel in document["kernels"]]
    for kernel, its in zip(document["kernels"], texts, strict=True):
        kernel["texts"] = [name for name in _TEXTS if its[name]]
    drawing = {**jsonable(draw_graph(report)), "widths": WIDTHS}
    index = {**document, "drawing": drawing}
    return Page(
        template=_HERE / "view.html.j2",
        title=report.path.name,
        values={"report": report, "summary": _summary(report), "version": __version__},
        styles=[(_HERE / "view.css").read_text(encoding="utf-8")],
        scripts=[_HERE / f"{name}.js" for name in _SCRIPTS],
        data={"index": packed(index), "texts": [packed(one) for one in texts]},
    )


def _summary(report: ViewReport) -> str:
    """The line below the name."""
    calls, kernels = counted(len(report.steps), "call"), counted(len(report.kernels), "kernel")
    return " · ".join(
        (
            f"{report.target} ({report.arch})",
            f"{calls} of {kernels}",
            f"{report.flops / 1e9:.3g} GFLOP",
            _time(report.profile),
        )
    )


def _time(profile: Profile | None) -> str:
    if profile is None:
        return "not measured"
    threads = f" with {counted(profile.threads, 'thread')}" if profile.threads else ""
    device = f" on {profile.device}" if profile.device else ""
    return f"{profile.ms:.{0 if profile.ms >= 100 else 2}f} ms{threads}{device}, measured"


def packed(value: Any) -> str:
    """JSON, compressed, as text; what does not print in it is written as an escape that is shown."""
    text = json.dumps(visible_texts(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode("ascii")
