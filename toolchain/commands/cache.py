"""`tk cache`: what the cache holds, and removing from it."""

from __future__ import annotations

import re
from typing import Annotated

import typer

import compiler
from toolchain import console, options

app = typer.Typer(help="The cache of compiled work: show, prune, clear.")

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(min|[smhdw])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

DryRun = Annotated[bool, typer.Option("--dry-run", help="Remove nothing; say what would be removed.")]


@app.callback(invoke_without_command=True)
def cache_show_command(context: typer.Context, json: options.Json = False) -> None:
    """Show where the cache is and what it holds.

    Everything in it is made again when it is missing. After a compile, what was not used for the longest time
    is removed until the rest is below the limit (TK_CACHE_SIZE).
    """
    if context.invoked_subcommand is not None:
        return
    usage = compiler.cache_usage(compiler.load_settings())
    if json:
        console.data_json(usage)
        return
    rows = [(one.kind, one.entries, console.size(one.bytes)) for one in usage.kinds]
    rows.append(("total", usage.entries, console.size(usage.bytes)))
    console.data(str(usage.path))
    console.data(console.table(("kind", "entries", "size"), rows))
    console.data(f"limit {console.size(usage.limit_bytes)} (TK_CACHE_SIZE)")


@app.command("prune")
def cache_prune_command(
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="TIME", help="Remove what was not used for that long: 12h, 30d."
        ),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", metavar="SIZE", help="Then the least used, down to this size: 2GB, 500M."),
    ] = None,
    dry_run: DryRun = False,
    json: options.Json = False,
) -> None:
    """Remove what was not used for a long time; without options, down to the limit."""
    settings = compiler.load_settings()
    unused = None if older_than is None else _seconds(older_than)
    most = None if max_size is None else _bytes(max_size)
    if unused is None and most is None:
        most = settings.cache_bytes
    _report(
        compiler.prune_cache(settings.cache_dir, max_bytes=most, unused_seconds=unused, dry_run=dry_run),
        dry_run=dry_run,
        json=json,
    )


@app.command("clear")
def clear_command(dry_run: DryRun = False, json: options.Json = False) -> None:
    """Remove everything."""
    settings = compiler.load_settings()
    pruned = compiler.prune_cache(settings.cache_dir, max_bytes=-1, dry_run=dry_run)
    _report(pruned, dry_run=dry_run, json=json)


def _report(pruned: compiler.Pruned, *, dry_run: bool, json: bool) -> None:
    if pruned.in_use_entries:
        stays = compiler.counted(pruned.in_use_entries, "entry stays", "entries stay")
        console.warn(f"{stays}: other processes are at work and may be using what stays")
    if json:
        console.data_json({"dry_run": dry_run, **console.jsonable(pruned)})
        return
    verb = "would remove" if dry_run else "removed"
    removed, left = console.size(pruned.removed_bytes), console.size(pruned.left_bytes)
    console.data(f"{verb} {_entries(pruned.removed_entries)}, {removed}")
    console.data(f"left {_entries(pruned.left_entries)}, {left}")


def _entries(count: int) -> str:
    return compiler.counted(count, "entry", "entries")


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise compiler.UsageError(
            f"`{text}` is no time", where="--older-than", hint="write it as 90min, 12h, 30d or 2w"
        )
    return float(found[1]) * _SECONDS[found[2]]


def _bytes(text: str) -> int:
    try:
        return compiler.read_bytes(text)
    except ValueError as error:
        raise compiler.UsageError(
            str(error), where="--max-size", hint="write it as 500M, 2GB or 1.5GiB"
        ) from error
