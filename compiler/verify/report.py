"""What is asked of verification and measurement, and what they answer, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from compiler.verify.access_report import AccessReport

REFERENCES = ("auto", "onnxruntime", "onnx")


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """Compare `library` with a reference run of `model`.

    `inputs` are texts NAME=FILE; inputs that are not given are random, of `seed` and the number of the run.
    `tolerance` is a part of each output's scale; None lets dtype and reduction length decide. `binds` are
    values of inputs that were fixed when compiling. `layers` compares values between fused kernels too.
    `device` chooses the device of a library for one; None leaves it to TK_DEVICE. `dims` are extents of free
    dimensions by name, `shapes` those of inputs; what is not given differs from run to run. `runs`: None is
    two, or three where there are more sizes to try.
    """

    library: Path
    model: Path
    inputs: tuple[str, ...] = ()
    binds: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0
    threads: int | None = None
    runs: int | None = None
    tolerance: float | None = None
    reference: str = "auto"
    layers: bool = False
    device: str | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output against its reference, at the element where they differ most.

    `scale` is the largest finite magnitude of the reference (1 when it is all zero); `needed` is the error as
    a part of the scale, to be compared with `tolerance`. `problem` says what made a comparison impossible.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    max_error: float
    scale: float
    where: tuple[int, ...]
    actual: float
    expected: float
    tolerance: float
    needed: float
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem and self.needed <= self.tolerance


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Every output's worst comparison over all runs; `layers` in the order of execution, if asked for.

    The outputs decide: `layers` is for finding out why. `selections` are there where outputs differ behind
    operators that select by value (selections.py): each compared from the library's own values. They decide
    in place of the outputs. `device` names the device of a library for one.
    """

    library: Path
    model: Path
    reference: str
    seed: int
    runs: int
    threads: int
    reduction_length: int
    outputs: tuple[Comparison, ...]
    layers: tuple[Comparison, ...] = ()
    selections: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()
    device: str = ""

    @property
    def passed(self) -> bool:
        return all(one.passed for one in self.decisive)

    @property
    def decisive(self) -> tuple[Comparison, ...]:
        """What the answer comes from."""
        return self.selections or self.outputs

    @property
    def needed(self) -> float:
        """The tolerance with which all outputs would pass; infinite if none would do."""
        worst = ((float("inf") if one.problem else one.needed) for one in self.decisive)
        return max(worst, default=0.0)


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """Measure `library` for about `seconds` after `warmup` seconds of runs that do not count.

    `baseline` is an ONNX file that onnxruntime runs in turns with the library, so that both see the same
    machine; so are the libraries of `compare`. `device`, `dims` and `shapes` are those of `VerifyRequest`;
    what is not given is as large as it may be, but for a batch, of which there is one. With several
    `contexts` their throughput is measured, too.
    """

    library: Path
    threads: int | None = None
    seconds: float = 3.0
    warmup: float = 0.5
    profile: bool = False
    baseline: Path | None = None
    binds: Mapping[str, object] = field(default_factory=dict)
    seed: int = 0
    device: str | None = None
    compare: tuple[Path, ...] = ()
    contexts: int = 1
    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


Verdict = Literal["faster", "slower", "same", "undecided"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Our time as a part of another's, with its 95 % confidence interval.

    same: no difference, and the interval is narrow enough to say so; undecided: the machine was too uneasy.
    """

    ratio: float
    low: float
    high: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Throughput:
    """Inferences a second of `contexts` that run at once, and the latency of one of them in milliseconds."""

    contexts: int
    per_second: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    runs: int


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """Latency of another engine or library in the same session, on `threads` cores of this machine.

    Rates are None when the operation count is not known; the rest is as in `BenchReport`. `library` and
    `device` are those of another library; `difference` is of ours to it.
    """

    engine: str
    p50_ms: float
    p90_ms: float
    p99_ms: float
    runs: int
    threads: int | None
    gflops: float | None = None
    percent_of_peak: float | None = None
    low_ms: float = 0.0
    high_ms: float = 0.0
    spread: float = 0.0
    noisy: str = ""
    library: Path | None = None
    device: str = ""
    difference: Difference | None = None


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Median time of one kernel in one inference, over all its calls."""

    kernel: int
    calls: int
    ms: float
    gflops: float | None
    gbytes_per_s: float | None
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """Median milliseconds of an inference by the device's clock: of its launches alone, and with copies.

    Launches of several runs go one behind the other, so that the host's part of starting them is not in it;
    copies are those of inputs to the device and of outputs back.
    """

    kernels_ms: float
    with_copies_ms: float


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Latency percentiles in milliseconds, and what is needed to judge them.

    `device` names the device of a library for one; `threads` counts the cores of this machine that ran the
    library, None where a device did that is not one of them. A device's times are of whole calls, with copies
    of inputs and outputs; `on_device` says what is left without. `low_ms` to `high_ms` is the 95 % confidence
    interval of the median; `noisy` says why the machine was too uneasy for the numbers to decide anything,
    else it is empty.
    `spread` is (p90 - p10) / p50; `peak_gflops` is this machine's rate of multiply-adds with
    the same threads, measured in the same session, None when no C++ compiler was found. `access` is what
    accesses of the kernels would cost on a GPU: in a profile by the emulator.
    """

    library: Path
    target: str
    threads: int | None
    runs: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    spread: float
    gflops: float | None
    peak_gflops: float | None
    percent_of_peak: float | None
    baseline: EngineTimes | None = None
    kernels: tuple[KernelTime, ...] = ()
    on_device: DeviceTimes | None = None
    warnings: tuple[str, ...] = ()
    device: str = ""
    low_ms: float = 0.0
    high_ms: float = 0.0
    noisy: str = ""
    others: tuple[EngineTimes, ...] = ()
    throughput: Throughput | None = None
    model_sha256: str = ""
    arch: str = ""
    access: AccessReport | None = None
