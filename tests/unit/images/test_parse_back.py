"""Whatever words a plan has: the text says exactly them to a builder, or there is no text."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler import BadInputError, InternalError
from toolchain.images import parse_back
from toolchain.images.plan import (
    PATH_DEFAULT,
    Arg,
    BaseImage,
    Cmd,
    Copy,
    Entrypoint,
    Env,
    EnvPath,
    From,
    Instruction,
    Label,
    Mount,
    Plan,
    Run,
    Stage,
    User,
    Workdir,
)
from toolchain.images.render import dockerfile

HOSTILE = (
    "$(touch /pwned)", "`id`", "a && b", "a; b", "a | b", "a\\", "\\", "'", '"', "''", "it's", '"$HOME"',
    "${PATH}", "$$", "#comment", "a # b", "<<EOF", "0<<-EOF", "--mount=type=bind,source=/,target=/host",
    "--privileged", "-o", "", " ", "  a  b ", "{{ 7 * 7 }}", "{% raw %}", "*", "?", "[a-z]", "~root", "!x",
    "a b", "&&", "||", "> /etc/passwd", "\\n", "a=b", "=", "%PATH%", "ümläut", "日本", "FROM scratch",
    "syntax=docker/dockerfile:1", "escape=`", "x" * 500, "&&'",
)  # fmt: skip
CONTROL = ("a\nRUN id", "a\r\nb", "\x00", "a\x1b[31m", "a\u2028b", "a\x85b", "\t")

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=40)
WORD = st.one_of(st.sampled_from(HOSTILE), TEXT)
NAME = st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True)
PATH = st.from_regex(r"/[A-Za-z0-9_.@+-]{1,12}(/[A-Za-z0-9_.+-]{1,12}){0,2}", fullmatch=True)
PROGRAM = st.sampled_from(["sh", "/usr/bin/g++", "./x", "apt-get", "python3.11"])
ARGUMENTS = st.lists(WORD, max_size=5).map(tuple)
COMMAND = st.tuples(PROGRAM, ARGUMENTS).map(lambda pair: (pair[0], *pair[1]))
MOUNT = st.one_of(
    st.builds(Mount, st.just("cache"), PATH, PATH, shared=st.booleans()),
    st.builds(Mount, st.just("secret"), PATH, PATH),
    st.builds(Mount, st.just("bind"), PATH, source=PATH, from_stage=st.sampled_from(["", "base"])),
)
PAIRS = st.lists(st.tuples(NAME, WORD), min_size=1, max_size=3).map(tuple)
INSTRUCTION = st.one_of(
    st.builds(Arg, NAME, WORD),
    st.builds(Env, PAIRS),
    st.builds(
        EnvPath,
        st.sampled_from(["PATH", "LD_LIBRARY_PATH"]),
        st.lists(PATH, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(
        Run,
        st.lists(COMMAND, min_size=1, max_size=3).map(tuple),
        st.lists(MOUNT, max_size=2).map(tuple),
        why=WORD,
    ),
    st.builds(Copy, st.lists(PATH, min_size=1, max_size=3).map(tuple), PATH, st.sampled_from(["", "base"])),
    st.builds(Workdir, PATH),
    st.builds(Label, st.lists(st.tuples(WORD.filter(bool), WORD), min_size=1, max_size=3).map(tuple)),
    st.builds(Cmd, ARGUMENTS),
    st.builds(Entrypoint, ARGUMENTS),
)


def plan_of(*instructions: Instruction, why: str = "") -> Plan:
    stage = Stage("base", (From("debian:bookworm", "base"), *instructions), why)
    return Plan("test", "tk/test", "1", BaseImage("debian:bookworm"), (stage,))


@given(st.lists(INSTRUCTION, max_size=4), WORD)
def test_instructions_survive(instructions: list[Instruction], why: str) -> None:
    plan = plan_of(*instructions, why=why)
    text = dockerfile(plan)
    assert parse_back.parse_rendered(text) == plan.stages[0].instructions


@pytest.mark.parametrize("word", HOSTILE)
def test_a_shell_takes_a_hostile_word_as_itself(word: str) -> None:
    text = dockerfile(plan_of(Run((("printf", "%s|", word, "end"),))))
    command = text.split("RUN ", 1)[1].replace(" \\\n", " ")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout == f"{word}|end|"


@pytest.mark.parametrize(
    "word",
    [
        "",
        "--mount=type=bind,source=/,target=/host",
        "-x",
        "A=b",
        "if",
        "!",
        "{",
        "a b",
        "$X",
        "#",
        "~/a",
        "a&&b",
    ],
)
def test_a_program_is_a_plain_name(word: str) -> None:
    with pytest.raises(BadInputError):
        dockerfile(plan_of(Run(((word, "x"),))))


@pytest.mark.parametrize("word", CONTROL)
@pytest.mark.parametrize(
    "make",
    [
        lambda word: Run((("echo", word),)),
        lambda word: Env((("A", word),)),
        lambda word: Label((("a", word),)),
        lambda word: Cmd((word,)),
        lambda word: Workdir(word),
        lambda word: Copy((word,), "/a"),
        lambda word: Run((("true",),), why=word),
    ],
)
def test_control_characters_are_refused(make: object, word: str) -> None:
    with pytest.raises(BadInputError):
        dockerfile(plan_of(make(word)))  # type: ignore[operator]


@pytest.mark.parametrize(
    "word", ["", "a b", "$HOME", "${X}", "a\\", '"', "'", "#", "a,b", "*", "`x`", '["a"]']
)
def test_paths_that_would_need_quoting_are_refused(word: str) -> None:
    for instruction in (
        Copy((word,), "/a"),
        Copy(("a",), word),
        Workdir(word),
        User(word),
        EnvPath("PATH", (word,)),
        Run((("true",),), (Mount("bind", "/a", source=f"/x{word}" if word else "\\"),)),
    ):
        with pytest.raises(BadInputError):
            dockerfile(plan_of(instruction))


@pytest.mark.parametrize("name", ["", "A B", "1A", "A=B", "$A", "A-B", "A\nB"])
def test_names_of_variables_are_names(name: str) -> None:
    for instruction in (Env(((name, "x"),)), Arg(name, "x"), EnvPath(name, ("/a",))):
        with pytest.raises(BadInputError):
            dockerfile(plan_of(instruction))


def test_the_default_path_comes_where_a_base_has_none() -> None:
    text = dockerfile(plan_of(EnvPath("PATH", ("/opt/x/bin",)), EnvPath("LD_LIBRARY_PATH", ("/opt/x/lib",))))
    assert f"ENV PATH=/opt/x/bin:${{PATH:-{PATH_DEFAULT}}}\n" in text
    assert "ENV LD_LIBRARY_PATH=/opt/x/lib${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}\n" in text


@pytest.mark.parametrize(
    "line",
    [
        "RUN echo $HOME", "RUN echo a; id", "RUN echo a | sh", "RUN echo `id`", "RUN echo a && ",
        'RUN echo "$X"', "RUN a > b", "ENV A=b", 'ENV A="$B"', "ENV PATH=/a:$PATH", "ADD a b",
        "ONBUILD RUN id", "VOLUME /a", "LABEL a=b", 'SHELL ["/bin/sh"]', "RUN a || b", "RUN cat *",
        "RUN (id)", "RUN a & b",
    ],
)  # fmt: skip
def test_text_that_the_renderer_never_writes_is_not_read(line: str) -> None:
    with pytest.raises(InternalError):
        parse_back.parse_rendered(f"FROM debian AS base\n{line}\n")


def test_a_difference_between_text_and_plan_is_a_defect_of_ours() -> None:
    plan = plan_of(Run((("true",),)))
    text = dockerfile(plan)
    with pytest.raises(InternalError, match="is not what was planned"):
        parse_back.check_parses_back(plan, text.replace("RUN true", "RUN false"))
    with pytest.raises(InternalError, match="has 3 instructions, the plan 2"):
        parse_back.check_parses_back(plan, text + "USER 0\n")
    with pytest.raises(InternalError):
        parse_back.check_parses_back(dataclasses.replace(plan, stages=()), text)


def test_long_commands_are_wrapped_without_a_change() -> None:
    command = ("apt-get", "install", *(f"package-{i}" for i in range(60)))
    text = dockerfile(plan_of(Run((command,))))
    assert max(map(len, text.splitlines())) <= 110
    assert shlex.split(text.split("RUN ", 1)[1].replace("\\\n", "")) == list(command)


def test_a_mirror_is_written_and_does_not_change_the_key() -> None:
    plain, mirrored = plan_of(), plan_of()
    stage = Stage("base", (From("debian:bookworm", "base", mirror="mirror.local:5000/debian:bookworm"),))
    mirrored = dataclasses.replace(plain, stages=(stage,))
    assert "FROM mirror.local:5000/debian:bookworm AS base" in dockerfile(mirrored)
    assert mirrored.key == plain.key
