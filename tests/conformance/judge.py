"""Whether what a library computed is what a case says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.conformance.cases import OnnxCase
from tests.conformance.disputed import DISPUTED
from tests.conformance.outcome import State

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators whose values the standard leaves open: shapes and types are compared."""

_SHORT = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
"""Two units in the last place: what is rounded between operators is not written down by the standard."""


def judge(case: OnnxCase, made: Sequence[Sequence[np.ndarray]]) -> tuple[State, str]:
    """PASSED, ROUNDED, DISPUTED or WRONG with the reason; `made` has the outputs for each set of inputs."""
    rounded = ""
    for number, (got, (_, wanted)) in enumerate(zip(made, case.data, strict=False)):
        state, why = _outputs(case, got, wanted)
        if state is State.WRONG:
            return _disputed(case, number, got) or (state, why)
        rounded = why if state is State.ROUNDED else rounded
    return (State.ROUNDED, rounded) if rounded else (State.PASSED, "")


def _outputs(case: OnnxCase, got: Sequence[np.ndarray], wanted: Sequence[Any]) -> tuple[State, str]:
    free, rounded = not RANDOM.isdisjoint(case.operators), ""
    for name, mine, theirs in zip(case.outputs, got, wanted, strict=True):
        want = np.asarray(theirs)
        why = _difference(mine, want, case.rtol, case.atol, free=free)
        if why and _difference(
            mine, want, max(case.rtol, _SHORT.get(want.dtype.name, 0)), case.atol, free=free
        ):
            return State.WRONG, f"output {name}: {why}"
        rounded = rounded or (f"output {name}: {why}" if why else "")
    return (State.ROUNDED, rounded) if rounded else (State.PASSED, "")


def _disputed(case: OnnxCase, number: int, got: Sequence[np.ndarray]) -> tuple[State, str] | None:
    """Where the data of the case are disputed and ours is what takes their place."""
    dispute = DISPUTED.get(case.name)
    if dispute is None:
        return None
    given, _ = case.data[number]
    state, _ = _outputs(case, got, dispute.expected(case.model, given))
    return (State.DISPUTED, dispute.reason) if state is State.PASSED else None


def _difference(got: np.ndarray, want: np.ndarray, rtol: float, atol: float, *, free: bool) -> str:
    """What is wrong with an output; "" for nothing."""
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if free:
        return ""
    if want.dtype.kind in "biuSUO":
        return "" if np.array_equal(got, want) else "differs"
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    x, y = got.astype(wide), want.astype(wide)
    if np.allclose(x, y, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        return f"differs by at most {np.nanmax(np.abs(x - y)):.3g}"
