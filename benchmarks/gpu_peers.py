"""Latency on a GPU of this project's libraries, PyTorch (three ways) and onnxruntime, in turns.

    python benchmarks/gpu_peers.py [--device cuda] [--networks resnet50] [--batches 1 16]
        [--precisions f32 tf32 f16]

PyTorch runs eagerly, eagerly within a CUDA graph (channels last below f32), and by torch.compile with
max-autotune. All engines run in one process, get the same network of the zoo and work on one stream with
inputs and outputs on the device. Results are compared with onnxruntime's on the host before anything is
timed; a wrong one gets no time. What is missing is listed as not run, with the reason.
`--device cpu` runs it on host cores. Tables are written after each case: a run cut short keeps what it has.
With `--begin-when FILE` engines are made at once and timed when that file exists.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from batches import batched_path
from peers import Engine, Outputs, geometric_mean, worst_error
from support import (
    WORK,
    Array,
    Run,
    Times,
    interleave,
    machine,
    markdown_table,
    network_inputs,
    save,
    wait_for,
)

import compiler

NETWORKS = ("squeezenet", "resnet50", "vgg19")
ENGINES = ("tk", "eager", "graph", "compile", "onnxruntime")
TARGETS = {"cuda": "cuda-nvidia", "hip": "rocm-amd", "cpu": "cpu"}
PROVIDERS = {
    "cuda": "CUDAExecutionProvider",
    "hip": "MIGraphXExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
GOAL = 2.0
"""Of the speed acceptance: tk by torch.compile, batch 1."""

# By the output's scale: f32 sums in any order; tf32 and f16 keep 10 bits of each factor through fifty layers.
_TOLERANCE = {"f32": 1e-3, "tf32": 5e-2, "f16": 5e-2}


class NotRun(Exception):  # noqa: N818 - a state, not an error
    """An engine that this machine cannot run, with the reason."""


@dataclass(frozen=True, slots=True)
class Case:
    """One row: a network, images at a time, and what matrix units may round factors to."""

    network: str
    batch: int
    precision: str


@dataclass(slots=True)
class Measured:
    """Of each engine: wall time with the wait for the device, the device's own median in ms, worst error."""

    case: Case
    times: dict[str, Times] = field(default_factory=dict)
    device_ms: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)

    def ratio(self, engine: str) -> float | None:
        """The wall time of tk by an engine's, None where one is missing."""
        if engine not in self.times or "tk" not in self.times:
            return None
        return self.times["tk"].median / self.times[engine].median


class Bed:
    """Where tensors lie and how long a run takes: on the host, or on a GPU's stream as PyTorch sees it."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.torch = _torch()
        self.on_gpu = device != "cpu" and self.torch is not None and self.torch.cuda.is_available()
        self._stream = self.torch.cuda.Stream() if self.on_gpu else None

    @property
    def stream(self) -> int | None:
        """The stream that all engines work on, as a pointer."""
        return int(self._stream.cuda_stream) if self._stream is not None else None

    def describe(self) -> str:
        """Where tensors lie, for the head of the table."""
        if self.on_gpu:
            return f"{self.torch.cuda.get_device_name()}; inputs and outputs lie on the device"
        return "inputs and outputs lie on the host, and copies are in the times"

    def placed(self, arrays: Mapping[str, Array]) -> dict[str, Any]:
        """The arrays where runs take them from."""
        if not self.on_gpu:
            return dict(arrays)
        return {name: self.torch.from_numpy(array).cuda() for name, array in arrays.items()}

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Work of PyTorch goes to the stream; nothing is kept for gradients."""
        with contextlib.ExitStack() as stack:
            if self.torch is not None:
                stack.enter_context(self.torch.inference_mode())
            if self._stream is not None:
                self._stream.wait_stream(self.torch.cuda.current_stream())
                stack.enter_context(self.torch.cuda.stream(self._stream))
            yield

    def timed(self, run: Run, device_ms: list[float]) -> Run:
        """A run that waits until the device is done, and notes the device's own time where it has one."""
        if not self.on_gpu:
            return run
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))

        def waited() -> None:
            begin.record()
            run()
            end.record()
            end.synchronize()
            device_ms.append(begin.elapsed_time(end))

        return waited

    def prepare(self, precision: str) -> None:
        """What PyTorch's products may do, and that cuDNN searches among its kernels."""
        allowed = precision == "tf32"
        if self.torch is not None:
            self.torch.backends.cudnn.benchmark = True
            self.torch.backends.cuda.matmul.allow_tf32 = allowed
            self.torch.backends.cudnn.allow_tf32 = allowed


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


# ---------------------------------------------------------------- engines


def open_tk(model: Path, inputs: Mapping[str, Array], bed: Bed, case: Case) -> Engine:
    """Our library for the device, on the common stream."""
    output = model.with_name(f"{model.stem}-{bed.device}-{case.precision}.so")
    target = TARGETS[bed.device]
    options = compiler.CompileOptions(
        output=output, target=target, arch=compiler.arch_here(target), precision=case.precision
    )
    loaded = compiler.load(compiler.compile_model(model, options).path)
    out = None
    if bed.on_gpu:
        out = {one.name: bed.torch.empty(one.largest_shape, device="cuda") for one in loaded.outputs}
    bound = loaded.context(stream=bed.stream).bind(bed.placed(inputs), out=out)

    def outputs() -> Outputs:
        bound.run()
        return {name: _fetched(value) for name, value in bound.outputs().items()}

    return Engine("tk", bound.run, outputs)


def _fetched(value: Any) -> Array:
    """A copy on the host of an array or a tensor of PyTorch."""
    return value.copy() if isinstance(value, np.ndarray) else np.array(value.cpu().numpy())


def open_eager(model: Path, inputs: Mapping[str, Array], bed: Bed, case: Case) -> Engine:
    """The network as PyTorch runs it operator by operator."""
    network, tensors = _network(model, inputs, bed, case)
    return _torch_engine("eager", network, tensors)


def open_graph(model: Path, inputs: Mapping[str, Array], bed: Bed, case: Case) -> Engine:
    """The operators of PyTorch within a CUDA graph, channels last where factors are rounded."""
    if not bed.on_gpu:
        raise NotRun("graphs are of a GPU")
    network, tensors = _network(model, inputs, bed, case, channels_last=case.precision != "f32")
    torch, graph = bed.torch, bed.torch.cuda.CUDAGraph()
    for _ in range(3):
        network(*tensors)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        result = network(*tensors)

    def replay(_: object = (network, tensors)) -> None:  # what the graph reads lives as long as it does
        graph.replay()

    def outputs() -> Outputs:
        replay()
        torch.cuda.synchronize()
        return {key: _fetched(value) for key, value in result.items()}

    return Engine("graph", replay, outputs)


def open_compile(model: Path, inputs: Mapping[str, Array], bed: Bed, case: Case) -> Engine:
    """torch.compile with everything that makes it fast: search among kernels, and CUDA graphs."""
    (network, tensors), torch = _network(model, inputs, bed, case), bed.torch
    from torch_network import search_by_threads

    torch._inductor.config.freezing = True  # noqa: SLF001 - weights are constants, as in a library of ours
    search_by_threads()
    torch._dynamo.reset()  # noqa: SLF001 - the documented way to compile anew with other settings
    compiled = torch.compile(network, mode="max-autotune", dynamic=False)

    def run(*tensors: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*tensors)

    for _ in range(3):  # compiles, warms up, records
        run(*tensors)
    return _torch_engine("compile", run, tensors)


def _network(
    model: Path, inputs: Mapping[str, Array], bed: Bed, case: Case, *, channels_last: bool = False
) -> tuple[Any, list[Any]]:
    if bed.torch is None:
        raise NotRun("torch is not installed (pip install torch)")
    if bed.device != "cpu" and not bed.on_gpu:
        raise NotRun(f"torch {bed.torch.__version__} sees no GPU")
    from torch_network import torch_network

    place = "cuda" if bed.on_gpu else "cpu"
    network = torch_network(model, half=case.precision == "f16").to(place)
    if channels_last:
        network = network.to(memory_format=bed.torch.channels_last)
    return network, [bed.torch.from_numpy(one).to(place) for one in inputs.values()]


def _torch_engine(name: str, network: Callable[..., Any], tensors: Sequence[Any]) -> Engine:
    return Engine(
        name,
        lambda: network(*tensors),
        lambda: {key: _fetched(value) for key, value in network(*tensors).items()},
    )


def open_onnxruntime(model: Path, inputs: Mapping[str, Array], bed: Bed, case: Case) -> Engine:
    """One session on the device, bound to tensors there."""
    import onnxruntime

    provider = PROVIDERS[bed.device]
    if provider not in onnxruntime.get_available_providers():
        raise NotRun(f"onnxruntime {onnxruntime.__version__} has no {provider} (pip install onnxruntime-gpu)")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    settings: dict[str, str] = {}
    if bed.device == "cuda":
        settings = {"use_tf32": str(int(case.precision == "tf32")), "cudnn_conv_algo_search": "EXHAUSTIVE"}
        if bed.stream is not None:
            settings["user_compute_stream"] = str(bed.stream)
    session = onnxruntime.InferenceSession(str(model), options, providers=[(provider, settings)])
    if provider not in session.get_providers():
        raise NotRun(f"onnxruntime {onnxruntime.__version__} does not start its {provider}")
    names = [one.name for one in session.get_outputs()]
    if not bed.on_gpu:
        feeds = dict(inputs)
        return Engine(
            "onnxruntime",
            lambda: session.run(None, feeds),
            lambda: dict(zip(names, session.run(None, feeds), strict=True)),
        )
    binding, tensors = session.io_binding(), bed.placed(inputs)
    for name, tensor in tensors.items():
        binding.bind_input(name, "cuda", 0, np.float32, tuple(tensor.shape), tensor.data_ptr())
    for name in names:
        binding.bind_output(name, "cuda")

    def run(_: object = tensors) -> None:  # the tensors live as long as what is bound to them
        session.run_with_iobinding(binding)

    def outputs() -> Outputs:
        run()
        return dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))

    return Engine("onnxruntime", run, outputs)


OPEN: Mapping[str, Callable[[Path, Mapping[str, Array], Bed, Case], Engine]] = {
    "tk": open_tk,
    "eager": open_eager,
    "graph": open_graph,
    "compile": open_compile,
    "onnxruntime": open_onnxruntime,
}


# ---------------------------------------------------------------- measuring


def expected_outputs(model: Path, inputs: Mapping[str, Array]) -> Outputs:
    """What onnxruntime gives on the host."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(inputs)), strict=True))


def measure(
    case: Case,
    bed: Bed,
    engines: Sequence[str],
    seconds: float,
    directory: Path,
    begin_when: Path | None = None,
) -> Measured:
    """Open every engine, compare its result, then time those that were right in turns."""
    model = batched_path(case.network, case.batch, directory)
    inputs = network_inputs(case.network, case.batch)
    result, opened = Measured(case), dict[str, Engine]()
    expected = expected_outputs(model, inputs)
    bed.prepare(case.precision)
    with bed.entered():
        for name in engines:
            if name == "onnxruntime" and case.precision == "f16":
                result.not_run[name] = "it takes the model's own types"
                continue
            try:
                engine = OPEN[name](model, inputs, bed, case)
                result.errors[name] = worst_error(engine.outputs(), expected)
            except Exception as error:  # noqa: BLE001 - one engine's failure is a row of the table, not the end
                result.not_run[name] = _reason(error)
                continue
            if result.errors[name] <= _TOLERANCE[case.precision]:
                opened[name] = engine
            else:
                result.not_run[name] = f"wrong result: off by {result.errors[name]:.1e}"
        device_ms: dict[str, list[float]] = {name: [] for name in opened}
        runs = {name: bed.timed(one.run, device_ms[name]) for name, one in opened.items()}
        wait_for(begin_when)
        result.times = interleave(runs, seconds=seconds)
    result.device_ms = {name: statistics.median(some) for name, some in device_ms.items() if some}
    return result


def _reason(error: Exception) -> str:
    name = "" if isinstance(error, NotRun) else f"{type(error).__name__}: "
    return f"{name}{error}".replace("\n", "; ")[:500]


# ---------------------------------------------------------------- the table


def table(results: Sequence[Measured], engines: Sequence[str]) -> str:
    """One row per case: medians with the device's own in brackets, ratios of tk to the others, its error."""
    others = [name for name in engines if name != "tk"]
    head = ["network", "batch", "precision", *(f"{name} ms" for name in engines)]
    head += [*(f"tk / {name}" for name in others), "error"]
    rows = [
        [
            one.case.network,
            str(one.case.batch),
            one.case.precision,
            *(_shown(one, name) for name in engines),
            *(_ratio(one.ratio(name)) for name in others),
            f"{one.errors['tk']:.1e}" if "tk" in one.errors else "-",
        ]
        for one in results
    ]
    return markdown_table(head, rows)


def _shown(one: Measured, name: str) -> str:
    if name not in one.times:
        return "not run"
    device = f" ({one.device_ms[name]:.3f})" if name in one.device_ms else ""
    return f"{one.times[name].median:.3f}{device}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def verdict(results: Sequence[Measured]) -> str:
    """Where tk stands against the goal, in one sentence."""
    ratios = {one.case: found for one in results if one.case.batch == 1 and (found := one.ratio("compile"))}
    if not ratios:
        return f"Goal, {GOAL} times torch.compile for batch 1: not measured."
    worst = max(ratios, key=lambda case: ratios[case])
    reached = "reached" if ratios[worst] <= GOAL else "not reached"
    return (
        f"Goal, {GOAL} times torch.compile for batch 1: {reached}; geometric mean "
        f"{geometric_mean(list(ratios.values())):.2f}, worst {ratios[worst]:.2f} in {worst.network}."
    )


def report(results: Sequence[Measured], engines: Sequence[str], bed: Bed, facts: Mapping[str, Any]) -> str:
    """The whole record as markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    where = f"{bed.describe()}. {facts['processor']}, {facts['processors']} processors"
    head = f"{where}; {versions}; {facts['when']}"
    note = "Medians of wall time with the wait for the device; in brackets the device's own, by its events."
    missing = {
        f"- {_named(one.case)}, {name}: not run: {why}"
        for one in results
        for name, why in one.not_run.items()
    }
    return "\n\n".join(
        [head, note, table(results, engines), verdict(results), "\n".join(sorted(missing))]
    ).rstrip()


def _named(case: Case) -> str:
    return f"{case.network}, batch {case.batch}, {case.precision}"


def measure_all(
    device: str,
    cases: Sequence[Case],
    engines: Sequence[str],
    seconds: float,
    directory: Path,
    name: str,
    *,
    end: float = math.inf,
    begin_when: Path | None = None,
) -> str:
    """Measure, print and save the cases that begin before `end` (`time.monotonic`); why nothing was run."""
    target = TARGETS[device]
    found = next(one for one in compiler.list_targets() if one.name == target)
    if not found.runs:
        return f"not run: {target}: {found.runs.reason}"
    bed, facts, results, text = Bed(device), machine(), list[Measured](), ""
    for case in cases:
        if time.monotonic() > end:
            print(f"{_named(case)}: not run: no time was left")
            continue
        one = measure(case, bed, engines, seconds, directory, begin_when)
        results.append(one)
        shown = ", ".join(f"{key} {_shown(one, key)}" for key in engines)
        print(f"{_named(case)}: {shown}", flush=True)
        text = report(results, engines, bed, facts)
        save(
            name,
            {"machine": facts, "device": bed.describe(), "results": [asdict(one) for one in results]},
            text,
        )
    return text


def cases_of(networks: Sequence[str], batches: Sequence[int], precisions: Sequence[str]) -> list[Case]:
    """All combinations, networks outermost."""
    return [Case(name, batch, mode) for name in networks for batch in batches for mode in precisions]


def main() -> None:
    """Measure, or say why not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=list(TARGETS), default="cuda")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 16])
    parser.add_argument(
        "--precisions", nargs="*", choices=list(_TOLERANCE), help="default: all, on host cores f32"
    )
    parser.add_argument("--engines", nargs="*", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--seconds", type=float, default=3.0, help="per engine and case")
    parser.add_argument("--models", type=Path, default=WORK / "models", help="where the networks are kept")
    parser.add_argument("--name", help="of the files that are written")
    parser.add_argument("--begin-when", type=Path, metavar="FILE", help="time when this file exists")
    given = parser.parse_args()
    precisions = given.precisions or (["f32"] if given.device == "cpu" else list(_TOLERANCE))
    cases = cases_of(given.networks, given.batches, precisions)
    name = given.name or f"gpu-peers-{given.device}"
    text = measure_all(
        given.device,
        cases,
        given.engines,
        given.seconds,
        given.models,
        name,
        begin_when=given.begin_when,
    )
    print(f"\n{text}")


if __name__ == "__main__":
    main()
