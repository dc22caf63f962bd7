"""A page is one file that loads nothing, whatever its values hold."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from toolchain.pages.page import PAGES, TABLE_SCRIPT, Page, embedded_json, render_page

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "<!-- <script>",
    "]]>",
    "a\u202eb\x1b[31m\x00",
    "\ud800",
    "{{ 7 * 7 }} {% raw %}",
    "' onclick='x",
    "&lt;",
    "\u2028",
]
TEMPLATE = """{% extends "page.html.j2" %}
{% block content %}<p title="{{ text }}">{{ text }}</p>{% endblock %}
"""


class Parsed(HTMLParser):
    """Elements, attributes and texts as a parser of HTML sees them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._open:
            self._open = ""

    def handle_data(self, data: str) -> None:
        self.texts[self._open] = self.texts.get(self._open, "") + data


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "text.html.j2"
    path.write_text(TEMPLATE)
    return path


@pytest.mark.parametrize("text", HOSTILE)
def test_values_are_text_whatever_they_hold(text: str, template: Path) -> None:
    plain = Parsed(render_page(Page(template, "t", {"text": "plain"}, data={"d": {"plain": ["plain"]}})))
    page = render_page(Page(template, text, {"text": text}, data={"d": {text: [text]}}))
    found = Parsed(page)
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in plain.tags]
    (attributes,) = [attributes for tag, attributes in found.tags if tag == "p"]
    assert attributes.keys() == {"title"}
    assert all(one.isprintable() or one == "\n" for one in page)
    if text.isprintable():
        assert attributes["title"] == text
        assert found.texts["p"].strip() == text
        assert json.loads(found.texts["script"]) == {text: [text]}


def test_the_policy_allows_what_stands_in_the_page_and_nothing_else(template: Path) -> None:
    page = Parsed(render_page(Page(template, "t", {"text": ""}, ["p { color: red }"], [TABLE_SCRIPT])))
    (policy,) = [one["content"] for tag, one in page.tags if one.get("http-equiv")]
    assert policy is not None
    rules = dict(one.split(" ", 1) for one in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for name, element in (("style-src", "style"), ("script-src", "script")):
        digest = base64.b64encode(hashlib.sha256(page.texts[element].encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert "unsafe" not in policy


def test_nothing_is_loaded_from_anywhere(template: Path) -> None:
    page = render_page(Page(template, "t", {"text": ""}, scripts=[TABLE_SCRIPT]))
    assert re.findall(r"https?:|//[a-z]|url\(|@import|src=", page.replace("// ", "")) == []
    assert "<link" in page  # an empty icon, so that no browser asks for one


def test_files_of_the_package_do_not_end_the_element_that_they_stand_in() -> None:
    for path in (PAGES / "base.css", TABLE_SCRIPT):
        assert not re.search(r"</(style|script)|<!--", path.read_text(), re.IGNORECASE), path


def test_json_in_a_page_has_no_character_of_markup() -> None:
    assert not set("<>&") & set(embedded_json([*HOSTILE, {"</script x": "<!--"}]))


def test_numbers_that_json_has_not_become_text() -> None:
    assert json.loads(embedded_json({"a": math.nan, "b": [math.inf, 1.5, None, True]})) == {
        "a": "nan",
        "b": ["inf", 1.5, None, True],
    }


def test_a_missing_value_is_a_mistake_and_no_empty_text(template: Path) -> None:
    import jinja2

    with pytest.raises(jinja2.UndefinedError, match="text"):
        render_page(Page(template, "t", {}))
