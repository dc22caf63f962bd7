"""What a model has that cannot be compiled: every node with its reason, and what is known of the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from compiler.core.diagnostics import BadInputError, did_you_mean
from compiler.core.units import counted
from compiler.core.visible import visible
from compiler.graph.ops import onnx_names

_SHOWN_GROUPS = 40

Shape = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """One node that cannot be compiled."""

    node: str
    op: str
    reason: str


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a model although some of its nodes cannot be compiled.

    Inputs and outputs are name, element type and shape, with `?` for what is not known. `ops` counts all
    nodes by operator, `flops` sums up those whose shapes are known; `unknown_nodes` are the others.
    """

    inputs: tuple[tuple[str, str, Shape], ...] = ()
    outputs: tuple[tuple[str, str, Shape], ...] = ()
    ops: Mapping[str, int] = field(default_factory=dict)
    flops: Mapping[str, int] = field(default_factory=dict)
    unknown_nodes: int = 0
    parameters: int = 0
    parameter_bytes: int = 0


class UnsupportedModelError(BadInputError):
    """The model uses operators that are not supported; `refusals` lists all of them."""

    def __init__(self, path: str, refusals: Sequence[Refusal], known: Known | None = None) -> None:
        self.refusals = tuple(refusals)
        self.known = known or Known()
        count = len(self.refusals)
        super().__init__(
            f"{counted(count, 'node')} of the model cannot be compiled",
            where=path,
            why="\n".join(["", *(f"  {row}" for row in _rows(self.refusals))]),
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Copy with the list, also across process pools."""
        return (UnsupportedModelError, (self.where, self.refusals, self.known))


def grouped(refusals: Iterable[Refusal]) -> list[tuple[Refusal, int]]:
    """The first node of each operator and reason, and how many there are."""
    first: dict[tuple[str, str], Refusal] = {}
    count: Counter[tuple[str, str]] = Counter()
    for one in refusals:
        first.setdefault((one.op, one.reason), one)
        count[one.op, one.reason] += 1
    return [(one, count[key]) for key, one in first.items()]


def _rows(refusals: Sequence[Refusal]) -> list[str]:
    groups = grouped(refusals)
    shown = groups[:_SHOWN_GROUPS]
    width = max((len(visible(one.op)) for one, _ in shown), default=0)
    rows = [
        f"{visible(one.op):<{width}}  {visible(one.node)}{_others(count)}: {visible(one.reason)}"
        for one, count in shown
    ]
    left = sum(count for _, count in groups[_SHOWN_GROUPS:])
    return [*rows, f"and {left} more nodes for {len(groups) - len(shown)} more reasons"] if left else rows


def _others(count: int) -> str:
    return f" and {count - 1} more" if count > 1 else ""


def why_unknown(domain: str, name: str) -> str:
    """The reason to refuse an operator that has no record here."""
    if name in _names_of(domain):
        return "not supported yet"
    known = {other for home, other in onnx_names() if home == domain}
    if domain and not known:
        return f"operators of {domain} are not supported yet"
    hint = did_you_mean(name, known | _names_of(domain))
    whose = f"{domain} has" if domain else "ONNX has"
    return f"{whose} no operator of this name" + (f" ({hint})" if hint else "")


def _names_of(domain: str) -> set[str]:
    """What operators ONNX has in a domain, in any version."""
    return {one.name for one in onnx.defs.get_all_schemas_with_history() if one.domain == domain}
