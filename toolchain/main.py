"""The `tk` command: the list of subcommands, and the one place where errors become text and exit codes."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib import import_module
from types import FrameType
from typing import Annotated, cast

import typer

from compiler import (
    ExitCode,
    GoneOn,
    HostError,
    InternalError,
    TkError,
    UsageError,
    __version__,
    did_you_mean,
    is_copy,
    load_settings,
    stop_all,
)
from toolchain import console
from toolchain.advice import explained
from toolchain.options import spread

_EXIT_INTERRUPTED = 130
_EXIT_TERMINATED = 143
_EXIT_READER_GONE = 141
"""As a shell reports a program that SIGPIPE ended."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DEFECT = "this is a defect of tk, not of your input"
_REPORT = "please report it with the output of the same command and `--debug`, which shows where"

_CHOICE = re.compile(r"'([^']*)' is not one of (.*)")

# typer keeps click's exception classes to itself; its public BadParameter is a UsageError is a
# ClickException.
_ClickUsageError, _ClickException = typer.BadParameter.__mro__[1:3]

_COMMANDS = {
    "compile": "compile:compile_command",
    "run": "run:run_command",
    "verify": "verify:verify_command",
    "reduce": "reduce:reduce_command",
    "bench": "bench:bench_command",
    "inspect": "inspect:inspect_command",
    "tune": "tune.app:app",
    "import": "import_model:import_model_command",
    "package": "package:package_command",
    "matrix": "matrix:app",
    "view": "view:view_command",
    "report": "report:report_command",
    "targets": "targets:targets_command",
    "image": "image.app:app",
    "doctor": "doctor:doctor_command",
    "explain": "explain:explain_command",
    "setup": "setup:setup_command",
    "zoo": "zoo:app",
    "cache": "cache:app",
    "ci": "ci:app",
    "demo": "demo:demo_command",
    "completion": "completion:completion_command",
    "complete-words": "completion:complete_words_command",
}
"""Where each command is, below `toolchain.commands`, in the order of `tk --help`: a function, or a group."""
_HIDDEN = frozenset({"complete-words"})
_KNOWS_OTHERS = frozenset({"demo", "complete-words"})
"""Commands that call others, or list them."""


def tk_app(names: Iterable[str] = _COMMANDS) -> typer.Typer:
    """The commands of `tk`, or some of them: what a line does not name need not be imported."""
    app = typer.Typer(
        name="tk",
        help="From model.onnx to one verified, fast model library.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(root)
    for name in names:
        module, _, attribute = _COMMANDS[name].partition(":")
        command = getattr(import_module(f"toolchain.commands.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, hidden=name in _HIDDEN)(spread(command))
    return app


class Terminated(BaseException):
    """SIGTERM arrived; a BaseException so that no handler for errors swallows it."""


def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks; accepted anywhere on the line.")
    ] = False,
) -> None:
    """Handle the options of `tk` itself."""
    del debug  # taken off the line by main(), so that it works after a subcommand too
    if version:
        console.data(f"tk {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        console.talk(context.get_help())
        raise typer.Exit(ExitCode.USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `tk` with `argv` (by default the process's arguments) and return its exit code."""
    arguments, debug = _take_debug(list(sys.argv[1:] if argv is None else argv))
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    console.expect_nothing_written()
    try:
        code = _main(arguments, debug=debug)
    except GoneOn as ended:
        return ended.code
    if is_copy():  # whoever called this goes on in the process that waits
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return code


def _main(arguments: list[str], *, debug: bool) -> int:
    with contextlib.suppress(console.ReaderGoneError):
        code, error = _code_of(arguments, debug=debug)
        if code and _asks_for_json(arguments) and not console.has_data():
            _write_error(error or console.failure_without_words(code))
        return code
    return _EXIT_READER_GONE


def _code_of(arguments: list[str], *, debug: bool) -> tuple[int, TkError | None]:
    """Exit code of a command, and the error that it ended with, which is shown."""
    try:
        debug = load_settings().debug or debug
        code = _run(arguments)
    except KeyboardInterrupt:
        return _ended("interrupted", _EXIT_INTERRUPTED)
    except Terminated:
        return _ended("terminated", _EXIT_TERMINATED)
    except console.ReaderGoneError:
        raise
    except Exception as error:  # noqa: BLE001 - the one place that turns errors into exit codes
        return _fail(error, debug=debug)
    return _ended("interrupted", code) if code == _EXIT_INTERRUPTED else (code, None)


def _ended(how: str, code: int) -> tuple[int, TkError]:
    console.talk(how)
    return code, TkError(how, code=cast("ExitCode", code))


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether the words of tk itself ask for JSON; what follows `--` belongs to other programs."""
    return "--json" in itertools.takewhile(lambda one: one != "--", arguments)


def _write_error(error: TkError) -> None:
    """The one document of a command that failed before it had a result."""
    with contextlib.suppress(HostError):  # shown already: standard output cannot be written
        console.data_json({"error": console.error_document(error)})
        console.flush()


def _run(arguments: list[str]) -> int:
    try:
        named = [name for name in arguments[:1] if name in _COMMANDS.keys() - _KNOWS_OTHERS]
        app = tk_app(named or _COMMANDS)
        code = app(arguments, prog_name="tk", standalone_mode=False, obj=tuple(arguments))
    except SystemExit as error:
        code = error.code
    except typer.Abort:
        return _EXIT_INTERRUPTED
    console.flush()
    return code if isinstance(code, int) else ExitCode.OK


def _fail(error: Exception, *, debug: bool) -> tuple[int, TkError]:
    """Show what went wrong; returns the exit code that says so, and the error in the user's words."""
    if debug:
        traceback.print_exception(error)
    shown = explained(_in_our_words(error))
    console.show_error(shown)
    if shown.code == ExitCode.INTERNAL and isinstance(error, TkError):
        _ask_for_report()
    return shown.code, shown


def _in_our_words(error: Exception) -> TkError:
    if isinstance(error, TkError):
        return error
    if isinstance(error, _ClickException):
        return _usage_error(error)
    if isinstance(error, MemoryError):
        return HostError(
            "out of memory", hint="free some memory, use a larger machine, or raise `--max-memory`"
        )
    if isinstance(error, OSError) and error.errno in _FULL:
        return HostError(
            "the disk is full",
            where=str(error.filename or ""),
            why=error.strerror or "",
            hint="free some space there, or choose other places with TMPDIR and TK_CACHE_DIR",
        )
    return InternalError(f"unexpected {type(error).__name__}: {error}", why=_DEFECT, hint=_REPORT)


def _ask_for_report() -> None:
    console.talk(f"why: {_DEFECT}")
    console.talk(f"hint: {_REPORT}")


def _usage_error(error: BaseException) -> UsageError:
    """Translate the argument parser's complaint: what, on which command, and the closest right spelling."""
    message = str(getattr(error, "format_message", lambda: str(error))())
    context = getattr(error, "ctx", None)
    command = str(getattr(context, "command_path", "tk"))
    message = message.replace(
        ": Value error, ", ": "
    )  # what reads the options puts that before its own words
    what, found, suggestion = message.partition(". Did you mean ")
    hint = f"did you mean {suggestion}" if found else _closest_option(error, context) or _closest_choice(what)
    choices = getattr(getattr(context, "command", None), "commands", {})
    if what.startswith("Missing command") and choices:
        hint = f"choose {' or '.join(name for name, one in choices.items() if not one.hidden)}"
    what = what.partition(" (Possible options:")[0].partition(" Did you mean ")[0].rstrip(".")
    help_line = f"see `{command} --help`"
    return UsageError(what[:1].lower() + what[1:], where=command, hint=hint or help_line)


def _closest_option(error: BaseException, context: object) -> str:
    name = getattr(error, "option_name", "")
    params = getattr(getattr(context, "command", None), "params", ())
    return did_you_mean(name, [option for param in params for option in param.opts]) if name else ""


def _closest_choice(message: str) -> str:
    found = _CHOICE.search(message)
    return did_you_mean(found[1], re.findall(r"'([^']+)'", found[2])) if found else ""


def _take_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """Remove `--debug` before any `--` and tell whether it was there."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [argument for argument in arguments[:end] if argument != "--debug"]
    return kept + arguments[end:], len(kept) != end


def _interrupt(_signum: int, _frame: FrameType | None) -> None:
    stop_all()
    raise KeyboardInterrupt


def _terminate(_signum: int, _frame: FrameType | None) -> None:
    stop_all()
    raise Terminated


if __name__ == "__main__":
    sys.exit(main())
