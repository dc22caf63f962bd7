"""What of the runtime goes along when a library is deployed: the header, and a loader for Python."""

from __future__ import annotations

from pathlib import Path

from compiler.runtime import library

_HERE = Path(__file__).resolve().parent
_PARTS = {"standalone": "__init__.py", "abi": "_abi.py", "specs": "_specs.py"}
"""Modules of ours that need the standard library only, and their files in a package for Python."""


def interface_header() -> str:
    """The text of `tk_model.h`."""
    return (library.INCLUDE / "tk_model.h").read_text(encoding="utf-8")


def python_loader() -> dict[str, str]:
    """A Python package that loads the library beside it: texts by file name."""
    found = {}
    for module, file in _PARTS.items():
        text = (_HERE / f"{module}.py").read_text(encoding="utf-8")
        for other, name in _PARTS.items():
            text = text.replace(
                f"from compiler.runtime.{other} import", f"from .{name.removesuffix('.py')} import"
            )
        assert "compiler." not in text, f"{module} imports what is not in a package"
        found[file] = text
    return found
