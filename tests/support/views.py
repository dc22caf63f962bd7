"""Made-up views of compiles, as large as asked for and with any names."""

from __future__ import annotations

from pathlib import Path

from compiler.reports import TensorInfo
from compiler.verify.report import KernelTime
from compiler.view.report import (
    InnerLoop,
    MemoryBar,
    MemoryView,
    MergedNode,
    Profile,
    Roofline,
    Unseen,
    ViewedKernel,
    ViewedNode,
    ViewedStep,
    ViewedTensor,
    ViewReport,
)

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'{{7*7}}\x1b[2J\u202e"
_TRACE = '{"version": 3, "instructions": [{"do": "split", "with": {"loop": "i"}, "gives": ["a", "b"]}]}'
_KERNELS = 3


def network_report(steps: int, name: str = "net") -> ViewReport:
    """A chain of calls, every third of which also reads a result of five steps before."""
    shape = (1, 8, 4, 4)
    tensors = tuple(
        ViewedTensor(n, f"{name} t{n}", "f32", shape, "row-major", "", 512, f"arena+{512 * (n % 7)}")
        for n in range(steps + 1)
    )
    reads = [(n, n - 5) if n % 3 == 0 and n >= 5 else (n,) for n in range(steps)]
    calls = tuple(
        ViewedStep(n, n % _KERNELS, ("Conv", "Relu"), (f"{name} {n}",), (n,), reads[n], (), (n + 1,))
        for n in range(steps)
    )
    nodes = tuple(
        ViewedNode(n, "Conv", (f"{name} {n}",), (("group", "1"),), reads[n], (n + 1,), (n,))
        for n in range(steps)
    )
    kernels = tuple(_kernel(n, steps, name) for n in range(min(_KERNELS, steps)))
    bars = tuple(MemoryBar(n + 1, 512 * (n % 7), 512, n, min(n + 6, steps - 1)) for n in range(steps))
    times = tuple(
        KernelTime(one.number, len(one.steps), 1.0 + one.number, 2.5, 1.5, one.origin) for one in kernels
    )
    return ViewReport(
        path=Path(f"{name}.onnx".replace("/", "\\")),
        target="cpu",
        arch=name,
        features=("avx2",),
        toolchain=name,
        inputs=(TensorInfo(name, "f32", shape),),
        outputs=(TensorInfo(name, "f32", shape),),
        steps=calls,
        kernels=kernels,
        memory=MemoryView(512 * 7, 0, 0, 4096, bars),
        flops=10**9,
        library_bytes=10**6,
        input_tensors=(0,),
        output_tensors=(steps,),
        tensors=tensors,
        nodes=nodes,
        merged=(MergedNode(f"{name} gone", (0,)),),
        seconds=1.0,
        roofline=Roofline(100.0, 10.0, "measured on this machine with 1 thread"),
        profile=Profile(6.0, 20, 1, "", times, (name,)),
        warnings=(name,),
    )


def library_report(steps: int) -> ViewReport:
    """The same as a library tells it."""
    whole = network_report(steps)
    return ViewReport(
        path=Path("net.so"),
        target=whole.target,
        arch=whole.arch,
        features=whole.features,
        toolchain=whole.toolchain,
        inputs=whole.inputs,
        outputs=whole.outputs,
        steps=tuple(ViewedStep(one.number, one.kernel, one.ops, one.origin) for one in whole.steps),
        kernels=whole.kernels,
        memory=MemoryView(512 * 7, 0, 0, 4096),
        flops=whole.flops,
        library_bytes=whole.library_bytes,
        roofline=whole.roofline,
        unseen=(Unseen("tensors", "a library does not tell"),),
    )


def _kernel(number: int, steps: int, name: str) -> ViewedKernel:
    calls = tuple(range(number, steps, _KERNELS))
    return ViewedKernel(
        number=number,
        kind="anchor",
        ops=("Conv", "Relu"),
        steps=calls,
        origin=tuple(f"{name} {n}" for n in calls),
        flops=2_500_000,
        bytes=1_500_000,
        loops=f"func {name}",
        trace=_TRACE,
        source="\n".join(f"line {n} of {name}" for n in range(600)),
        assembly=f"tk_k{number}:\n" + "\tnop\n" * 400 + ".L1:\n\tret\n",
        inner_loops=(InnerLoop(".L1", 10, 4, 0),),
    )
