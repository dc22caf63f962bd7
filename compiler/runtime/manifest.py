"""The manifest of a model library, read from its file; needs nothing but the standard library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from compiler.core.diagnostics import BadInputError
from compiler.runtime.elf import read_manifest


def manifest_of(path: Path | str) -> dict[str, Any]:
    """The manifest of the library at `path`, read from the file: runs none of its code, needs no feature.

    Raises BadInputError when the file is no model library.
    """
    return parse_manifest(read_manifest(Path(path)), str(path))


def parse_manifest(data: bytes, where: str) -> dict[str, Any]:
    """The manifest that these bytes are; raises BadInputError, naming `where`."""
    try:
        manifest = json.loads(data)
    except ValueError as error:
        raise BadInputError("the manifest of the library is damaged", where=where, why=str(error)) from error
    if not isinstance(manifest, dict):
        raise BadInputError("the manifest of the library is damaged", where=where, why="it is no object")
    return manifest


def plan_for(manifest: Mapping[str, Any], symbols: Mapping[int, int]) -> Mapping[str, Any]:
    """What the manifest says of the plan that runs with these values of symbols: `steps`, `flops`, memory.

    That is the first specialisation that holds them, else the manifest itself.
    """
    for one in manifest.get("specialisations", ()):
        ranges = enumerate(one["ranges"])
        if all(least <= symbols.get(number, -1) <= most for number, (least, most) in ranges):
            return cast(Mapping[str, Any], one)
    return manifest


def labels_of(manifest: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The strings that the elements of outputs are the numbers of, by output; none for most."""
    outputs = manifest.get("outputs", ())
    return {str(one["name"]): tuple(one["labels"]) for one in outputs if "labels" in one}
