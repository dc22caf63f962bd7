"""The grammar of every kind of recipe value. A value that fits none of these never reaches a Dockerfile.

Patterns are written so that Rust's regex (pydantic) and ECMAScript (JSON Schema) read them alike: anchored at
both ends, no look-around. None of them admits a newline, `$`, a backtick, a quote, a backslash or, where an
option could be meant, a leading `-`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from toolchain.explain.pattern import read_pattern

UNRESOLVED = "unresolved"
FORMS: dict[str, str] = {}
"""What each pattern means, in words; for messages."""


def _form(words: str, pattern: str, most: int = 200) -> Any:
    """A field's grammar: a pattern, its longest text, and what both mean."""
    whole = f"^({pattern})$"
    FORMS[whole] = words
    return Field(pattern=whole, max_length=most, description=words)


_WORD = r"[A-Za-z0-9]+"
_VERSION = rf"{_WORD}([._-]{_WORD})*"
_SMALL = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
_SPECIFIER = r"(==|!=|<=|>=|<|>|~=) ?[0-9A-Za-z._*-]+"
_PIP_SPECIFIER = r"(==|!=|<=|>=|<|>|~=)[0-9][0-9A-Za-z.+!]*"
_HOST = r"[a-z0-9]+([.-][a-z0-9]+)*"
_URL_PART = r"[A-Za-z0-9_~%+@=,][A-Za-z0-9._~%+@=,-]*"
_REF = r"[A-Za-z0-9_]+([._-][A-Za-z0-9_]+)*"
_IMAGE_PART = r"[a-z0-9]+([._-]+[a-z0-9]+)*"
_FILE = r"[A-Za-z0-9_+@][A-Za-z0-9._+@-]*"
# Nothing that a template, a shell or a terminal could take for more than text.
_NO_TEXT = r"\x00-\x1f\x7f-\x9f`${}\\\u200b\u2028-\u202e\u2066-\u2069\ufeff"
_PLAIN = r"[A-Za-z0-9_./:,;=+@%-]+"

Name = Annotated[str, _form("small letters, digits and single `-`", _SMALL, 48)]
Id = Annotated[
    str, _form("small letters, digits and single `-` or `.`", r"[a-z][a-z0-9]*([.-][a-z0-9]+)*", 48)
]
Version = Annotated[str, _form("letters and digits with single `.`, `-` or `_` between", _VERSION, 48)]
Shape = Annotated[str, _form("a version in which Y and n stand for digits", _VERSION, 48)]
NamePattern = Annotated[
    str, _form("a name in which {version} may stand once", rf"{_SMALL}(-\{{version\}}(-[a-z0-9]+)*)?", 64)
]
Expression = Annotated[
    str, _form("names of a stack and of components, joined by `+`", rf"{_VERSION}(\+{_VERSION})*", 160)
]
Specifier = Annotated[
    str, _form("`any`, or comparisons such as `>=5.5,<6`", rf"any|{_SPECIFIER}(, ?{_SPECIFIER})*", 120)
]
Text = Annotated[
    str,
    _form(
        "one line of text without control characters, backtick, dollar, braces or backslash",
        rf"[^\x20{_NO_TEXT}][^{_NO_TEXT}]*",
        700,
    ),
]
Arch = Annotated[str, _form("small letters, digits, `_`", r"[a-z][a-z0-9]*(_[a-z0-9]+)*", 32)]
Date = Annotated[
    str, _form("year-month or year-month-day", r"20[0-9]{2}-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?", 10)
]
Codename = Annotated[str, _form("small letters and digits", r"[a-z][a-z0-9]*", 24)]
SystemName = Annotated[str, _form("a system and its version: ubuntu-20.04", r"[a-z]+-[0-9]+(\.[0-9]+)*", 32)]
Suite = Annotated[str, _form("an apt suite", rf"{_WORD}([._-]{_WORD})*(/[A-Za-z0-9][A-Za-z0-9._-]*)*/?", 64)]
Host = Annotated[str, _form("a host name", _HOST, 120)]
AptPackage = Annotated[
    str,
    _form(
        "a Debian package, with :arch or =version",
        r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[0-9][A-Za-z0-9.+:~-]*)?",
        120,
    ),
]
RpmPackage = Annotated[str, _form("an RPM package", r"[A-Za-z0-9][A-Za-z0-9+._-]*", 120)]
PipPackage = Annotated[
    str,
    _form(
        "a Python package with version specifiers",
        rf"{_WORD}([._-]+{_WORD})*(\[[a-z0-9]+([,_-][a-z0-9]+)*\])?({_PIP_SPECIFIER}(,{_PIP_SPECIFIER})*)?",
        120,
    ),
]
HttpsUrl = Annotated[
    str,
    _form(
        "an https URL without user, query or fragment",
        rf"https://{_HOST}\.[a-z]{{2,}}(:[0-9]{{1,5}})?(/{_URL_PART})*/?",
        300,
    ),
]
HttpUrl = Annotated[
    str,
    _form(
        "a URL without user, query, fragment or slash at the end",
        rf"https?://{_HOST}\.[a-z]{{2,}}(:[0-9]{{1,5}})?(/{_URL_PART})*",
        300,
    ),
]
ArchivePath = Annotated[
    str,
    _form(
        "a host, or `*.` and a domain, and a path: *.debian.org/debian",
        rf"(\*\.)?{_HOST}\.[a-z]{{2,}}(/{_URL_PART})+",
        300,
    ),
]
ImageReference = Annotated[
    str,
    _form(
        "an image with its tag: host/name:tag",
        rf"({_HOST}(:[0-9]{{1,5}})?/)?{_IMAGE_PART}(/{_IMAGE_PART})*:[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}",
        255,
    ),
]
Digest = Annotated[str, _form("sha256: and 64 hex digits, or unresolved", r"sha256:[0-9a-f]{64}|unresolved")]
Sha256 = Annotated[str, _form("64 hex digits, or unresolved", r"[0-9a-f]{64}|unresolved")]
Commit = Annotated[
    str,
    _form("40 hex digits, the first 8 or more of them, or unresolved", r"[0-9a-f]{8,40}|unresolved"),
]
Fingerprint = Annotated[str, _form("40 hex digits in capital letters", r"[0-9A-F]{40}")]
GitRef = Annotated[str, _form("a git tag or branch", rf"{_REF}(/{_REF})*", 100)]
AbsolutePath = Annotated[
    str, _form("an absolute path, no part of it with a leading `.` or `-`", rf"(/{_FILE})+")
]
RelativePath = Annotated[
    str, _form("a relative path, no part of it with a leading `.` or `-`", rf"{_FILE}(/{_FILE})*")
]
HadolintRule = Annotated[str, _form("a rule of hadolint: DL3008", r"(DL|SC)[0-9]{4}", 6)]

# What the image's user, shell or loader would obey without being asked; PATH and LD_LIBRARY_PATH have
# fields of their own.
FORBIDDEN_ENV = (
    "BASH_ENV", "ENV", "HOME", "IFS", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "PROMPT_COMMAND",
    "PYTHONPATH", "PYTHONSTARTUP", "SHELL", "USER",
)  # fmt: skip


def _allowed_env(name: str) -> str:
    if name in FORBIDDEN_ENV:
        raise ValueError(f"{name} may not be set by a recipe; PATH and LD_LIBRARY_PATH: `path`, `libraries`")
    return name


EnvName = Annotated[
    str, _form("capital letters, digits and `_`", r"[A-Z][A-Z0-9_]*", 64), AfterValidator(_allowed_env)
]
EnvValue = Annotated[str, _form("no quotes, dollar or backslash", r"[A-Za-z0-9_./:,;=+@%* -]*", 300)]
# A blank may stand inside, as every word is quoted when it is rendered. It may be an option: the program is
# given by code or stands before it.
Argument = Annotated[
    str, _form("no quotes, dollar or backslash; blanks only inside", rf"{_PLAIN}( {_PLAIN})*", 300)
]


def _searchable(pattern: str) -> str:
    read_pattern(pattern)
    return pattern


LogPattern = Annotated[
    str,
    _form("8 to 200 characters of a log's line; `*` for any text", r"[^\x00-\x1f\x7f-\x9f\\$`]{8,200}"),
    AfterValidator(_searchable),
]
LogLines = Annotated[
    str, _form("lines of a log, without control characters", r"[^\x00-\x09\x0b-\x1f\x7f-\x9f]+", 2000)
]


def _true_or_false(value: object) -> object:
    if value in ("true", "false") or isinstance(value, bool):
        return value in ("true", True)
    raise ValueError("expected true or false")


def _whole_number(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 9:
        return int(value)
    raise ValueError("expected a whole number")


Flag = Annotated[bool, BeforeValidator(_true_or_false), WithJsonSchema({"type": "boolean"})]
Count = Annotated[int, BeforeValidator(_whole_number), WithJsonSchema({"type": "integer", "minimum": 0})]

Vendor = Literal["nvidia", "amd", "hygon", "intel", "none"]
DeviceAnswer = Literal["arch", "binary"]
Family = Literal["debian", "redhat"]
Verdict = Literal["refuse", "warn"]
Level = Literal["error", "warning"]
