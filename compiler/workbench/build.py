"""One function as a model library of one kernel: loaded, called with arrays, timed, written to a file.

The library is one as `tk compile` makes them, with the runtime and its threads: what is measured of a
function by itself is what it costs in a model, and what is built can be deployed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from compiler.core.cache_space import cache_in_use
from compiler.core.diagnostics import UsageError
from compiler.core.files import private_directory, sha256_bytes, stream_atomic
from compiler.core.settings import Settings, load_settings
from compiler.graph.memory import align
from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import Func
from compiler.loops.queries import static_shape
from compiler.render.host import ArgKind, HostPlan, PlanArg, PlanDim, PlanStep, PlanTensor, render_plan
from compiler.runtime.library import Contents, link_library
from compiler.runtime.loader import Model
from compiler.runtime.tensors import Array
from compiler.schedule.schedule import Schedule
from compiler.schedule.trace import Trace
from compiler.stages.device import device_plan
from compiler.stages.kernels import Kernel, print_kernel
from compiler.stages.manifest import VERSION, described_kernel
from compiler.stages.workload import Workload
from compiler.targets import Target, get_target
from compiler.targets.build import KernelBuild
from compiler.targets.device import Images, Module
from compiler.verify.interpreted import pack_inputs, unpack_outputs
from compiler.verify.timing import Percentiles, measure
from compiler.workbench.steps import Program, func_of, lowered_for, named, operands_of, unwrapped

_ALIGNMENT = 64


@dataclass(frozen=True)
class BuiltKernel:
    """A function as machine code: call it with arrays.

    func: with its schedule; lowered: what was printed; source: the printed text. `library` are the bytes of
    the model library that it is, which `write` puts into a file.
    """

    func: Func
    lowered: Func
    source: str
    library: bytes = field(repr=False)
    model: Model = field(repr=False)

    def __call__(self, *arrays: ArrayLike, **by_name: ArrayLike) -> Array | tuple[Array, ...]:
        """Its results for the arrays of its inputs, in order or by name: one array or a tuple of them.

        Raises UsageError for arrays that do not fit; elements are converted.
        """
        with self.model.context() as context:
            results = context.run(self._feeds(arrays, by_name))
        return unwrapped(unpack_outputs(self.func, results))

    def bound(self, *arrays: ArrayLike, **by_name: ArrayLike) -> Callable[[], None]:
        """A function that runs it on these arrays and keeps nothing: what `measure` takes.

        Changes of layout are made here, before anything is timed.
        """
        return self.model.context().bind(self._feeds(arrays, by_name)).run

    def time(
        self, *arrays: ArrayLike, seconds: float = 0.5, warmup: float = 0.1, **by_name: ArrayLike
    ) -> Percentiles:
        """Milliseconds of a run on these arrays: the median `p50`, and `low` to `high` around it.

        In 95 of 100 cases the true median lies between `low` and `high`.
        """
        runs = {"": self.bound(*arrays, **by_name)}
        return measure(runs, warmup=warmup, seconds=seconds)[""]

    def write(self, path: Path | str) -> None:
        """Write the library: a file that `tk run`, `tk bench` and C++ programs load."""
        with stream_atomic(Path(path), executable=True) as stream:
            stream.write(self.library)

    def _feeds(self, arrays: Sequence[ArrayLike], by_name: Mapping[str, ArrayLike]) -> dict[str, Array]:
        packed = pack_inputs(self.func, named(self.func, arrays, by_name))
        kinds = {item.name: np.dtype(STORAGE[item.dtype.name]) for item in operands_of(self.func)}
        return {name: array.astype(kinds[name], copy=False) for name, array in packed.items()}


def build(program: Program, target: str | None = None, *, threads: int | None = None) -> BuiltKernel:
    """Build a function for a target of this machine, to be called from here.

    A parallel loop runs on so many threads, by default on one for each processor that this process may use.

    Raises UsageError for a target that there is not, HostError where its compiler or device is missing, and
    BuildError where the compiler refuses the code.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"a function cannot run on {threads} threads", hint="1 is the calling thread alone")
    func, chosen, settings = func_of(program), get_target(target), load_settings()
    kernel = kernel_of(program, func, chosen)
    with cache_in_use(settings.cache_dir), private_directory("tk-kernel") as directory:
        path = directory / "kernel.so"
        link_kernel(kernel, chosen, settings, path)
        return BuiltKernel(func, kernel.lowered, kernel.text, path.read_bytes(), Model(path, threads=threads))


def kernel_of(program: Program, func: Func, target: Target) -> Kernel:
    """A function as the one kernel of a library: `func` is what `program` made of it.

    Raises LimitError for what a device has no room for.
    """
    origin, trace = (program.origin, program.trace) if isinstance(program, Schedule) else (func, Trace())
    lowered = lowered_for(func, target)
    printed = print_kernel(0, lowered, target)
    return Kernel(
        number=0,
        func=origin,
        layouts={},
        trace=trace,
        scheduled=func,
        lowered=lowered,
        text=printed.text,
        scratch_bytes=printed.scratch_bytes,
        workload=Workload.of(origin, {}),
        launches=printed.launches,
    )


def link_kernel(kernel: Kernel, target: Target, settings: Settings, path: Path) -> None:
    """Write the model library of one kernel, number 0, whose inputs and constants are the library's inputs.

    They lie in memory as the kernel's schedule has them. Raises BuildError and HostError.
    """
    device = target.device
    plan = _plan(kernel, target)
    with KernelBuild(target, settings) as made:
        objects = [made.submit("host", render_plan(plan))]
        images = Images((), made.cxx.description)
        if device is None:
            objects.insert(0, made.submit(kernel.func.name, kernel.text))
        else:
            text = target.vocabulary.module([kernel.text])
            name = sha256_bytes(kernel.text.encode())[:8]
            images = device.build(Module(text, kernel.launches, name), target, settings)
        contents = Contents(
            manifest=_manifest(kernel, plan, images, target),
            inputs=tuple(item.name for item in operands_of(kernel.scheduled)),
            outputs=tuple(item.name for item in kernel.scheduled.results),
            constants=lambda _: None,
            images=tuple((item.kind, item.arch, item.data) for item in images.images),
            devices=made.runtime,
        )
        link_library([item.result() for item in objects], contents, path, made.toolchain, made.cache)


def _plan(kernel: Kernel, target: Target) -> HostPlan:
    """One call: inputs, workspace, outputs, as the lowered function takes them."""
    func = kernel.scheduled
    operands = operands_of(func)
    sizes = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in kernel.workspace]
    *places, arena = accumulate(sizes, initial=0)
    *counters, counter_bytes = accumulate(map(align, kernel.counters), initial=0)
    args = (
        *(PlanArg(ArgKind.INPUT, number) for number in range(len(operands))),
        *(PlanArg(ArgKind.ARENA, 0, place) for place in places),
        *(PlanArg(ArgKind.COUNTERS, 0, place) for place in counters),
        *(PlanArg(ArgKind.OUTPUT, number) for number in range(func.outputs)),
    )
    steps = (PlanStep(0, args, 0),)
    device = None
    if target.device is not None:
        device = device_plan(target.text, [kernel], steps, counter_bytes)
    return HostPlan(
        inputs=tuple(_tensor(func, item.name) for item in operands),
        outputs=tuple(_tensor(func, item.name) for item in func.results),
        steps=steps,
        arena_bytes=arena,
        scratch_bytes=kernel.scratch_bytes,
        constants_bytes=0,
        features=target.features,
        device=device,
    )


def _tensor(func: Func, name: str) -> PlanTensor:
    buffer = func.buffer(name)
    return PlanTensor(buffer.dtype, tuple(map(PlanDim, static_shape(buffer))))


def _manifest(kernel: Kernel, plan: HostPlan, images: Images, target: Target) -> bytes:
    """What the library says of itself, in the words of a model's manifest (`stages/manifest.py`)."""
    name, _, arch = target.text.partition(":")
    func = kernel.scheduled
    content: dict[str, Any] = {
        "version": VERSION,
        "target": name,
        "arch": arch,
        "features": list(target.features),
        "precision": target.facts.precision,
        "model_sha256": "",
        "toolchain": images.toolchain,
        "environment": {},
        "inputs": [_described(func, item.name) for item in operands_of(func)],
        "outputs": [_described(func, item.name) for item in func.results],
        "checks": [],
        "batch": None,
        "symbols": [],
        "states": [],
        "arena_bytes": plan.arena_bytes,
        "sample_bytes": 0,
        "scratch_bytes": plan.scratch_bytes,
        "constant_bytes": 0,
        "flops": 0,
        "default_streams": target.device.default_streams if target.device is not None else (),
        "images": [{"kind": one.kind, "arch": one.arch, "bytes": len(one.data)} for one in images.images],
        "resources": [asdict(item) for item in images.resources],
        "kernels": [_entry(kernel)],
        "steps": [{"kernel": 0, "nodes": []}],
        "specialisations": [],
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _entry(kernel: Kernel) -> dict[str, Any]:
    sizes = (prod(static_shape(item)) * item.dtype.bits for item in kernel.func.params)
    about = {"kind": "function", "ops": [], "steps": 1, "flops": 0, "bytes": sum(sizes) // 8, "nodes": []}
    return {**about, **described_kernel(kernel)}


def _described(func: Func, name: str) -> dict[str, Any]:
    buffer = func.buffer(name)
    return {"name": name, "dtype": str(buffer.dtype), "shape": list(static_shape(buffer))}
