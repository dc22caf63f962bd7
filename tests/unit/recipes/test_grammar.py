"""The grammars: what they admit is harmless, whatever is thrown at them."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from toolchain.explain.pattern import read_pattern
from toolchain.recipes import grammar

GRAMMARS: dict[str, Any] = {
    name: getattr(grammar, name)
    for name in (
        "Name", "Id", "Version", "Shape", "NamePattern", "Expression", "Specifier", "Text", "Arch", "Date",
        "Codename", "SystemName", "Suite", "Host", "AptPackage", "RpmPackage", "PipPackage", "HttpsUrl",
        "ImageReference", "Digest", "Sha256", "Commit", "GitRef", "AbsolutePath", "RelativePath",
        "HadolintRule", "EnvName", "EnvValue", "Argument", "LogPattern",
    )
}  # fmt: skip
ADAPTERS = {name: TypeAdapter(kind) for name, kind in GRAMMARS.items()}
# Never in a Dockerfile; the rest of the grammars are texts for people and patterns for logs.
FOR_PEOPLE = {"Text", "LogPattern", "NamePattern"}
MAY_BE_AN_OPTION = {"Argument", "EnvValue", *FOR_PEOPLE}
WITH_BLANKS = {"Argument", "EnvValue", "Specifier", *FOR_PEOPLE}

PIECES = st.sampled_from(
    [
        "a", "Z", "0", "-", "--", ".", "..", "/", "~", " ", "\n", "\r", "\t", "\0", "$", "$(", "${", "`",
        "'", '"', "\\", ";", "&", "|", ">", "<", "*", "?", "[", "]", "{", "}", "{{", "}}", "{%", "#", "!",
        "=", "@", ":", ",", "+", "%", "https://", "sha256:", "a.b", "\u202e", "\u2028", "\u00a0", "\u0130",
        "unresolved", "any",
    ]
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=12).map("".join))


def admitted(name: str, text: str) -> bool:
    try:
        ADAPTERS[name].validate_python(text)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("name", GRAMMARS)
@given(text=TEXTS)
@example(text="a\n")
@example(text="$(id)")
@example(text="--privileged")
@example(text="a b")
@example(text="../a")
def test_what_is_admitted_is_harmless(name: str, text: str) -> None:
    if not admitted(name, text):
        return
    assert not re.search(r"[\x00-\x1f\x7f-\x9f$`\\]", text)
    if name not in FOR_PEOPLE:
        assert text.isascii()
        assert not re.search(r"""['"{}|&<>#?]""", text) or name == "Specifier"
        # A value of a variable and a word of a command are handed on, quoted: they are no paths that we open.
        assert "../" not in text or name in {"Specifier", "EnvValue", "Argument"}
    if name not in MAY_BE_AN_OPTION:
        assert not text.startswith("-")
    if name not in WITH_BLANKS:
        assert " " not in text
        assert shlex.split(text) == [text] or name == "Text"


def has_a_key(text: str) -> bool:
    try:
        read_pattern(text)
    except ValueError:
        return False
    return True


@given(text=TEXTS)
@example(text="000  000")
def test_both_readers_of_patterns_agree(text: str) -> None:
    """Python's `re`, which stands for ECMAScript's here, reads the published patterns as pydantic does.

    But for what no pattern says: names that are taken, and that a log is searched by a word of four letters.
    """
    for name, adapter in ADAPTERS.items():
        schema = adapter.json_schema()
        same = bool(re.search(schema["pattern"].removesuffix("$") + r"\Z", text))
        same = same and len(text) <= schema["maxLength"]
        if name == "EnvName":
            same = same and text not in grammar.FORBIDDEN_ENV
        if name == "LogPattern":
            same = same and has_a_key(text)
        assert admitted(name, text) == same, (name, text)


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("Name", "tvm-sycl"),
        ("Version", "2022-12"),
        ("Version", "3.10"),
        ("Version", "nightly-2023-12-06"),
        ("NamePattern", "rocm-{version}-debian"),
        ("Expression", "cuda-11.2+dpcpp-2022-12+tvm-sycl"),
        ("Specifier", ">=5.5,<6"),
        ("Specifier", "any"),
        ("Text", "It's `not` code".replace("`", "")),
        ("Arch", "spir64_x86_64"),
        ("AptPackage", "libc6-dev:amd64"),
        ("AptPackage", "hip-dev=5.2.21153.50203-109"),
        ("AptPackage", "g++"),
        ("PipPackage", "cmake==3.31.10"),
        ("PipPackage", "numpy[extra]>=1.2,<2"),
        ("HttpsUrl", "https://repo.radeon.com/rocm/apt/5.4.3/"),
        ("HttpsUrl", "https://github.com/a/b/cpython-3.11.6+20231002-x86_64.tar.gz"),
        ("ImageReference", "image.sourcefind.cn:5000/dcu/admin/base/dtk:22.10.1-centos7.6-py39"),
        ("ImageReference", "debian:bookworm-slim"),
        ("GitRef", "v2022-12-local-deps"),
        ("AbsolutePath", "/etc/apt/sources.list.d/rocm.list"),
        ("EnvValue", "level_zero:*"),
        ("Argument", "--cmake-opt=-DSYCL_BUILD_PI_HIP_ROCM_DIR=/opt/rocm"),
        ("Argument", "-DUSE_SYCL_HIP=amdgcn-amd-amdhsa -Xsycl-target-backend --offload-arch=gfx906"),
    ],
)
def test_what_people_write_is_admitted(name: str, good: str) -> None:
    assert admitted(name, good)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("Name", "Rocm"), ("Name", "a--b"), ("Name", "a-"), ("Name", "a" * 49), ("Version", "5..4"),
        ("Version", "-1"), ("Version", "5.4+x"), ("Specifier", "5.4"), ("Specifier", ">=5;x"),
        ("Text", " leading"), ("Text", "a`b"), ("Text", "{{ 7 }}"), ("Arch", "gfx906 -v"),
        ("AptPackage", "-o=x"), ("AptPackage", "a b"), ("AptPackage", "A"), ("AptPackage", "./local.deb"),
        ("PipPackage", "-r/etc/passwd"), ("PipPackage", "a @ https://x.y/z"),
        ("PipPackage", "a;python_version<'3'"), ("PipPackage", "git+https://x.y/z"),
        ("HttpsUrl", "http://x.yz/a"), ("HttpsUrl", "https://user:pw@x.yz/a"),
        ("HttpsUrl", "https://x.yz/a?b=c"), ("HttpsUrl", "https://x.yz/a#b"),
        ("HttpsUrl", "https://x.yz/../a"), ("HttpsUrl", "file:///etc/passwd"),
        ("HttpsUrl", "https://localhost/x"), ("ImageReference", "debian"), ("ImageReference", "Debian:12"),
        ("ImageReference", "debian:12@sha256:0"), ("Digest", "sha256:" + "0" * 63),
        ("Digest", "md5:" + "0" * 64), ("Sha256", "A" * 64), ("Commit", "HEAD"),
        ("GitRef", "--upload-pack=x"), ("GitRef", "a..b"), ("GitRef", "a/.b"), ("GitRef", "a:b"),
        ("AbsolutePath", "/"), ("AbsolutePath", "/a/../b"), ("AbsolutePath", "/.ssh"),
        ("AbsolutePath", "a/b"), ("AbsolutePath", "/a//b"), ("RelativePath", "/a"),
        ("RelativePath", "../a"), ("EnvName", "LD_PRELOAD"), ("EnvName", "PATH"), ("EnvName", "a"),
        ("EnvName", "A=B"), ("EnvValue", "$HOME"), ("EnvValue", "a\nUSER root"), ("EnvValue", "'"),
        ("Argument", "a|b"), ("Argument", " a"), ("Argument", "a  b"), ("Argument", "$(id)"),
        ("Argument", "a\nb"), ("LogPattern", "short"), ("LogPattern", "x" * 201), ("Date", "2022-13"),
        ("Date", "22-12"),
    ],
)  # fmt: skip
def test_what_could_do_harm_is_refused(name: str, bad: str) -> None:
    assert not admitted(name, bad)


@pytest.mark.parametrize(
    ("good", "bad"), [("true", "yes"), ("false", "0"), ("true", "True"), ("false", "no")]
)
def test_flags_are_true_or_false(good: str, bad: str) -> None:
    flag: TypeAdapter[bool] = TypeAdapter(grammar.Flag)
    assert flag.validate_python(good) is (good == "true")
    with pytest.raises(ValidationError, match="true or false"):
        flag.validate_python(bad)


@pytest.mark.parametrize("bad", ["-1", "1.5", "1e3", "\u0661", "9999999999", "", " 1"])
def test_counts_are_whole_numbers(bad: str) -> None:
    with pytest.raises(ValidationError, match="whole number"):
        TypeAdapter(grammar.Count).validate_python(bad)
