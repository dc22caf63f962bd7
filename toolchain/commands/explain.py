"""`tk explain`: what is known of the errors in a log."""

from __future__ import annotations

import contextlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

import compiler
from compiler import ExitCode, UsageError, counted, did_you_mean
from toolchain import console, options

if TYPE_CHECKING:
    from toolchain.explain.causes import Cause
    from toolchain.explain.issue import LogLine
    from toolchain.explain.search import Search
    from toolchain.explain.text import LineCutter
    from toolchain.recipes.schema import Issue

_AT_ONCE_BYTES = 1 << 18
_FIELDS = (("cause", "cause"), ("evidence", "evidence"), ("action", "fix"), ("tk", "tk"))


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known of a text, and which of its lines look like an error when nothing is."""

    causes: tuple[Cause, ...]
    unknown: tuple[LogLine, ...]


def explain_command(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LOG]",
            help="A log, - for standard input, or the id of a known issue; or `--` and a command to run.",
        ),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List all known issues.")] = False,
    site: options.Site = None,
    json: options.Json = False,
) -> None:
    """Find known errors in any text: cause, evidence, fix, versions, and what tk does about each.

    The likeliest root cause comes first. Exit code 0 when every error is explained or there is none, 1 when
    something looks like an error and nothing is known of it. A command runs on tk's own input, output and
    terminal, and tk ends with its exit code; when it fails, what it wrote is explained.
    """
    from toolchain.advice import issues_of_site

    arguments: Sequence[str] = context.obj or ()
    program = list(arguments[arguments.index("--") + 1 :]) if "--" in arguments else []
    logs = (words or [])[: len(words or ()) - len(program)]
    if len(logs) + bool(program) + list_all != 1:
        raise UsageError(
            "name one log, or a command behind `--`, or give --list",
            hint="`tk explain build.log`, `tk explain -` for standard input, `tk explain -- make`",
        )
    issues = issues_of_site(site)
    if list_all:
        _list(issues, json=json)
    elif program:
        _run(program, issues, json=json)
    else:
        _explain(logs[0], issues, json=json)


def _list(issues: Sequence[Issue], *, json: bool) -> None:
    if json:
        console.data_json([one.model_dump(mode="json") for one in issues])
    else:
        console.data(console.table(("id", "cause"), [(one.id, one.cause) for one in issues]))
        console.talk(f"{counted(len(issues), 'known issue')}; `tk explain ID` shows one")


def _explain(name: str, issues: Sequence[Issue], *, json: bool) -> None:
    from toolchain.explain.search import Search

    by_id = {one.id: one for one in issues}
    if name in by_id and not _is_there(name):
        _show(by_id[name], json=json)
        return
    with _opened(name, by_id) as stream:
        explanation = _explanation(Search(issues).read(stream), issues)
    if json:
        console.data_json(_document(explanation, by_id))
    else:
        for line in _lines(explanation, by_id):
            console.data(line)
    if explanation.unknown:
        raise typer.Exit(ExitCode.DIFFERENCES)


@contextlib.contextmanager
def _opened(name: str, ids: Sequence[str] | dict[str, Issue]) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    if not _is_there(name):
        close = did_you_mean(name, ids)
        raise compiler.BadInputError(
            f"there is no log, and no known issue, called `{name}`",
            hint=close or "`tk explain --list` lists the known issues",
        )
    with options.existing_file(Path(name)).open("rb") as stream:
        yield stream


def _is_there(name: str) -> bool:
    """Whether a file has that name, which may be a whole line of a log."""
    with contextlib.suppress(OSError, ValueError):
        return Path(name).exists()
    return False


def _run(program: list[str], issues: Sequence[Issue], *, json: bool) -> None:
    """Run it on our own streams, and explain its failure on standard error."""
    from toolchain.explain.search import Search
    from toolchain.explain.text import LineCutter

    search = Search(issues)
    heard = _Heard(search, LineCutter)
    console.flush()
    code = compiler.relay(program, heard.hear, compiler.Streams(stdout=2) if json else None)
    heard.end()
    by_id = {one.id: one for one in issues}
    explanation = _explanation(search, issues) if code else Explanation((), ())
    if json:
        console.data_json({"exit_code": code, **_document(explanation, by_id)})
    elif code:
        console.talk(f"`{program[0]}` ended with exit code {code}")
        for line in _lines(explanation, by_id):
            console.talk(line)
    raise typer.Exit(code)


class _Heard:
    """What a program writes to its streams, as whole lines in the order in which they came, searched."""

    def __init__(self, search: Search, cutter: Callable[[], LineCutter]) -> None:
        self._search = search
        self._cutters: Mapping[int, LineCutter] = defaultdict(cutter)
        self._waiting = bytearray()

    def hear(self, stream: int, data: bytes) -> None:
        self._add(self._cutters[stream].cut(data))

    def end(self) -> None:
        for one in self._cutters.values():
            if rest := one.rest():
                self._add(rest + b"\n")
        self._feed()

    def _add(self, lines: bytes) -> None:
        self._waiting += lines
        if len(self._waiting) > _AT_ONCE_BYTES:
            self._feed()

    def _feed(self) -> None:
        self._search.feed(bytes(self._waiting))
        self._waiting.clear()


def _explanation(search: Search, issues: Sequence[Issue]) -> Explanation:
    from toolchain.explain.causes import ranked

    causes = ranked(search.found(), issues)
    return Explanation(causes, () if causes else search.wrong.lines())


def _document(explanation: Explanation, by_id: dict[str, Issue]) -> dict[str, Any]:
    shown = ("level", "cause", "evidence", "action", "since", "until", "tk", "platforms")
    causes = [
        {
            "id": one.issue,
            "line_number": one.number,
            "line": one.line,
            "times": one.times,
            "order": one.order,
            **{name: getattr(by_id[one.issue], name) for name in shown},
        }
        for one in explanation.causes
    ]
    return {"causes": causes, "unknown": explanation.unknown}


def _lines(explanation: Explanation, by_id: dict[str, Issue]) -> Iterator[str]:
    for place, one in enumerate(explanation.causes, 1):
        times = f", in {counted(one.times, 'line')}" if one.times > 1 else ""
        yield f"{place}. {one.issue}: {one.order}, line {one.number}{times}"
        yield console.wrapped(f"   {one.line}", "   ")
        yield from _facts(by_id[one.issue])
        yield ""
    if explanation.causes:
        return
    if not explanation.unknown:
        yield "nothing in it looks like an error"
        return
    yield "nothing is known of these lines, which look like an error:"
    yield from (f"  {one.number}: {one.text}" for one in explanation.unknown)
    yield "once you know the cause, write it to issues/NAME.yaml in a recipe folder that site.yaml names:"
    yield ""
    from toolchain.explain.unknown import skeleton

    yield skeleton([one.text for one in explanation.unknown])


def _facts(issue: Issue) -> Iterator[str]:
    for name, label in _FIELDS:
        if value := getattr(issue, name):
            yield console.wrapped(f"   {label + ':':<10}{value}", " " * 13)
    if issue.since or issue.until:
        parts = (f"since {issue.since}" if issue.since else "", f"until {issue.until}" if issue.until else "")
        yield console.wrapped(f"   {'versions:':<10}{', '.join(filter(None, parts))}", " " * 13)


def _show(issue: Issue, *, json: bool) -> None:
    if json:
        console.data_json(issue.model_dump(mode="json"))
        return
    console.data(issue.id)
    for pattern in (*issue.patterns, *(" ... ".join(one) for one in issue.together)):
        console.data(console.wrapped(f"   {'shows as:':<10}{pattern}", " " * 13))
    for line in _facts(issue):
        console.data(line)
    if issue.follows:
        console.data(f"   {'after:':<10}{', '.join(issue.follows)}")
