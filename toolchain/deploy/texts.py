"""Texts of a package, filled in from templates; names from a model are shown as escapes, never as code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler import __version__, visible
from toolchain.deploy.library import PackagedLibrary

_FOLDER = Path(__file__).parent / "files"
_KINDS = {"f": "float", "bf": "bfloat", "i": "int", "u": "uint"}


def shipped_text(name: str) -> str:
    """A file of ours that goes along, or is a template."""
    return (_FOLDER / name).read_text(encoding="utf-8")


def filled(template: str, library: PackagedLibrary, more: Mapping[str, str] | None = None) -> str:
    """A template of ours with what it says of a library, and `more` words by their names in it."""
    words = {
        "MODULE": library.module,
        "VERSION": library.version,
        "TITLE": library.title,
        "TK": __version__,
        "MACHINE": library.needs.machine,
        "GLIBC": ".".join(map(str, library.needs.versions.get("GLIBC", (2, 17)))),
        "DEVICE": "; the runtime of its device is that of the machine" if library.needs_device else "",
        "TENSORS": _tensor_table(library.manifest),
        **(more or {}),
    }
    return re.sub(r"@([A-Z]+)@", lambda found: words[found[1]], shipped_text(template))


def _tensor_table(manifest: Mapping[str, Any]) -> str:
    """Inputs and outputs as Markdown."""
    rows = [
        f"| {kind} | {_code(one['name'])} | {_dtype(str(one['dtype']))} | {_shape(one['shape'])} |"
        for kind in ("input", "output")
        for one in manifest[f"{kind}s"]
    ]
    return "\n".join(["| | name | type | shape |", "|---|---|---|---|", *rows])


def _code(text: object) -> str:
    """Text from a model as code within a table of Markdown, where nothing of it means anything."""
    return "`" + visible(str(text)).replace("`", "'").replace("|", "¦") + "`"


def _shape(dims: Sequence[object]) -> str:
    return _code("x".join(map(str, dims))) if dims else "scalar"


def _dtype(short: str) -> str:
    found = re.fullmatch(r"(f|bf|i|u)(\d+)", short)
    return f"{_KINDS[found[1]]}{found[2]}" if found else _code(short)
