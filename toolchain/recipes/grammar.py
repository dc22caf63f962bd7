"""The grammar of every kind of recipe value. A value that fits none of these never reaches a Dockerfile.

Patterns are written so that Rust's regex (pydantic) and ECMAScript (JSON Schema) read them alike: anchored at
both ends, no look-around. None of them admits a newline, `$`, a backtick, a quote, a backslash or, where an
option could be meant, a leading `-`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, StringConstraints, WithJsonSchema

UNRESOLVED = "unresolved"

_VERSION = r"[0-9A-Za-z]+([._-][0-9A-Za-z]+)*"

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$", max_length=48)]
Id = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*([.-][a-z0-9]+)*$", max_length=48)]
Version = Annotated[str, StringConstraints(pattern=rf"^{_VERSION}$", max_length=48)]
NamePattern = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*(-\{version\}(-[a-z0-9]+)*)?$", max_length=64),
]
Expression = Annotated[
    str,
    StringConstraints(pattern=rf"^{_VERSION}(\+{_VERSION})*$", max_length=160),
]
Shape = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z]+([._-][0-9A-Za-z]+)*$", max_length=48)]
Specifier = Annotated[
    str,
    StringConstraints(
        pattern=r"^(any|(==|!=|<=|>=|<|>|~=) ?[0-9A-Za-z._*-]+(, ?(==|!=|<=|>=|<|>|~=) ?[0-9A-Za-z._*-]+)*)$",
        max_length=120,
    ),
]
Text = Annotated[
    str,
    StringConstraints(
        pattern=r"^[^\x00-\x20\x7f-\x9f`${}\\\u2028-\u202e\u2066-\u2069\ufeff]"
        r"[^\x00-\x1f\x7f-\x9f`${}\\\u2028-\u202e\u2066-\u2069\ufeff]*$",
        max_length=700,
    ),
]
Arch = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*([_-][a-z0-9]+)*$", max_length=32)]
Date = Annotated[str, StringConstraints(pattern=r"^20[0-9]{2}-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?$")]
Codename = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*$", max_length=24)]
Suite = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9]+([._-][A-Za-z0-9]+)*(/[A-Za-z0-9._-]+)*/?$", max_length=64)
]
Host = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$", max_length=120)]

AptPackage = Annotated[
    str,
    StringConstraints(
        pattern=r"^[a-z0-9][a-z0-9+.-]+(:[a-z0-9]+)?(=[0-9][A-Za-z0-9.+:~-]*)?$", max_length=120
    ),
]
RpmPackage = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*$", max_length=120)]
PipPackage = Annotated[
    str,
    StringConstraints(
        pattern=r"^[A-Za-z0-9]+([._-]+[A-Za-z0-9]+)*(\[[a-z0-9]+([,_-][a-z0-9]+)*\])?"
        r"((==|!=|<=|>=|<|>|~=)[0-9][0-9A-Za-z.+!]*(,(==|!=|<=|>=|<|>|~=)[0-9][0-9A-Za-z.+!]*)*)?$",
        max_length=120,
    ),
]
_HTTPS = (
    r"https://[a-z0-9]+([.-][a-z0-9]+)*\.[a-z]{2,}(:[0-9]{1,5})?(/[A-Za-z0-9_~%+@=,][A-Za-z0-9._~%+@=,-]*)*/?"
)
HttpsUrl = Annotated[str, StringConstraints(pattern=rf"^{_HTTPS}$", max_length=300)]
ImageReference = Annotated[
    str,
    StringConstraints(
        pattern=r"^([a-z0-9]+([.-][a-z0-9]+)*(:[0-9]{1,5})?/)?[a-z0-9]+([._-]+[a-z0-9]+)*"
        r"(/[a-z0-9]+([._-]+[a-z0-9]+)*)*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$",
        max_length=255,
    ),
]
Digest = Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64}|unresolved)$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64}|unresolved)$")]
Commit = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|unresolved)$")]
_REF_PART = r"[A-Za-z0-9_]+([._-][A-Za-z0-9_]+)*"
GitRef = Annotated[str, StringConstraints(pattern=rf"^{_REF_PART}(/{_REF_PART})*$", max_length=100)]
AbsolutePath = Annotated[
    str, StringConstraints(pattern=r"^(/[A-Za-z0-9_+@][A-Za-z0-9._+@-]*)+$", max_length=200)
]
RelativePath = Annotated[
    str,
    StringConstraints(
        pattern=r"^[A-Za-z0-9_+@][A-Za-z0-9._+@-]*(/[A-Za-z0-9_+@][A-Za-z0-9._+@-]*)*$", max_length=200
    ),
]

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


_ENV_NAME = r"^[A-Z][A-Z0-9_]*$"
EnvName = Annotated[str, StringConstraints(pattern=_ENV_NAME, max_length=64), AfterValidator(_allowed_env)]
EnvValue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./:,;=+@%* -]*$", max_length=300)]
# A word after a program's name: it may be an option, as the program is given by code, not by the recipe.
# A blank may stand inside, as every word is quoted when it is rendered.
Argument = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_./:,;=+@%-]+( [A-Za-z0-9_./:,;=+@%-]+)*$", max_length=300)
]
Program = Annotated[
    str, StringConstraints(pattern=r"^/?[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*$",
                           max_length=100)
]  # fmt: skip
# A line of a log in which `*` stands for any text.
LogPattern = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f\\$`]{8,200}$")]


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


Flag = Annotated[bool, BeforeValidator(_true_or_false), WithJsonSchema({"enum": [True, False]})]
Count = Annotated[int, BeforeValidator(_whole_number), WithJsonSchema({"type": "integer", "minimum": 0})]

Vendor = Literal["nvidia", "amd", "hygon", "intel", "none"]
Family = Literal["debian", "redhat"]
Verdict = Literal["refuse", "warn"]
