"""`tk view` as typed: a page or JSON of a model and of a library, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import command
from tests.support.command import Result

Tk = Callable[..., Result]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("view")
    assert command.tk("zoo", "make", "mnist", cwd=folder).code == 0
    assert command.tk("compile", "mnist.onnx", cwd=folder).code == 0
    return folder


def test_a_page_of_a_model(folder: Path) -> None:
    done = command.tk("view", "mnist.onnx", cwd=folder)
    assert done.code == 0, done.err
    line = r"mnist\.html  \([\d.]+ kB\)\n  \d+ kernels in \d+ calls, [\d.]+ ms an inference\n"
    assert re.fullmatch(line, done.out)
    page = (folder / "mnist.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "mnist.onnx" in page


def test_a_page_of_a_library_says_what_is_missing(folder: Path) -> None:
    done = command.tk("view", "mnist.so", "-o", "so.html", "--no-profile", cwd=folder)
    assert done.code == 0, done.err
    assert "not measured" in done.out
    assert "not in the page: layouts: a library does not say" in done.err
    assert "no measurement was asked for (--no-profile)" in (folder / "so.html").read_text()


def test_json_has_the_same_and_writes_no_page(folder: Path) -> None:
    done = command.tk("view", "mnist.onnx", "--no-profile", "--json", "--arch", "x86-64-v3", cwd=folder)
    assert done.code == 0, done.err
    assert done.json["arch"] == "x86-64-v3"
    assert {one["what"] for one in done.json["unseen"]} == {"times"}
    assert all(one["source"] and one["assembly"] and one["lowered"] for one in done.json["kernels"])
    assert not list(folder.glob("*x86*"))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("missing.onnx",), 3, "cannot read a file"),
        (("mnist.onnx", "-o", "none/page.html"), 2, "the folder of the result does not exist"),
        (("mnist.onnx", "-o", "."), 2, "the output is a directory"),
        (("mnist.onnx", "-o", "./mnist.onnx"), 2, "the page would replace what it shows"),
        (("mnist.so", "--arch", "x86-64-v3"), 2, "a library is shown as it was compiled"),
        (("mnist.onnx", "--target", "cpuu"), 2, "cpuu"),
        (("text.onnx",), 3, "no valid ONNX model"),
        (("damaged.so",), 3, "library"),
    ],
)
def test_refusals(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    (folder / "text.onnx").write_text("no model")
    (folder / "damaged.so").write_bytes(b"\x7fELF damaged")
    done = command.tk("view", *words, cwd=folder)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert "Traceback" not in done.err
