"""The simple commands in a shell text: enough of the grammar to know which program gets which words.

Follows the token recognition of POSIX.1-2017, Shell Command Language 2.3: quotes, escapes, operators and
substitutions. Text that no shell would accept is split as far as it goes; nothing is expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATORS = ("&&", "||", ";;", ";", "|", "&", "\n", "(", ")")
_KEYWORDS = {
    "if",
    "then",
    "elif",
    "else",
    "fi",
    "do",
    "done",
    "while",
    "until",
    "!",
    "{",
    "}",
    "time",
    "exec",
}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_SHELLS = {"sh", "bash", "dash", "zsh"}
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One simple command: `words` without quotes, and the operator that ends it (`&&`, `|`, ...)."""

    words: tuple[str, ...]
    operator: str = ""

    @property
    def program(self) -> str:
        """The base name of what is started, behind assignments, keywords and `sudo`; or nothing."""
        return self.arguments[0].rpartition("/")[2] if self.arguments else ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words from the program on."""
        words = self.words
        while words and (_ASSIGNMENT.match(words[0]) or words[0] in _KEYWORDS or words[0] in ("sudo", "env")):
            behind_sudo = words[0] in ("sudo", "env")
            words = words[1:]
            while behind_sudo and words and words[0].startswith("-"):
                words = words[1:]
        return words

    @property
    def options(self) -> tuple[str, ...]:
        """Words that begin with a dash."""
        return tuple(word for word in self.arguments[1:] if word.startswith("-"))

    @property
    def operands(self) -> tuple[str, ...]:
        """Words behind the program that are no options and no redirections."""
        return tuple(word for word in self.arguments[1:] if not word.startswith(("-", ">", "<", "2>")))

    @property
    def text(self) -> str:
        """The words, joined by blanks."""
        return " ".join(self.words)


def commands(text: str, *, depth: int = 0) -> tuple[ShellCommand, ...]:
    """All simple commands of a script, those in substitutions and behind `sh -c` included."""
    found: list[ShellCommand] = []
    words: list[str] = []
    for token, is_operator in _tokens(text):
        if not is_operator:
            words.append(token)
            continue
        if words:
            found.append(ShellCommand(tuple(words), token))
        words = []
    if words:
        found.append(ShellCommand(tuple(words)))
    inner = [one for script in _inner_scripts(text, found) for one in commands(script, depth=depth + 1)]
    return tuple(found) if depth >= _DEEPEST else (*found, *inner)


def _inner_scripts(text: str, found: list[ShellCommand]) -> Iterator[str]:
    for command in found:
        words = command.arguments
        if command.program in _SHELLS and len(words) > 2 and re.fullmatch(r"-[a-z]*c", words[1]):
            yield words[2]
    for match in re.finditer(r"\$\(([^()]+)\)|`([^`]+)`", text):
        yield match[1] or match[2]


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Words and operators, each with whether it is an operator."""
    place, word, started = 0, "", False
    while place < len(text):
        operator = next((one for one in _OPERATORS if text.startswith(one, place)), "")
        if operator or text[place].isspace() or (text[place] == "#" and not started):
            if started:
                yield word, False
            word, started = "", False
            if operator:
                yield operator, True
            place = _after_gap(text, place, operator)
            continue
        piece, place = _piece(text, place)
        word, started = word + piece, True
    if started:
        yield word, False


def _after_gap(text: str, place: int, operator: str) -> int:
    if operator:
        return place + len(operator)
    if text[place] == "#":
        end = text.find("\n", place)
        return len(text) if end < 0 else end
    return place + 1


def _piece(text: str, place: int) -> tuple[str, int]:
    """The next part of a word without its quotes, and the place behind it."""
    sign = text[place]
    if sign == "\\":
        return text[place + 1 : place + 2].replace("\n", ""), place + 2
    if sign == "'":
        end = text.find("'", place + 1)
        return (text[place + 1 :], len(text)) if end < 0 else (text[place + 1 : end], end + 1)
    if sign == '"':
        return _double_quoted(text, place + 1)
    if text.startswith(("$(", "${"), place):
        return _substitution(text, place)
    return (">&", place + 2) if text.startswith(">&", place) else (sign, place + 1)


def _double_quoted(text: str, place: int) -> tuple[str, int]:
    kept = ""
    while place < len(text) and text[place] != '"':
        if text[place] == "\\" and text[place + 1 : place + 2] in ('"', "\\", "$", "`", "\n"):
            kept += text[place + 1].replace("\n", "")
            place += 2
        else:
            kept += text[place]
            place += 1
    return kept, place + 1


def _substitution(text: str, place: int) -> tuple[str, int]:
    """`$(...)` or `${...}` as written, to its matching end."""
    opening, closing = text[place + 1], ")" if text[place + 1] == "(" else "}"
    depth, end = 0, place + 1
    while end < len(text):
        depth += (text[end] == opening) - (text[end] == closing)
        end += 1
        if depth == 0:
            break
    return text[place:end], end
