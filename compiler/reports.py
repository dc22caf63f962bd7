"""What the front door takes and gives back: frozen records that print as tables and dump as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from compiler.core.answer import Answer
from compiler.core.device_code import MachineCode

Emit = Literal["source", "object", "library"]
EMITS: tuple[Emit, ...] = ("source", "object", "library")


@dataclass(frozen=True, slots=True)
class SizeRange:
    """Extents from `minimum` to `maximum`, of which a run has one."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class SpecialisedSizes:
    """Sizes for which a library has kernels of its own: of inputs and symbols, as in `CompileOptions`."""

    shapes: Mapping[str, tuple[int | SizeRange, ...]] = field(default_factory=dict)
    dims: Mapping[str, int | SizeRange] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """How to compile one model.

    `target` is a target's name, by default that of the host's cores; `arch` refines it (feature names of a
    CPU, architectures of a GPU with commas between them). `shapes` gives inputs their dimensions, `dims`
    symbols of any input their values (both may be ranges that each run has one of), `specialisations` are
    some of these sizes that get kernels of their own, `binds` fixes inputs that carry shapes; `threads` is
    the library's default, None for the machine's processors. `dump` is a directory that gets the text of
    every stage, `stop_after` names the last stage to run and `start_from` is an edited stage file to go on
    from. `precision` is what products may round factors of f32 to, `f32` for not at all. `without` names
    optional passes to leave out, `limits` how often some of them may be applied, `conservative` decisions of
    schedules that take their smallest option; with any of these three nothing that was tuned is used.
    `databases` are asked for tuned kernels, and with `own_database` that of the settings, if there is one;
    `trust` takes records that were made under other circumstances. `plugins` are files with the user's own
    rules, operators and passes, `installed_plugins` takes those of installed packages, too. `environment`
    says where the compile ran (an image's digest and the like); it goes into the library's manifest.
    `processes` make kernels at the same time, copies of the calling process, which should have no other
    thread that starts programs or holds locks then; None for as many as compilations may run (TK_JOBS).
    """

    output: Path
    target: str | None = None
    arch: str | None = None
    shapes: Mapping[str, tuple[int | SizeRange, ...]] = field(default_factory=dict)
    dims: Mapping[str, int | SizeRange] = field(default_factory=dict)
    specialisations: tuple[SpecialisedSizes, ...] = ()
    binds: Mapping[str, object] = field(default_factory=dict)
    threads: int | None = None
    emit: Emit = "library"
    dump: Path | None = None
    stop_after: str | None = None
    start_from: Path | None = None
    timings: bool = False
    precision: str = "f32"
    without: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)
    conservative: tuple[str, ...] = ()
    databases: tuple[Path, ...] = ()
    own_database: bool = True
    trust: bool = False
    plugins: tuple[Path, ...] = ()
    installed_plugins: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: int | None = 1


@dataclass(frozen=True, slots=True)
class StageTime:
    """Wall seconds of one stage of a compile."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LimitedPass:
    """A pass with a limit: how often it was applied, and to what the last time."""

    name: str
    applied: int
    last: str


@dataclass(frozen=True, slots=True)
class CompileReport:
    """What a compile made and what it cost; sizes in bytes, times in wall seconds.

    `path` is what was written (the library, or the directory of sources or objects); `kernels` counts unique
    kernels, `cache_hits` those whose object code was found in the cache; `cached` tells that the whole
    library was found there. `tuned` counts kernels whose schedule is that of a tuning record, `near_hits`
    those for which there are only records made under other circumstances, which differ in `near_keys`.
    `limited` are the passes that may be applied so often only. `stopped_after` is the last stage when one was
    named: there is no library then.
    """

    path: Path
    target: str
    arch: str
    seconds: float
    stages: tuple[StageTime, ...]
    kernels: int = 0
    cache_hits: int = 0
    library_bytes: int = 0
    constant_bytes: int = 0
    peak_memory: int = 0
    warnings: tuple[str, ...] = ()
    cached: bool = False
    tuned: int = 0
    near_hits: int = 0
    near_keys: tuple[str, ...] = ()
    limited: tuple[LimitedPass, ...] = ()
    stopped_after: str | None = None


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """An input or output: element type by its short name, dimensions as numbers or symbols.

    labels: the strings that its elements are the numbers of.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpCount:
    """How often one kind of operator occurs and what it computes (a multiply-add counts as two)."""

    op: str
    count: int
    flops: int


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A node that cannot be compiled, with the reason in plain words."""

    op: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class ModelReport:
    """What is inside an ONNX file; `arena_bytes` is the planned memory for intermediates, if planned.

    Where nodes are `unsupported`, nothing is known of them and those behind them (`unknown_nodes`): `flops`
    are those of the others then, and outputs are as the model declares them, with `?` for what it does not.
    """

    path: Path
    opset: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    ops: tuple[OpCount, ...]
    parameters: int
    parameter_bytes: int
    flops: int
    arena_bytes: int | None = None
    unsupported: tuple[Unsupported, ...] = ()
    unknown_nodes: int = 0


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """One built form of a library's kernels for devices of an architecture (empty: any)."""

    kind: str
    arch: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ResourceInfo:
    """What a device function takes on an architecture, as far as its toolchain tells; sizes in bytes.

    code: what its machine code says, where that was asked for. least_microseconds: what the kernel's FLOPs
    and bytes take at least there.
    """

    arch: str
    registers: int | None
    spills: int | None
    shared_bytes: int | None
    private_bytes: int | None
    code: MachineCode | None = None
    least_microseconds: float | None = None


@dataclass(frozen=True, slots=True)
class LaunchInfo:
    """One start of a device function: blocks of the grid, threads of a block, each along x, y and z.

    `shared_bytes` are asked for beside the arrays that the function declares.
    """

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    resources: tuple[ResourceInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """One unique kernel of a library; `steps` counts its uses, `nodes` are the ONNX nodes it computes.

    `record` is the id of the tuning record that it was compiled with, if any. `launches` are those of one use
    on a device. `func` and `trace` are texts, filled when asked for;
    `replays` tells whether replaying the trace gave the same source text, None when that was not tried.
    """

    index: int
    kind: str
    steps: int
    flops: int
    bytes: int
    nodes: tuple[str, ...]
    func: str = ""
    trace: str = ""
    replays: bool | None = None
    launches: tuple[LaunchInfo, ...] = ()
    record: str = ""


@dataclass(frozen=True, slots=True)
class FreeDimension:
    """A dimension that a run decides: multiples of its step from its least to its largest extent.

    counted: not its inputs' shapes say it, but what it finds in them.
    """

    name: str
    minimum: int
    maximum: int
    step: int = 1
    counted: bool = False


@dataclass(frozen=True, slots=True)
class SpecialisationInfo:
    """Sizes for which a library has kernels of its own: free dimensions that are narrower than its own.

    `kernels` by index, some of which other plans of the library may have, too.
    """

    sizes: tuple[FreeDimension, ...]
    kernels: tuple[int, ...]
    flops: int
    arena_bytes: int
    sample_bytes: int


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    """Launches of a recorded run on a device, some of them side by side on so many branches.

    chain: the most of them that follow each other.
    """

    branches: int
    launches: int
    chain: int


@dataclass(frozen=True, slots=True)
class LibraryReport:
    """What is inside a model library, read from its manifest.

    `images` are what a device may load. `module_replays`: whether the source among them is the replayed text
    of all kernels, None when that was not tried or there is none. `precision`: what factors of f32 were
    rounded to, as was asked for. `sample_bytes`: memory for each sample of a free batch, beside the
    arena. `free`: the dimensions that a run decides, in the shapes by name. `states`: inputs that a context
    keeps from the output of the run before, each with that output. `specialisations`: a run takes the first
    that holds its sizes; `flops` and memory are those of the plan for all other sizes. `recording`: None
    where all launches follow each other. `unread`: why there is no machine code of some architectures, where
    it was asked for.
    """

    path: Path
    target: str
    arch: str
    features: tuple[str, ...]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    kernels: tuple[KernelInfo, ...]
    flops: int
    library_bytes: int
    constant_bytes: int
    arena_bytes: int
    scratch_bytes: int
    toolchain: str = ""
    images: tuple[ImageInfo, ...] = ()
    module_replays: bool | None = None
    precision: str = "f32"
    sample_bytes: int = 0
    free: tuple[FreeDimension, ...] = ()
    states: tuple[tuple[str, str], ...] = ()
    specialisations: tuple[SpecialisationInfo, ...] = ()
    recording: RecordingInfo | None = None
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetReport:
    """A target that `tk compile --target` accepts, and what this machine can do with it.

    arch: the architecture by default; archs: all. compiles: whether the toolchain is here, for `arch`. loads:
    whether the driver or runtime library is here. runs: whether there is a device.
    """

    name: str
    aliases: tuple[str, ...]
    language: str
    device: str
    arch: str
    archs: tuple[str, ...]
    compiles: Answer
    loads: Answer
    runs: Answer
