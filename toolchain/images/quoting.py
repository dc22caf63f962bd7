"""Values as a Dockerfile must write them: each either quoted so that it stands for itself, or refused.

Recipes are checked when they are read; this is the second line: nothing reaches a Dockerfile unquoted even if
a plan was made in another way.
"""

from __future__ import annotations

import json
import re
import shlex

from compiler import BadInputError
from toolchain.images.plan import PATH_DEFAULT, EnvPath

_CONTROL = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\u2028\u2029]")
_PATH = re.compile(r"[A-Za-z0-9_./@+:=~%-]+")
_IMAGE = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./@:+-]*")
_PROGRAM = re.compile(
    r"(?!(if|then|else|elif|fi|do|done|case|esac|while|until|for|in|time)$)[A-Za-z0-9_./][A-Za-z0-9_./+-]*"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WIDTH = 104
_INDENT = "      "


def word(text: str) -> str:
    """One word of a shell command. Raises BadInputError for control characters."""
    return shlex.quote(_plain(text, "a command"))


def words(command: tuple[str, ...]) -> str:
    """A command, its words wrapped over continued lines.

    Its program is a plain name: a first word with dashes is an option of RUN, one with `=` an assignment.
    """
    program, *arguments = command
    lines = [_matching(_PROGRAM, program, "a program")]
    for one in map(word, arguments):
        if len(lines[-1]) + len(one) + 3 > _WIDTH:
            lines.append(_INDENT)
        lines[-1] += one if not lines[-1].strip() else f" {one}"
    return " \\\n".join(lines)


def quoted(text: str) -> str:
    """A value of ENV, ARG or LABEL: double quotes, in which the builder expands nothing that is escaped."""
    escaped = re.sub(r'([\\"$])', r"\\\1", _plain(text, "a value"))
    return f'"{escaped}"'


def path(text: str) -> str:
    """A path or an id of a COPY, WORKDIR or mount; refused unless it needs no quoting."""
    return _matching(_PATH, text, "a path")


def image(text: str) -> str:
    """An image reference, the name of a stage or `uid:gid`."""
    return _matching(_IMAGE, text, "an image reference")


def variable(text: str) -> str:
    """The name of a variable."""
    return _matching(_VARIABLE, text, "a variable's name")


def comment(text: str) -> str:
    """Text of a comment, in one line."""
    return _plain(text, "a comment").rstrip("\\")


def exec_form(argv: tuple[str, ...]) -> str:
    """The JSON form of CMD and ENTRYPOINT, in which nothing is expanded."""
    return json.dumps([_plain(one, "a command") for one in argv], ensure_ascii=False)


def search_path(one: EnvPath) -> str:
    """`NAME=entries:what the base has`, with the usual PATH when the base has none."""
    entries = ":".join(map(path, one.entries))
    name = variable(one.name)
    if name == "PATH":
        return f"PATH={entries}:${{PATH:-{PATH_DEFAULT}}}"
    return f"{name}={entries}${{{name}:+:${{{name}}}}}"


def _plain(text: str, kind: str) -> str:
    found = _CONTROL.search(text)
    if found:
        raise BadInputError(
            f"{kind} of an image's plan has the control character {found[0]!r}",
            where=repr(text[:100]),
            hint="take it out of the recipe or the site's configuration",
        )
    return text


def _matching(pattern: re.Pattern[str], text: str, kind: str) -> str:
    if not pattern.fullmatch(text):
        raise BadInputError(
            f"{text[:100]!r} cannot be {kind} in a Dockerfile",
            why="only letters, digits and ordinary punctuation are allowed there",
            hint="correct it in the recipe or the site's configuration",
        )
    return text
