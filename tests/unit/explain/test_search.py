"""The search itself: patterns, lines as they come, hostile texts, order, what is suggested."""

from __future__ import annotations

import io
import time
import tracemalloc
import types
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import pytest
import yaml

from toolchain.explain.causes import Cause, known_causes, ranked
from toolchain.explain.pattern import comparable, read_pattern
from toolchain.explain.search import NEAR_LINES, Search
from toolchain.explain.text import BLOCK_BYTES, blocks, without_prefix
from toolchain.explain.unknown import looks_wrong, skeleton, suggested_pattern
from toolchain.recipes.schema import Issues


def issue(name: str, *patterns: str, **other: Any) -> Any:
    fields = {
        "together": (),
        "cause": "why",
        "evidence": "where",
        "action": "do",
        "level": "error",
        "follows": (),
    }
    return types.SimpleNamespace(id=name, patterns=patterns, **{**fields, **other})


def found(text: bytes, *issues: Any) -> list[tuple[str, int, int]]:
    search = Search(issues).read(io.BytesIO(text))
    return [(issues[one.issue].id, one.first.number, one.times) for one in search.found()]


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        ("no space left", "x: No space left on device", True),
        ("no space left", "no spaces left", False),
        ("no  space left", "no   space\tleft", True),
        ("fetch*404", "E: Failed to fetch http://a/b  404  Not Found", True),
        ("fetch*404", "404 while fetching", False),
        ("Name: *ILLEGAL", "  Name:            CUDA_ERROR_ILLEGAL_ADDRESS", True),
        ("a.b(c)+ [x]", "say a.b(c)+ [x]", True),
        ("a.b(c)+ [x]", "say aXb(c)+ [x]", False),
        ("word nan ", "the word nan", True),
        ("word nan ", "the word nano", False),
        (
            "'convertImpl'",
            "no function \N{LEFT SINGLE QUOTATION MARK}convertImpl\N{RIGHT SINGLE QUOTATION MARK}",
            True,
        ),
        ("ERROR: value", "Error\N{FULLWIDTH COLON}value", False),
        ("ERROR:value", "Error\N{FULLWIDTH COLON}value", True),
        ("*fatal*", "a fatal thing", True),
    ],
)
def test_patterns(pattern: str, line: str, expected: bool) -> None:
    assert bool(found(line.encode(), issue("one", pattern))) == expected


@pytest.mark.parametrize("pattern", ["* * *", "a b c d e", "abc*def", ""])
def test_a_pattern_needs_a_word(pattern: str) -> None:
    with pytest.raises(ValueError, match="four characters"):
        read_pattern(pattern)


def test_many_stars_take_no_time() -> None:
    """An expression `.*a.*a...` would try every way to share out the line."""
    pattern = read_pattern("aaaa" + "*a" * 60 + "*b")
    start = time.process_time()
    assert not pattern.is_in(comparable(b"a" * 100_000))
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    "text",
    [
        b"1\n2\n\x1b[1m\x1b[31merror: \x1b[0mno space\x1b[K left\n",
        b"1\n2\n 10 %\r 20 %\rerror: no space left\r 30 %\n",
        b"1\r\n2\r\nno space left\r\n",
        "1\n2\nno space left\n".encode("utf-16"),
        "1\n2\nno space left\n".encode("utf-16-be").join([b"\xfe\xff", b""]),
        b"1\n\x00\xff\xfe\nno\x00 space left",
        b"1\n2\n\x1b]0;title\x07no space left\x1b[m",
        "1\n错误\nno space left".encode("gbk"),
    ],
)
def test_lines_as_they_come(text: bytes) -> None:
    assert found(text, issue("full", "no space left")) == [("full", 3, 1)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#12 3.4 ptxas error", "ptxas error"),
        ("2026-11-10T10:00:01.123Z error", "error"),
        ("2026-11-10 10:00:01,123 error", "error"),
        ("[2026-11-10T10:00:01+02:00] error", "error"),
        ("web-1  | [10:00:01] error", "error"),
        ("2026 errors", "2026 errors"),
    ],
)
def test_what_builders_put_before_a_line(line: str, expected: str) -> None:
    assert without_prefix(line) == expected


def test_lines_that_belong_together() -> None:
    both = issue("pair", together=(("PI CUDA ERROR", "INVALID_VALUE"),))
    near = b"x\n" * (NEAR_LINES - 1)
    assert found(b"PI CUDA ERROR\n" + near + b"INVALID_VALUE\n", both) == [("pair", 1, 1)]
    assert found(b"PI CUDA ERROR\n" + near + b"x\nINVALID_VALUE\n", both) == []
    assert found(b"INVALID_VALUE\nPI CUDA ERROR\n", both) == [("pair", 1, 1)]
    assert found(b"PI CUDA ERROR\nPI CUDA ERROR\n", both) == []
    assert found(b"PI CUDA ERROR\nINVALID_VALUE\n" * 3, both) == [("pair", 1, 3)]


def test_numbers_of_lines_across_blocks() -> None:
    line = b"x" * 99 + b"\n"
    text = line * 30_000 + b"no space left\n" + line * 30_000 + b"no space left"
    assert len(text) > 4 * BLOCK_BYTES
    assert found(text, issue("full", "no space left")) == [("full", 30_001, 2)]


def parts(size: int, part: bytes) -> Iterator[bytes]:
    for _ in range(size // len(part)):
        yield part


class Endless(io.RawIOBase):
    """A stream that is not in memory."""

    def __init__(self, size: int, part: bytes) -> None:
        self._parts = parts(size, part)

    def read(self, size: int = -1) -> bytes:
        del size
        return next(self._parts, b"")


@pytest.mark.parametrize(
    "part",
    [
        b"a" * BLOCK_BYTES,
        bytes(BLOCK_BYTES),
        (b"\xff" * 99 + b"\x1b[") * (BLOCK_BYTES // 101),
        pytest.param(b"no space left " * 70_000, marks=pytest.mark.slow),
    ],
    ids=["one line", "zero bytes", "escapes", "one line of matches"],
)
def test_a_hostile_line_takes_little_memory(part: bytes) -> None:
    def peak(count: int) -> int:
        tracemalloc.start()
        try:
            search = Search([issue("full", "no space left")])
            search.read(cast("BinaryIO", Endless(count * BLOCK_BYTES, part)))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(6) < 1.2 * peak(3)


def test_a_match_where_a_long_line_is_cut() -> None:
    for place in (BLOCK_BYTES - 7, 2 * BLOCK_BYTES - 5):
        text = b"a" * place + b" no space left " + b"a" * BLOCK_BYTES
        assert found(text, issue("full", "no space left")) == [("full", 1, 1)]


def test_a_line_counts_once_however_long_it_is() -> None:
    part = b" no space left " + b"a" * BLOCK_BYTES
    assert found(part * 3 + b"\n" + part, issue("full", "no space left")) == [("full", 1, 2)]


def test_utf_16_is_decoded() -> None:
    text = "\u0a0a\nERROR\uff1avalue".encode("utf-16")
    assert found(text, issue("one", "ERROR:value")) == [("one", 2, 1)]


def test_shown_of_a_long_line_is_the_place() -> None:
    search = Search([issue("full", "no space left")])
    search.feed(b"a" * 5000 + b" no space left " + b"b" * 5000)
    shown = search.found()[0].first.text
    assert "no space left" in shown
    assert len(shown) <= 300


@pytest.mark.slow
def test_a_large_log_takes_seconds() -> None:
    from toolchain.recipes.catalog import load_issues

    line = b"[2811/4913] Building CXX object lib/Target/NVPTX/CMakeFiles/LLVM.dir/AsmPrinter.cpp.o error\n"
    block = line * (BLOCK_BYTES // len(line))
    search = Search(load_issues())
    start = time.process_time()
    for _ in range(100):
        search.feed(block)
    assert time.process_time() - start < 10
    assert search.found() == ()


def order(text: str, *issues: Any) -> list[tuple[str, str]]:
    causes: tuple[Cause, ...] = known_causes(text.split("\n"), issues)
    return [(one.issue, one.order) for one in causes]


def test_the_root_cause_comes_first() -> None:
    first, second = issue("a", "first error"), issue("b", "second error")
    crash = issue("crash", "segmentation", follows=("b",))
    warning = issue("w", "a warning", level="warning")
    text = "a warning\nsegmentation\nfirst error\nsecond error"
    assert order(text, crash, warning, second, first) == [
        ("a", "the first error"), ("b", "a later error"), ("w", "a warning"), ("crash", "follows from b"),
    ]  # fmt: skip
    assert order("segmentation\nfirst error", crash, first)[0] == ("crash", "the first error")


def test_in_one_line_the_record_that_stands_first_comes_first() -> None:
    ours, theirs = issue("ours", "no space left"), issue("theirs", "no space")
    assert [one for one, _ in order("no space left", ours, theirs)] == ["ours", "theirs"]
    assert [one for one, _ in order("no space left", theirs, ours)] == ["theirs", "ours"]


def test_nothing() -> None:
    assert ranked((), ()) == ()
    assert list(blocks(io.BytesIO(b""))) == []
    assert found(b"", issue("full", "no space left")) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x.c:1: error: nope", True),
        ("make: *** [x] Error 1", True),
        ("FAILED tests/test_x.py", True),
        ("RuntimeError: no", True),
        ("Segmentation fault (core dumped)", True),
        ("3 passed, 0 failed", False),
        ("errors: 0", False),
        ("Building error.cpp.o", False),
        ("no errors found", False),
        ("warning: error handling is odd", False),
        ("test_error_is_reported PASSED", False),
        ("done", False),
    ],
)
def test_what_looks_like_an_error(line: str, expected: bool) -> None:
    assert looks_wrong(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "ld: error: frobnicated 0x12 in /usr/lib/x.so at 3",
        'error: "quoted" and \\back\\slash $HOME `x` {y}',
        "error\N{FULLWIDTH COLON}中文 failed",
        "E" * 500 + "rror",
    ],
)
def test_a_record_to_fill_in_is_one_that_works(line: str) -> None:
    text = skeleton([line])
    (record,) = Issues.model_validate(yaml.safe_load(text)).issues
    assert found(line.encode(), record) == [("a-name-for-it", 1, 1)]


def test_a_suggested_pattern_leaves_out_what_changes() -> None:
    assert suggested_pattern("error: 12 of /tmp/x failed at 0xdead") == "error: * of * failed at"
    assert suggested_pattern("123 456") == ""
