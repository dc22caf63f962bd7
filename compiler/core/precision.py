"""What products of f32 may be computed in: names for `--precision`, and what a manifest says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.core.diagnostics import UsageError, did_you_mean

EXACT = "f32"
PRECISIONS = (EXACT, "tf32x3", "tf32", "f16", "bf16")
"""In order of their bits of fraction, but for f16, which has as many as tf32; `tf32x3` has three products."""

NARROW = frozenset({"f16", "bf16"})
"""Those in which factors are stored, too."""


def check_precision(name: str) -> None:
    """Raise UsageError for the name of no precision."""
    if name not in PRECISIONS:
        raise UsageError(
            f"unknown precision `{name}`",
            where="--precision",
            why=f"known are {', '.join(PRECISIONS)}",
            hint=did_you_mean(name, PRECISIONS),
        )


def precision_of(manifest: Mapping[str, Any]) -> str:
    """The precision that a library was compiled in; earlier ones say only whether it was tf32."""
    earlier = "tf32" if manifest.get("tf32") else EXACT
    return str(manifest.get("precision", earlier))
