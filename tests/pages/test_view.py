"""The page of a compile in a real browser: searched, expanded, read; on a phone, in the dark, and large."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import command
from tests.support.browser import Browser
from tests.support.views import HOSTILE, network_report
from toolchain.pages.page import render_page
from toolchain.view.page import view_page

pytestmark = pytest.mark.slow

_WAIT_SECONDS = 30
_LARGEST = 15_000_000


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + _WAIT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, "the page does not get there"
        time.sleep(0.05)
    return found


def show(browser: Browser, page: Path, fragment: str = "") -> None:
    browser.open(page)
    if fragment:
        browser.run("location.hash = arguments[0]", fragment)
    wait_for(lambda: browser.run("return document.body.dataset.ready"))


def headings(browser: Browser) -> list[str]:
    return [one.text for one in browser.all("#details h2")]


def search(browser: Browser, text: str) -> list[str]:
    box = browser.find("#search")
    box.clear()
    box.send_keys(text)
    return [one.text for one in browser.all("#found [role=option]")]


def untroubled(browser: Browser) -> bool:
    return browser.requests() == [] and browser.problems() == [] and not browser.scrolls_sideways()


def made(folder: Path, network: str) -> Path:
    assert command.tk("zoo", "make", network, cwd=folder).code == 0
    done = command.tk("view", f"{network}.onnx", cwd=folder, timeout=900)
    assert done.code == 0, done.err
    return folder / f"{network}.html"


@pytest.fixture(scope="module")
def squeezenet(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    return made(tmp_path_factory.mktemp("squeezenet"), "squeezenet")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large.html"
    path.write_text(render_page(view_page(network_report(steps=2000))))
    return path


def test_squeezenet_is_searched_expanded_and_read(browser: Browser, squeezenet: Path) -> None:
    show(browser, squeezenet)
    boxes = browser.all(".vertex.step")
    assert boxes
    assert "kernel 0" in boxes[0].text
    assert "ms" in boxes[0].text
    assert "blocks of" in browser.find(".edges").text
    assert "Conv_62" in search(browser, "conv_62")[0]
    browser.find("#search").send_keys("\n")
    assert headings(browser)[0].startswith("Step ")
    assert "Conv_62" in browser.find("#details").text
    assert len(browser.all(".vertex.selected")) == 1
    browser.run("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))",
                browser.find(".vertex.selected .opener"))  # fmt: skip
    assert "Conv Conv_62" in browser.find(".vertex.selected").text
    panes = wait_for(lambda: browser.all("#details .pane"))
    assert "tk_kernel.h" in panes[0].text
    assert "tk_k" in panes[1].text
    assert browser.all("#details .trace li")
    assert "of the roof" in browser.find("#details").text
    assert untroubled(browser)


def test_texts_are_chosen_and_loops_found(browser: Browser, squeezenet: Path) -> None:
    show(browser, squeezenet, "kernel-0")
    left = wait_for(lambda: browser.all("#details .pane"))[0]
    options = [one.get_attribute("value") for one in left.find_elements("css selector", "option")]
    assert options == ["loops", "trace", "scheduled", "lowered", "source", "assembly"]
    left.find_element("css selector", "option[value=lowered]").click()
    assert "func" in left.text
    loop = browser.find("#details .loop")
    label = loop.text.partition(":")[0]
    loop.click()
    assert f"{label}:" in browser.all("#details .pane")[1].text


def test_tabs_lists_and_memory(browser: Browser, squeezenet: Path) -> None:
    show(browser, squeezenet, "kernels")
    rows = browser.all("#view-kernels .canvas .row")
    assert len(rows) == int(browser.find("#view-kernels .long").get_attribute("aria-rowcount"))
    next(one for one in browser.all("#view-kernels .head button") if one.text == "ms").click()
    times = [float(one.text.split("\n")[3]) for one in browser.all("#view-kernels .canvas .row")[:5]]
    assert times == sorted(times, reverse=True)
    browser.find("#tab-memory").click()
    bars = browser.all("g.bar")
    browser.run("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", bars[0])
    assert "alive" in browser.find("#details").text
    browser.find("#tab-nodes").click()
    assert "MaxPool_2" in browser.find("#view-nodes").text
    browser.find("#tab-tensors").click()
    assert "data_0" in browser.find("#view-tensors").text
    assert untroubled(browser)


def test_fragments_and_keys(browser: Browser, squeezenet: Path) -> None:
    show(browser, squeezenet, "kernel-3")
    assert headings(browser)[0].startswith("Kernel 3:")
    body = browser.find("body")
    body.send_keys("n")
    wait_for(lambda: headings(browser)[0].startswith("Kernel 4:"))
    body.send_keys("/")
    assert browser.run("return document.activeElement.id") == "search"
    browser.find("#search").send_keys("pool\ue015\ue015\ue007")  # down, down, Enter
    wait_for(lambda: headings(browser)[0].startswith(("Kernel", "Step")) and "Pool" in headings(browser)[0])
    browser.run("document.activeElement.blur()")
    body.send_keys("\ue00c")  # Escape
    wait_for(lambda: not browser.find("#panel").is_displayed())
    browser.run("location.hash = 'kernel-999'")
    wait_for(lambda: "There is no kernel 999" in browser.find("#details").text)


def test_on_a_phone_in_the_dark(browser: Browser, squeezenet: Path) -> None:
    browser.phone()
    browser.colours("dark")
    for fragment in ("graph", "kernels", "nodes", "tensors", "memory", "kernel-0", "tensor-52"):
        show(browser, squeezenet, fragment)
        assert untroubled(browser), fragment
    background = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert sum(int(one) for one in background.removeprefix("rgb(").removesuffix(")").split(",")[:3]) < 150


def test_thousands_of_boxes(browser: Browser, large: Path) -> None:
    """What is not seen is not drawn, and what is looked for is found at once."""
    started = time.monotonic()
    show(browser, large)
    assert time.monotonic() - started < _WAIT_SECONDS
    assert len(browser.all(".vertex")) < 200
    assert search(browser, "net 1999")[0] == "node net 1999 Conv"
    browser.find("#search").send_keys("\n")
    wait_for(lambda: browser.all(".vertex.selected"))
    assert "1999:" in browser.find(".vertex.selected").text
    browser.find("#tab-nodes").click()
    assert len(wait_for(lambda: browser.all("#view-nodes .canvas .row"))) < 100
    browser.run("document.querySelector('#view-nodes .long').scrollTop = 1e9")
    wait_for(lambda: "net gone" in browser.find("#view-nodes .canvas").text)
    assert "merged into" in browser.find("#view-nodes .canvas").text
    browser.find("#tab-memory").click()
    assert len(browser.all("g.bar")) == 2000
    assert untroubled(browser)


def test_hostile_names_run_nothing(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "hostile.html"
    page.write_text(render_page(view_page(network_report(steps=9, name=HOSTILE))))
    for fragment in (
        "graph",
        "kernels",
        "nodes",
        "tensors",
        "memory",
        "step-1",
        "kernel-1",
        "tensor-2",
        "node-3",
    ):
        show(browser, page, fragment)
        assert untroubled(browser), fragment
        assert browser.all("main img") == []
    assert search(browser, "onerror")
    assert "\x1b" not in browser.find("body").text
    assert "<img src=x onerror" in browser.find("#details").text


def test_bert(browser: Browser, tmp_path: Path) -> None:
    page = made(tmp_path, "bert-base")
    assert page.stat().st_size < _LARGEST
    show(browser, page)
    assert "blocks of" in browser.find(".edges").text or "row-major" in browser.find(".edges").text
    assert len(search(browser, "softmax")) > 5
    browser.find("#search").send_keys("\n")
    assert "Softmax" in headings(browser)[0]
    wait_for(lambda: browser.all("#details .pane"))
    next(one for one in browser.all("#view-graph .buttons button") if one.text == "expand all").click()
    assert len(browser.all(".vertex .member")) > 20
    assert untroubled(browser)
