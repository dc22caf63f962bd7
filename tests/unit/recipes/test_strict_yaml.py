"""YAML as it is read: scalars as written, every value with its line, nothing that could surprise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compiler import BadInputError
from toolchain.recipes.strict_yaml import (
    MOST_BYTES,
    MOST_DEPTH,
    MOST_NODES,
    MOST_SCALAR,
    parse_strict,
    read_strict,
)


@pytest.mark.parametrize(
    "text",
    [
        "3.10",
        "1e3",
        "0x10",
        "010",
        "no",
        "off",
        "yes",
        "true",
        "null",
        "~",
        "2022-12",
        "12:30:45",
        ".inf",
        "1_0",
    ],
)
def test_a_scalar_is_what_is_written(text: str) -> None:
    assert parse_strict(f"a: {text}\n".encode(), "f").plain() == {"a": text}


def test_lines() -> None:
    node = parse_strict(b"# a comment\na:\n  - one\n  - b: two\n    c: >-\n      three\n      four\n", "f")
    assert node.plain() == {"a": ["one", {"b": "two", "c": "three four"}]}
    (one, mapping) = node.entries()["a"].items()
    assert (one.where, mapping.where, mapping.entries()["c"].line) == ("f:3", "f:4", 5)
    assert node.key_lines == {"a": 2}


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (b"a: 1\nb: &x 1\n", 2, "anchor"),
        (b"a: &x 1\nb: *x\n", 1, "anchor"),
        (b"a: 1\nb: *x\n", 2, "alias"),
        (b"a: [1, !!python/object/apply:os.system [id]]\n", 1, "tag"),
        (b"a: !!str 1\n", 1, "tag"),
        (b"a:\n  !local b\n", 2, "tag"),
        (b"a: ! x\n", 1, "tag"),
        (b"a: 1\nb: 2\na: 3\n", 3, "duplicate"),
        (b"a: {b: 1, 'b': 2}\n", 1, "duplicate"),
        (b"a: 1\n<<: {b: 1}\n", 2, "merge"),
        (b"%YAML 1.1\n---\na: 1\n", 1, "directive"),
        (b"%TAG ! tag:x,2000:\n---\na: 1\n", 1, "directive"),
        (b"a: 1\n---\nb: 1\n", 2, "second document"),
        (b"? [a, b]\n: 1\n", 1, "key"),
        (b"a: b: c\n", 1, "not YAML"),
        (b"a:\n  - b\n c\n", 3, "not YAML"),
        (b"a: 'open\n", 2, "not YAML"),
        (b"", 1, "empty"),
        (b"# nothing\n", 1, "empty"),
        (b"a: 1\n\tb: 2\n", 2, "U+0009"),
        (b"a: 1\r\n", 1, "U+000D"),
        (b"\xef\xbb\xbfa: 1\n", 1, "U+FEFF"),
        (b"a: 1\nb: \xe2\x80\xae\n", 2, "U+202E"),
        (b"a: 1\nb: \xe2\x80\x8b\n", 2, "U+200B"),
        (b"a: \x00\n", 1, "U+0000"),
        (b"a: \x1b[31m\n", 1, "U+001B"),
        (b"a: 1\nb: \xff\n", 2, "UTF-8"),
        ("a: 1\n".encode("utf-16"), 1, "UTF-8"),
        (b"[" * (MOST_DEPTH + 2) + b"]" * (MOST_DEPTH + 2), 1, "deeply"),
        (b"[" * 100_000, 1, "deeply"),
        (b"{a: " * 100_000, 1, "deeply"),
        (b"- a\n" * (MOST_NODES + 1), MOST_NODES, "too many"),
        (b"a: " + b"x" * (MOST_SCALAR + 1), 1, "too long"),
    ],
)
def test_refused(text: bytes, line: int, what: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_strict(text, "f")
    assert caught.value.where == f"f:{line}"
    assert what in str(caught.value)


def test_a_long_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    with path.open("wb") as stream:
        stream.truncate(MOST_BYTES * 1000)
    with pytest.raises(BadInputError, match="too large"):
        read_strict(path)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(BadInputError, match="not a regular file"):
            read_strict(path)
    with pytest.raises(BadInputError, match="No such file"):
        read_strict(tmp_path / "missing")
