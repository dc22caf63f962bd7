"""A target with products in less precision than f32, where its architectures multiply so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from compiler.core.diagnostics import BadInputError
from compiler.core.precision import EXACT, NARROW, check_precision
from compiler.targets.matrix_rates import JOINT_RATES, MATRIX_RATES
from compiler.targets.target import Target

_EVERYWHERE = frozenset({"f16"})
"""What every GPU in our tables computes with, matrix units or not."""

_HINTS = {
    "tf32x3": "compile for `--target cuda --arch sm_80` or later ones",
    "tf32": "compile for `--target cuda --arch sm_80` or later ones",
    "bf16": "compile for sm_80, gfx908 or later ones, Intel's PVC or DG2, or use `--precision f16`",
    "f16": "compile for a GPU",
}


def in_precision(target: Target, name: str) -> Target:
    """The target whose products may round their factors to `name`.

    Raises UsageError for an unknown one, BadInputError where an architecture has none of it.
    """
    check_precision(name)
    if name == EXACT:
        return target
    facts = target.facts
    why = "on processors products are computed in f32"
    if facts.binds_threads:
        why = f"no unit that multiplies {name} is common to these architectures, as far as tk knows"
    if not (facts.binds_threads and _multiplies(target, name)):
        raise BadInputError(
            f"products cannot be rounded to {name}",
            where=f"target `{facts.name}`, architecture `{facts.arch}`",
            why=why,
            hint=f"leave `--precision {name}` out, or {_HINTS[name]}",
        )
    return replace(target, facts=replace(facts, precision=name))


def _multiplies(target: Target, name: str) -> bool:
    """Whether all architectures have it: in a matrix unit of ours, where it saves no bytes elsewhere."""
    if name in _EVERYWHERE:
        return True
    if name not in NARROW:
        return _has(name, [unit for unit, _ in target.facts.matrix_rates])
    return all(_has(name, {*MATRIX_RATES.get(arch, ()), *JOINT_RATES.get(arch, ())}) for arch in target.archs)


def _has(name: str, units: Iterable[str]) -> bool:
    return any(unit.endswith(f".{name}") for unit in units)
