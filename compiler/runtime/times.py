"""What a library says that its runs took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepTime:
    """Wall time of one step of a profiled run; `kernel` indexes the manifest's `kernels`."""

    kernel: int
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Nanoseconds of a run on its device: of the launches alone, and with copies from and to the host."""

    kernels: int
    with_copies: int
