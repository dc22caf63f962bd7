"""Reading foreign Dockerfiles: continued lines, here-documents, escapes, and what is no Dockerfile at all."""

from __future__ import annotations

import pytest

from compiler import BadInputError, UsageError
from toolchain.lint import lint_text
from toolchain.lint.dockerfile import parse_dockerfile
from toolchain.lint.shell import commands


def read(text: str) -> list[tuple[str, str, int, int]]:
    return [
        (one.name, one.script, one.first, one.last)
        for one in parse_dockerfile(text.encode(), "D").instructions
    ]


def test_continued_lines_with_comments_and_empty_lines() -> None:
    text = "FROM a:1\nRUN one && \\\n  # no\n\n  two\nrun three\n"
    assert [(name, script.split(), first, last) for name, script, first, last in read(text)] == [
        ("FROM", ["a:1"], 1, 1),
        ("RUN", ["one", "&&", "two"], 2, 5),
        ("RUN", ["three"], 6, 6),
    ]


def test_heredoc_is_the_script() -> None:
    text = "FROM a:1\nRUN <<EOF\nexport A=b\nFROM x\nEOF\nUSER 1\n"
    instructions = parse_dockerfile(text.encode(), "D").instructions
    assert [one.name for one in instructions] == ["FROM", "RUN", "USER"]
    assert [one.words for one in instructions[1].commands] == [("export", "A=b"), ("FROM", "x")]
    assert (instructions[1].first, instructions[1].last, instructions[2].first) == (2, 5, 6)


def test_two_heredocs_of_a_copy() -> None:
    text = "FROM a:1\nCOPY <<-A <<'B' /x/\n1\nA\n2\nB\nRUN x\n"
    assert [one[0] for one in read(text)] == ["FROM", "COPY", "RUN"]


def test_heredoc_without_end_reaches_to_the_end() -> None:
    assert [one[0] for one in read("FROM a:1\nRUN <<EOF\nx\n")] == ["FROM", "RUN"]


def test_escape_directive() -> None:
    assert read("# escape=`\nFROM a:1\nRUN x `\n y\n")[-1][1].split() == ["x", "y"]


def test_line_of_a_finding_is_that_of_the_word() -> None:
    text = "FROM a:1\nRUN true && \\\n    git clone https://x/y\n"
    (finding,) = [one for one in lint_text(text, where="D") if one.rule == "git-unpinned"]
    assert finding.line == 3


def test_flags_are_no_words() -> None:
    (_, run) = parse_dockerfile(
        b"FROM a:1\nRUN --mount=type=cache,target=/x --network=none make -j2\n", "D"
    ).instructions
    assert run.flags == ("--mount=type=cache,target=/x", "--network=none")
    assert run.commands[0].program == "make"


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"", "no FROM"),
        (b"# only a comment\n", "no FROM"),
        (b"RUN x\n", "no FROM"),
        (b"FROM a:1\nFETCH x\n", "do not exist"),
        (b"hello world\n", "do not exist"),
        (b"FROM a:1\nRUN \xff\xfe\n", "not UTF-8"),
        (b"\x7fELF\x02\x01\x01\x00\x80", "not UTF-8"),
        (b"FROM a:1\n" + b"#" * (1 << 20), "too large"),
    ],
)
def test_no_dockerfile(data: bytes, part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        lint_text(data.decode("latin-1").encode("latin-1"), where="D")
    assert part in caught.value.what
    assert caught.value.where.startswith("D")


def test_unknown_rule_to_ignore() -> None:
    with pytest.raises(UsageError) as caught:
        lint_text("FROM a:1", where="D", ignore=["sudoo"])
    assert "sudo" in caught.value.hint


def test_ignored_rule() -> None:
    assert not [
        one for one in lint_text("FROM a", where="D", ignore=["base-latest"]) if one.rule == "base-latest"
    ]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("a b&&c", [("a", "b"), ("c",)]),
        ("a 'b && c' \"d;e\"", [("a", "b && c", "d;e")]),
        ("a\\ b c", [("a b", "c")]),
        ("a | b || c; d & e", [("a",), ("b",), ("c",), ("d",), ("e",)]),
        ("x $(uname -r) y", [("x", "$(uname -r)", "y"), ("uname", "-r")]),
        ("x ${A:-b c} y", [("x", "${A:-b c}", "y")]),
        ('sh -c "a && b"', [("sh", "-c", "a && b"), ("a",), ("b",)]),
        ("a # b && c", [("a",)]),
        ("a#b", [("a#b",)]),
        ("a 2>&1 && b", [("a", "2>&1"), ("b",)]),
        ("'unclosed", [("unclosed",)]),
        ('"unclosed $(x', [("unclosed $(x",)]),
        ("''", [("",)]),
        ("", []),
    ],
)
def test_shell_words(script: str, words: list[tuple[str, ...]]) -> None:
    assert [one.words for one in commands(script)] == words


@pytest.mark.parametrize(
    ("script", "program"),
    [
        ("A=b make x", "make"),
        ("sudo -E apt-get update", "apt-get"),
        ("/usr/bin/pip install", "pip"),
        ("if true", "true"),
    ],
)
def test_program_behind_prefixes(script: str, program: str) -> None:
    assert commands(script)[0].program == program


def test_nested_shells_end() -> None:
    script = "x"
    for _ in range(30):
        script = f"$({script})"
    assert commands("a " + script)
