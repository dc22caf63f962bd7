"""Disk space and caches."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from compiler import TkError, cache_usage, load_settings
from toolchain.console import size
from toolchain.doctor.engines import engine_folder
from toolchain.doctor.row import CheckContext, Row, problem

_LITTLE = 20_000_000_000
_TOO_LITTLE = 2_000_000_000


def space(context: CheckContext) -> Iterable[Row]:
    """Space where caches and the engine's images are."""
    yield _space(
        context, "space for caches", context.cache, "set TK_CACHE_DIR to a larger disk, or `tk cache prune`"
    )
    folder = engine_folder(context)
    if folder is not None and folder.is_dir():
        yield _space(context, "space for images", folder, "`tk image prune`, or `docker system prune`")


def _space(context: CheckContext, about: str, folder: Path, fix: str) -> Row:
    there = next(one for one in (folder, *folder.parents) if one.exists())
    free = context.free(there)
    text = f"{size(free)} free at {folder}"
    if free >= _LITTLE:
        return Row(about, "ok", text)
    cause = "an image of a vendor's stack takes 5 to 30 GB"
    return Row(about, "warning" if free >= _TOO_LITTLE else "problem", text, cause, fix)


def caches(_context: CheckContext) -> Iterable[Row]:
    """What the compiler keeps."""
    try:
        usage = cache_usage(load_settings())
    except TkError as error:
        yield problem("cache", error, "warning")
        return
    yield Row("cache", "ok", f"{size(usage.bytes)} of at most {size(usage.limit_bytes)} at {usage.path}")
