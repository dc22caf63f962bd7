"""Several targets in one `tk compile`: what each is called, and one call after the other."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

import compiler
from compiler import TkError, UsageError
from toolchain import console, options
from toolchain.advice import explained

Values = dict[str, Any]


def per_target(values: Values) -> list[Values]:
    """The parameters of one `tk compile` for each target that `--target` names, in its own words.

    One target keeps its output; several get MODEL.TARGET.so each, in the folder that `-o` names. Raises
    UsageError for unknown targets, for options that are about one and for a folder that does not exist.
    """
    if values["output"] is not None and not values["record"]:  # in a container folders are tk's own
        options.check_folder(values["output"])
    if not values["target"]:
        return [values]
    chosen = compiler.choose_targets(values["target"], values["arch"])
    each = [{**values, "target": [name], "arch": arch} for name, arch in chosen]
    if len(each) == 1:
        return each
    _check(values)
    names = _names(chosen)
    for part, name in zip(each, names, strict=True):
        part["output"] = (values["output"] or Path()) / (
            values["model"].stem + "." + name + options.suffix_of(values["emit"])
        )
        part["dump"] = values["dump"] and values["dump"] / name
    return each


def _check(values: Mapping[str, Any]) -> None:
    if values["start_from"] is not None:
        raise UsageError(
            "an edited stage is that of one target", where="--from", hint="name one target with --target"
        )
    output = values["output"]
    if output is not None and output.exists() and not output.is_dir():
        raise UsageError(
            "several targets have several results, and this is one file",
            where=f"--output {output}",
            hint="name a folder: each target's library gets a name of its own in it",
        )


def _names(chosen: Sequence[tuple[str, str | None]]) -> list[str]:
    """A name for each target; those that occur more than once are told apart by their architectures."""
    targets = [name for name, _ in chosen]
    return [
        name if targets.count(name) == 1 else f"{name}-{(arch or 'default').replace(',', '+')}"
        for name, arch in chosen
    ]


def run_each(do: Callable[[Values], None], parts: Sequence[Values]) -> None:
    """Do all parts, whatever becomes of the others; with `--json` their documents become one list.

    The exit code is that of the first part that failed.
    """
    documents: list[object] = []
    codes: list[int] = []
    for number, part in enumerate(parts):
        if number and not part["json"]:
            console.data("")
        target = part["target"][0]
        code, document = _run_one(do, part, target)
        documents.append(document)
        codes += [code] if code else []
    if parts[0]["json"]:
        console.data_json(documents)
    if codes:
        console.talk(f"{len(codes)} of {len(parts)} targets failed")
        raise typer.Exit(codes[0])


def _run_one(do: Callable[[Values], None], part: Values, target: str) -> tuple[int, object]:
    """Exit code and, with `--json`, the document of one part."""
    printed = io.StringIO()
    quiet = contextlib.redirect_stdout(printed) if part["json"] else contextlib.nullcontext()
    try:
        with quiet:
            do(part)
    except TkError as error:
        console.talk(f"target {target}:")
        console.show_error(explained(error))
        return int(error.code), {"target": target, "error": console.error_document(error)}
    except typer.Exit as error:
        return error.exit_code, {"target": target, **said_inside(printed.getvalue(), error.exit_code)}
    return 0, json.loads(printed.getvalue()) if part["json"] else None


def said_inside(text: str, code: int) -> dict[str, Any]:
    """The document of another `tk` that failed; it may have had no time to write one."""
    with contextlib.suppress(ValueError):
        document = json.loads(text)
        if isinstance(document, dict):
            return document
    return {"error": console.error_document(console.failure_without_words(code))}
