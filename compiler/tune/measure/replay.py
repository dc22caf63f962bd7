"""Measurements that were made before, in place of new ones: the same every time, on any machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from compiler.core.diagnostics import BadInputError
from compiler.tune.candidate import KernelCandidate
from compiler.tune.record import Measured, Record

Key = tuple[str, str]
"""A workload's key, and the digest of a program for it."""


@dataclass(frozen=True, slots=True)
class ReplayMeasurer:
    """Answers from what is known of programs; `otherwise` is what becomes of others.

    asked: the programs that it was asked for, in order.
    """

    known: Mapping[Key, Measured]
    otherwise: Measured | None = None
    asked: list[Key] = field(default_factory=list)

    @classmethod
    def of(cls, records: Iterable[Record], otherwise: Measured | None = None) -> Self:
        """Of records, in which the first one of a program counts."""
        known: dict[Key, Measured] = {}
        for record in records:
            known.setdefault((record.workload, record.program), record.measured)
        return cls(known, otherwise)

    def measure(self, candidates: Sequence[KernelCandidate]) -> list[Measured]:
        """See `Measurer`; raises BadInputError for a program that is not known, if that has no answer."""
        return [self._of(one) for one in candidates]

    def _of(self, candidate: KernelCandidate) -> Measured:
        key = (candidate.workload.key, candidate.program)
        self.asked.append(key)
        found = self.known.get(key, self.otherwise)
        if found is None:
            raise BadInputError(
                "a candidate was never measured",
                where=f"workload {key[0]}",
                why=f"no record has the program {key[1]}",
                hint="replay with records of the same rules, or say what becomes of other programs",
            )
        return found
