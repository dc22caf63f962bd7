"""The options that say in which precision products are computed."""

from __future__ import annotations

from typing import Annotated

import typer

import compiler

EXACT, TF32 = "f32", "tf32"

Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="NAME",
        help="What factors of f32 are rounded to in products, on GPUs: f16, bf16 (what is stored for them, "
        "too), tf32 (in NVIDIA's matrix units, sm_80 on) or f32 (not at all). Sums stay f32.",
    ),
]
Tf32 = Annotated[bool, typer.Option("--tf32", help="As `--precision tf32`.")]


def precision_of(precision: str | None, *, tf32: bool) -> str:
    """The precision that was asked for; raises UsageError where the two options contradict each other."""
    if tf32 and precision not in (None, TF32):
        what = f"two precisions were given: `{TF32}` and `{precision}`"
        raise compiler.UsageError(what, where="--precision", hint="leave `--tf32` out")
    return TF32 if tf32 else precision or EXACT
