"""The page of a compile: its data come back whole, hostile names stay text, scripts make no markup."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from compiler.core.process import run
from tests.support.views import HOSTILE, library_report, network_report
from toolchain.console import jsonable
from toolchain.pages.page import render_page
from toolchain.view.drawing import draw_graph
from toolchain.view.page import view_page

SCRIPTS = sorted((Path(__file__).parents[3] / "toolchain" / "view").glob("*.js"))
FORBIDDEN = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|\bfetch\b|XMLHttp"


class Tags(HTMLParser):
    """Elements of a page, and the texts of those with an id."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: dict[str, str] = {}
        self._id = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self._id = dict(attrs).get("id") or ""

    def handle_data(self, data: str) -> None:
        if self._id:
            self.texts[self._id] = self.texts.get(self._id, "") + data


def unpacked(text: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_the_data_come_back_whole() -> None:
    report = network_report(steps=30)
    texts = Tags(render_page(view_page(report))).texts
    index = unpacked(json.loads(texts["index"]))
    packed = [unpacked(one) for one in json.loads(texts["texts"])]
    wanted = jsonable(report)
    for kernel, its in zip(wanted["kernels"], packed, strict=True):
        assert its == {name: kernel.pop(name) for name in its}
    for kernel in index["kernels"]:
        assert kernel.pop("texts") == ["loops", "trace", "source", "assembly"]
    assert {name: index[name] for name in wanted} == wanted


def test_it_is_the_same_each_time() -> None:
    report = network_report(steps=5)
    assert render_page(view_page(report)) == render_page(view_page(report))


def test_hostile_names_stay_text() -> None:
    plain = render_page(view_page(network_report(steps=4)))
    page = render_page(view_page(network_report(steps=4, name=HOSTILE)))
    assert Tags(page).tags == Tags(plain).tags
    assert Tags(page).attributes == Tags(plain).attributes
    assert not [one for one in Tags(page).attributes if one.startswith("on") or one == "style"]
    data = json.dumps(unpacked(json.loads(Tags(page).texts["index"])), ensure_ascii=False)
    assert HOSTILE.partition("\x1b")[0] in json.loads(data)["inputs"][0]["name"]
    assert all(one.isprintable() for one in data)


def test_its_size_follows_from_its_kernels() -> None:
    """A thousand calls of a few kernels are a small page."""
    assert len(render_page(view_page(network_report(steps=1000)))) < 400_000


def test_every_tensor_between_boxes_is_an_edge() -> None:
    report = network_report(steps=12)
    drawn = draw_graph(report)
    kinds = [one.kind for one in drawn.vertices]
    assert (kinds.count("step"), kinds.count("input"), kinds.count("output")) == (12, 1, 1)
    ends = [(drawn.vertices[one.lower], one.tensor) for one in drawn.edges]
    into = {(lower.kind, lower.ref, tensor) for lower, tensor in ends}
    reads = {("step", step.number, tensor) for step in report.steps for tensor in step.reads}
    assert into == reads | {("output", 0, report.output_tensors[0])}
    for edge in drawn.edges:
        maker = drawn.vertices[edge.upper]
        assert maker.kind == "input" or edge.tensor in report.steps[maker.ref].writes


def test_a_library_is_drawn_in_order() -> None:
    report = library_report(steps=5)
    drawn = draw_graph(report)
    assert [one.layer for one in drawn.vertices] == [0, 1, 2, 3, 4]
    assert [(one.upper, one.lower, one.tensor) for one in drawn.edges] == [(n, n + 1, None) for n in range(4)]
    page = render_page(view_page(report))
    assert "What this page lacks (1)" in page


def test_an_empty_model_has_a_page() -> None:
    report = replace(library_report(steps=0), kernels=())
    assert "0 calls of 0 kernels" in render_page(view_page(report))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.name)
def test_scripts_make_no_markup_and_load_nothing(script: Path) -> None:
    text = script.read_text()
    assert not re.search(FORBIDDEN, text)
    assert set(re.findall(r"https?://[^\"'\s]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert '"use strict";' in text


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda one: one.name)
def test_scripts_parse(script: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    done = run([node, "--check", str(script)])
    assert done.returncode == 0, done.stderr
