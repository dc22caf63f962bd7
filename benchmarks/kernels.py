"""The five kernels that decide convolutional networks, or a network's own, each against its bound here.

    python benchmarks/kernels.py [--threads 1 2] [--kernels conv3x3-64-56]
    python benchmarks/kernels.py --network NAME [--arch ARCH] [--threads 1 2]

A convolution stands between two depthwise ones, as it does in a network: its tensors lie in memory as its
neighbours like it, not as the model's inputs and outputs must. Each model is compiled through the front door
and its kernel timed by the library's own profile. The bound is the measured peak of f32 multiply-adds or the
measured rate of reading or copying memory at the kernel's working set, whichever the kernel is limited by.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import network_kernels
import numpy as np
from roofline import memory_rate
from support import WORK, machine, markdown_table, random_inputs, save

import compiler
from compiler.core.settings import load_settings
from compiler.verify.bench import kernel_times
from compiler.verify.peak import peak_gflops
from compiler.verify.report import KernelTime
from toolchain.zoo.builder import Builder, Draft
from toolchain.zoo.write import write_model


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel: its model, its work, what limits it, and the share of the bound that is asked for."""

    name: str
    build: Callable[[], Draft]
    flops: int
    bytes: int
    bound: str
    asked: float


@dataclass(frozen=True, slots=True)
class Result:
    """What one kernel reached; `percent` is of its bound."""

    name: str
    threads: int
    ms: float
    gflops: float
    gbytes_per_s: float
    bound: str
    bound_rate: float
    percent: float
    asked: float
    error: float


def _conv(name: str, channels: tuple[int, int], size: int, kernel: int, *, depthwise: bool = False) -> Draft:
    inputs, outputs = channels
    b = Builder(name, opset=13, ir_version=8)
    x = b.input("x", (1, inputs, size, size))
    group = inputs if depthwise else 1
    before = b.conv(x, "before", inputs, 3, pads=1, group=inputs)
    y = b.conv(before, "conv", outputs, kernel, pads=kernel // 2, group=group)
    b.output(b.conv(y, "after", outputs, 3, pads=1, group=outputs), (1, outputs, size, size))
    return b.draft()


def _dense(name: str, inputs: int, outputs: int) -> Draft:
    b = Builder(name, opset=13, ir_version=8)
    x = b.input("x", (1, inputs))
    b.output(b.gemm(x, "dense", inputs, outputs), (1, outputs))
    return b.draft()


def _conv_case(name: str, channels: tuple[int, int], size: int, kernel: int) -> Case:
    inputs, outputs = channels
    weights, pixels = inputs * outputs * kernel**2, size**2
    return Case(
        name,
        lambda: _conv(name, channels, size, kernel),
        flops=2 * weights * pixels,
        bytes=4 * (weights + (inputs + outputs) * pixels),
        bound="peak",
        asked=70.0,
    )


def _depthwise_case(name: str, channels: int, size: int) -> Case:
    return Case(
        name,
        lambda: _conv(name, (channels, channels), size, 3, depthwise=True),
        flops=2 * 9 * channels * size**2,
        bytes=4 * (9 * channels + 2 * channels * size**2),
        bound="copy",
        asked=80.0,
    )


def _dense_case(name: str, inputs: int, outputs: int) -> Case:
    return Case(
        name,
        lambda: _dense(name, inputs, outputs),
        flops=2 * inputs * outputs,
        bytes=4 * (inputs * outputs + inputs + 2 * outputs),
        bound="read",
        asked=80.0,
    )


CASES = (
    _conv_case("conv3x3-64-56", (64, 64), 56, 3),
    _conv_case("conv1x1-256-64-56", (256, 64), 56, 1),
    _conv_case("conv3x3-512-7", (512, 512), 7, 3),
    _depthwise_case("depthwise3x3-256-56", 256, 56),
    _dense_case("dense-9216-4096", 9216, 4096),
)


def measure(case: Case, threads: int, directory: Path) -> Result:
    """Compile, check against onnxruntime and time one kernel."""
    model = directory / f"{case.name}.onnx"
    write_model(case.build(), model)
    report = compiler.compile_model(model, compiler.CompileOptions(output=model.with_suffix(".so")))
    library = compiler.load(report.path)
    context = library.context(threads)
    inputs = random_inputs({one.name: [int(str(dim)) for dim in one.shape] for one in library.inputs})
    own = min((_own_kernel(library, context, inputs) for _ in range(3)), key=lambda one: one.ms)
    bound = _bound(case, threads)
    ms = own.ms / own.calls
    rate = case.flops / ms * 1e-6
    traffic = case.bytes / ms * 1e-6
    return Result(
        case.name,
        threads,
        ms,
        rate,
        traffic,
        case.bound,
        bound,
        100.0 * (rate if case.bound == "peak" else traffic) / bound,
        case.asked,
        _error(model, context.run(inputs), inputs),
    )


def _own_kernel(
    library: compiler.Model, context: compiler.Context, inputs: dict[str, np.ndarray]
) -> KernelTime:
    """The kernel of the middle convolution (it pads for the last one), or the slowest of one operator."""
    times = kernel_times(library, context, inputs)
    middle = [one for one in times if {"Conv_2", "Conv_3"} <= set(one.nodes)]
    return middle[0] if middle else times[0]


def _bound(case: Case, threads: int) -> float:
    """GFLOP/s, or GB/s at the kernel's own working set: caches hold a part of it from one run to the next."""
    if case.bound == "peak":
        return peak_gflops(threads, load_settings())
    return memory_rate("read" if case.bound == "read" else "copy", threads, case.bytes // threads)


def _error(model: Path, actual: dict[str, np.ndarray], inputs: dict[str, np.ndarray]) -> float:
    """The largest difference from onnxruntime, by the largest magnitude of the output."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, inputs)
    (result,) = actual.values()
    return float(np.abs(result - expected).max() / np.abs(expected).max())


def main() -> None:
    """Print and save the table; exit status 1 when a kernel misses what is asked of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for case in CASES]
    parser.add_argument("--threads", type=int, nargs="*", default=[1])
    parser.add_argument("--kernels", nargs="*", choices=names, default=names)
    parser.add_argument("--network", nargs="*", default=[], metavar="NAME", help="all kernels of networks")
    parser.add_argument("--arch", default="", help="of networks; default: this machine's")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each network and number of threads")
    arguments = parser.parse_args()
    if arguments.network:
        raise SystemExit(_networks(arguments))
    results = []
    for threads in arguments.threads:
        chosen = [case for case in CASES if case.name in arguments.kernels]
        results += [measure(case, threads, WORK / "kernels") for case in chosen]
    text = _table(results)
    print(text)
    save("kernels", {"machine": machine(), "results": [asdict(one) for one in results]}, text)
    raise SystemExit(any(one.percent < one.asked or one.error > 1e-4 for one in results))


def _networks(arguments: argparse.Namespace) -> bool:
    """Print and save a table for each network; whether a kernel misses what is asked of it."""
    found, parts = {}, []
    for name in arguments.network:
        for threads in arguments.threads:
            one = network_kernels.measure(
                name,
                arch=arguments.arch,
                threads=threads,
                seconds=arguments.seconds,
                directory=WORK / "models",
            )
            title = (
                f"{name}, {arguments.arch or 'this machine'}, {threads} thread{'s' if threads > 1 else ''}"
            )
            found[title] = one
            parts.append(f"## {title}\n\n{network_kernels.table(one)}")
            print(f"{parts[-1]}\n", flush=True)
    record = {"machine": machine(), "networks": {title: asdict(one) for title, one in found.items()}}
    save("network-kernels", record, "\n\n".join(parts))
    return any(one.missed for one in found.values())


def _table(results: list[Result]) -> str:
    head = [
        "kernel",
        "threads",
        "ms",
        "GFLOP/s",
        "GB/s",
        "bound",
        "bound rate",
        "% of bound",
        "asked",
        "error",
    ]
    rows = [
        [
            one.name,
            str(one.threads),
            f"{one.ms:.3f}",
            f"{one.gflops:.1f}",
            f"{one.gbytes_per_s:.1f}",
            one.bound,
            f"{one.bound_rate:.1f}",
            f"{one.percent:.0f}",
            f"{one.asked:.0f}",
            f"{one.error:.1e}",
        ]
        for one in results
    ]
    return markdown_table(head, rows)


if __name__ == "__main__":
    main()
