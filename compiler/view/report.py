"""What a view of a compile consists of, as frozen records: `tk view --json` prints them, the page shows them.

Tensors, nodes, steps and kernels refer to each other by number. What could not be found out stands in
`ViewReport.unseen` with the reason, never as a made-up value.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compiler.reports import CompileOptions, LaunchInfo, TensorInfo
from compiler.verify.report import KernelTime


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """What to look at: an ONNX file, which is compiled as `options` say, or a model library.

    `profile` lets a library that runs here be measured for a short time, by `threads` threads, on `device` as
    `VerifyRequest` has it, with random inputs of `seed`.
    """

    path: Path
    options: CompileOptions | None = None
    profile: bool = True
    threads: int | None = None
    device: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ViewedTensor:
    """A tensor between kernels, an input, an output or a weight.

    number: its identity in this view. name: what the model calls it; empty for those that the compiler made.
    shape: names of dimensions, and what follows from them, where a run decides the extent.
    layout: how it lies in memory, in words, and index_map, exactly. memory: where it lies. bytes: what it
    takes there. inside: the tensor in whose memory it lies, as a view or as a part of a concatenation. What
    stays inside of a kernel has neither layout nor memory.
    """

    number: int
    name: str
    dtype: str
    shape: tuple[int | str, ...]
    layout: str
    index_map: str
    bytes: int
    memory: str
    inside: int | None = None
    is_constant: bool = False


@dataclass(frozen=True, slots=True)
class ViewedNode:
    """An operator of the graph that kernels are made from, after all rewrites.

    origin: the ONNX nodes that it came from. steps: those that compute it; none where it is another view of
    the same memory, or a concatenation whose parts are in place already.
    """

    number: int
    op: str
    origin: tuple[str, ...]
    attrs: tuple[tuple[str, str], ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ViewedStep:
    """One call of a kernel: the operators of a fused group, on its tensors.

    nodes: by number; origin: the ONNX nodes. reads, writes: tensors, without those that constants give.
    """

    number: int
    kernel: int
    ops: tuple[str, ...]
    origin: tuple[str, ...]
    nodes: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    constants: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class InnerLoop:
    """An innermost loop of a kernel's assembly: where it is, and what of it decides over its speed."""

    label: str
    instructions: int
    multiply_adds: int
    spills: int


@dataclass(frozen=True, slots=True)
class ViewedKernel:
    """A unique kernel from its definition to its machine code; sizes in bytes, texts empty where not known.

    flops and bytes are those of one call. loops: what it computes. trace: how the loops were rearranged, as
    JSON. scheduled: the loops after that. lowered: what was printed as `source`. assembly: of the processor,
    or of a device where its toolchain tells.
    """

    number: int
    kind: str
    ops: tuple[str, ...]
    steps: tuple[int, ...]
    origin: tuple[str, ...]
    flops: int
    bytes: int
    loops: str
    trace: str
    scheduled: str = ""
    lowered: str = ""
    source: str = ""
    assembly: str = ""
    inner_loops: tuple[InnerLoop, ...] = ()
    launches: tuple[LaunchInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryBar:
    """What lies at `offset` from step `first` to step `last`, both inclusive: a tensor, else workspace.

    per_sample: it lies in the part of the arena that there is once for each sample of a free batch.
    """

    tensor: int | None
    offset: int
    bytes: int
    first: int
    last: int
    per_sample: bool = False


@dataclass(frozen=True, slots=True)
class MemoryView:
    """The memory that a model takes while it runs; `scratch_bytes` are for each thread."""

    arena_bytes: int
    sample_bytes: int
    scratch_bytes: int
    constant_bytes: int
    bars: tuple[MemoryBar, ...] = ()


@dataclass(frozen=True, slots=True)
class Roofline:
    """The best rates that there are, in all: what bounds a kernel. source: where the numbers are from."""

    gflops: float
    gbytes_per_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Profile:
    """Times of a short measured run: `ms` is the median of an inference, `kernels` the slowest first.

    device: empty for the processor. warnings: what makes the times doubtful.
    """

    ms: float
    runs: int
    threads: int | None
    device: str
    kernels: tuple[KernelTime, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MergedNode:
    """An ONNX node that no operator is named after any more.

    nodes: the operators that took it in, by number: those that came of the next nodes that read what it made
    or, where there are none, of those that made what it read; none where nothing of it was needed.
    is_constant: it was computed when compiling, as it depends on constants alone.
    """

    name: str
    nodes: tuple[int, ...]
    is_constant: bool = False


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that this view lacks, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class ViewReport:
    """A compile as one document; of a library alone there are neither tensors nor nodes.

    input_tensors, output_tensors: those of `inputs` and `outputs`, in order. merged: what rewrites
    merged into other operators or removed. seconds: what the compile took, None where there was none.
    """

    path: Path
    target: str
    arch: str
    features: tuple[str, ...]
    toolchain: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    steps: tuple[ViewedStep, ...]
    kernels: tuple[ViewedKernel, ...]
    memory: MemoryView
    flops: int
    library_bytes: int
    input_tensors: tuple[int, ...] = ()
    output_tensors: tuple[int, ...] = ()
    tensors: tuple[ViewedTensor, ...] = ()
    nodes: tuple[ViewedNode, ...] = ()
    merged: tuple[MergedNode, ...] = ()
    seconds: float | None = None
    roofline: Roofline | None = None
    profile: Profile | None = None
    warnings: tuple[str, ...] = ()
    unseen: tuple[Unseen, ...] = ()
