"""Lines of text in nested C scopes: pointers that are declared where their parts are known, shared loads.

A load that occurs more than once between two stores is given a name where it occurs first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_TOKEN = re.compile(r"\x01(\d+)\x02")
_VARIABLE = re.compile(r"\b[a-z]+\d+s?\b")


@dataclass(slots=True)
class CScope:
    """One pair of braces: the variables declared in it, its pointers, and the loads since the last store."""

    start: int
    indent: str
    variables: set[str] = field(default_factory=set)
    pointers: dict[tuple[str, str], str] = field(default_factory=dict)
    declarations: list[str] = field(default_factory=list)
    loads: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class _SharedLoad:
    kind: str
    text: str
    uses: int = 0


class Writer:
    """Collects the lines of one function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scopes: list[CScope] = []
        self._shared: dict[int, _SharedLoad] = {}
        self._counts: dict[str, int] = {}

    def fresh(self, letter: str) -> str:
        """The next identifier that begins with a letter: i0, i1, ..."""
        count = self._counts.get(letter, 0)
        self._counts[letter] = count + 1
        return f"{letter}{count}"

    def fresh_beside(self, letter: str, variable: str) -> str:
        """The same, for what is declared together with a variable of a scope that is open."""
        name = self.fresh(letter)
        next(scope for scope in self.scopes if variable in scope.variables).variables.add(name)
        return name

    def line(self, text: str, place: int | None = None) -> None:
        """One line in the current scope, at its end or before the line that is number `place` by now."""
        self.lines.insert(len(self.lines) if place is None else place, f"{self.scopes[-1].indent}{text}")

    def open(self, *variables: str) -> None:
        """Enter a scope that declares some variables."""
        indent = "  " * (len(self.scopes) + 1)
        self.scopes.append(CScope(len(self.lines), indent, set(variables)))

    def declare(self, name: str, text: str) -> None:
        """Declare a variable at the beginning of the current scope, after those declared before."""
        scope = self.scopes[-1]
        scope.variables.add(name)
        scope.declarations.append(text)

    def close(self) -> None:
        """Leave a scope: its pointers go to its beginning, its loads are named or put in place."""
        scope = self.scopes.pop()
        body = self._resolve(self.lines[scope.start :], scope.indent)
        declarations = [f"{scope.indent}{text}" for text in scope.declarations]
        self.lines[scope.start :] = [*declarations, *body]

    @contextmanager
    def braces(self, head: str | Callable[[], str], *variables: str) -> Iterator[None]:
        """A scope in braces behind a head, or what gives it in the end, for what is written meanwhile."""
        place = len(self.lines)
        self.line("")
        self.open(*variables)
        yield
        self.close()
        self.lines[place] += f"{head if isinstance(head, str) else head()}{{"
        self.line("}")

    def depth(self, text: str) -> int:
        """The number of the outermost scope that knows all variables of a text, else of the innermost."""
        missing = set(_VARIABLE.findall(text))
        for number, scope in enumerate(self.scopes):
            missing -= scope.variables
            if not missing:
                return number
        return len(self.scopes) - 1

    def pointer(self, base: str, offset: str, kind: str) -> str:
        """The pointer base + offset, declared in the outermost scope that knows the variables used."""
        for scope in self.scopes:
            if name := scope.pointers.get((base, offset)):
                return name
        scope = self.scopes[self.depth(f"{base} {offset}")]
        name = self.fresh("p")
        scope.variables.add(name)
        scope.pointers[base, offset] = name
        scope.declarations.append(f"{kind} {name} = {base} + {offset};")
        return name

    def shared_load(self, buffer: str, kind: str, text: str) -> str:
        """A load that may be written once and used often; stands for its text until the scope closes."""
        loads = self.scopes[-1].loads
        number = loads.get((buffer, text))
        if number is None:
            number = len(self._shared)
            loads[buffer, text] = number
            self._shared[number] = _SharedLoad(kind, text)
        self._shared[number].uses += 1
        return f"\x01{number}\x02"

    def stored(self, buffer: str) -> None:
        """Loads of a buffer before a store are not those after it."""
        for scope in self.scopes:
            for key in [key for key in scope.loads if key[0] == buffer]:
                del scope.loads[key]

    def _resolve(self, lines: list[str], indent: str) -> list[str]:
        names: dict[int, str] = {}
        done: list[str] = []

        def spelled(found: re.Match[str]) -> str:
            """The name of a load that occurs often, declared where it first does; else its text."""
            number = int(found[1])
            if number in names:
                return names[number]
            load = self._shared[number]
            text = _TOKEN.sub(spelled, load.text)  # what is loaded may say where the next load is
            if load.uses == 1:
                return text
            names[number] = self.fresh("t")
            done.append(f"{indent}const {load.kind} {names[number]} = {text};")
            return names[number]

        for line in lines:
            made = _TOKEN.sub(spelled, line)
            done.append(made)
        return done
