"""`tk bench`: latency of a library, with what is needed to judge the number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import compiler
from toolchain import console, options
from toolchain.access_tables import access_document, launches_table
from toolchain.commands.place import placeable
from toolchain.progress import progress_bar

if TYPE_CHECKING:
    from toolchain.charts import BarChart, ChartForm
    from toolchain.records.record import DeviceState, Record


@placeable
def bench_command(
    library: options.Library,
    threads: options.Threads = None,
    device: options.Device = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="SECONDS", min=0.01, help="Time to measure for.")
    ] = 3.0,
    warmup: Annotated[
        float, typer.Option("--warmup", metavar="SECONDS", min=0.0, help="Seconds to run before measuring.")
    ] = 0.5,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Show the time of every kernel; by the emulator what its accesses would cost on a GPU, too.",
        ),
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="MODEL", help="Time onnxruntime on this ONNX file, interleaved."),
        options.Role.MODEL,
    ] = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option("--compare", metavar="LIBRARY", help="Time this library, too, in turns; repeatable."),
        options.Role.INPUT,
    ] = None,
    contexts: Annotated[
        int,
        typer.Option(
            "--contexts", metavar="N", min=1, max=1024, help="Inferences at once, for the throughput."
        ),
    ] = 1,
    chart: Annotated[
        Path | None,
        typer.Option("--chart", metavar="FILE", help="Draw the times as an svg or png file."),
        options.Role.RESULT,
    ] = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="Keep a record, and show what was measured here before."),
        options.Role.HERE,
    ] = False,
    records: options.Records = None,
    bind: options.Bind = None,
    shape: options.RunShape = None,
    dim: options.RunDim = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Measure the latency of a compiled model, alone or in turns with others.

    A difference counts where its 95 % confidence interval does not hold 1.
    """
    form = None if chart is None else _chart_form(chart)
    if records is not None and not record:
        raise compiler.UsageError("--records has no use alone", where="--records", hint="add --record")
    request = compiler.BenchRequest(
        library=options.existing_file(library),
        threads=threads,
        seconds=seconds,
        warmup=warmup,
        profile=profile,
        baseline=None if baseline is None else options.existing_file(baseline),
        binds=options.pairs("--bind", bind, options.read_value),
        seed=seed,
        device=device,
        compare=tuple(options.existing_file(one) for one in compare or ()),
        contexts=contexts,
        dims=options.pairs("--dim", dim, options.read_extent),
        shapes=options.pairs("--shape", shape, options.read_dims),
    )
    before = _state_before(library) if record else None
    with progress_bar(f"timing {library.name}", "part") as progress:
        report = compiler.bench_library(request, progress=progress)
    for warning in report.warnings:
        console.warn(warning)
    document = console.jsonable(report)
    document["access"] = None if report.access is None else access_document(report.access)
    earlier = () if before is None else _keep(document, request, before, records)
    if chart is not None and form is not None:
        from toolchain.charts import draw_chart

        compiler.write_atomic(chart, draw_chart(_chart(report), form))
    if json:
        console.data_json({**document, "earlier": [one.model_dump(mode="json") for one in earlier]})
        return
    _show(report)
    if earlier:
        console.data("")
        console.data(_history(earlier, document))


def _chart_form(path: Path) -> ChartForm:
    match path.suffix.lower():
        case ".svg":
            return "svg"
        case ".png":
            return "png"
    raise compiler.UsageError("a chart is an svg or a png file", where="--chart", hint="name FILE.svg")


def _state_before(library: Path) -> DeviceState:
    from toolchain.records.device_state import device_state

    return device_state(str(compiler.manifest_of(library).get("target", "")))


def _keep(
    document: Mapping[str, Any], request: compiler.BenchRequest, before: DeviceState, directory: Path | None
) -> Sequence[Record]:
    """Add a record; returns those of the same model on this machine that were there, the newest few."""
    from toolchain.records.measured import earlier_measurements, measured_record
    from toolchain.records.store import RecordStore, default_records

    store = RecordStore(directory or default_records())
    made = measured_record(document, _repeating(request), before, request.device or "")
    earlier = earlier_measurements(made, store.read())
    for path, why in store.broken.items():
        console.warn(f"{path} is no record that this version reads: {why}")
    console.talk(f"record: {store.append(made)}")
    return earlier[-_SHOWN:]


_SHOWN = 5


def _repeating(request: compiler.BenchRequest) -> list[str]:
    """The command that measures again."""
    words = ["tk", "bench", str(request.library), f"--seconds={request.seconds:g}", f"--seed={request.seed}"]
    words += [f"--threads={request.threads}"] * (request.threads is not None)
    words += [f"--device={request.device}"] * (request.device is not None)
    words += [f"--compare={one}" for one in request.compare]
    words += [f"--baseline={request.baseline}"] * (request.baseline is not None)
    words += [f"--contexts={request.contexts}"] * (request.contexts > 1)
    return [*words, "--record"]


def _show(report: compiler.BenchReport) -> None:
    console.data(console.table(_COLUMNS, _rows(report)))
    if report.device:
        console.data(f"device: {report.device}")
    if report.on_device is not None:
        kernels, copies = report.on_device.kernels_ms, report.on_device.with_copies_ms
        console.data(
            f"kernels alone {kernels:.4g} ms, with copies {copies:.4g} ms (by the device's clock), "
            f"end to end {report.p50_ms:.4g} ms"
        )
    if report.peak_gflops is not None:
        threads = compiler.counted(report.threads or 1, "thread")
        console.data(f"measured peak of this machine: {report.peak_gflops:.0f} GFLOP/s, {threads}")
    for one in _others(report):
        if one.difference is not None:
            console.data(_in_words(_name(one), one.difference))
    at_once = report.throughput
    if at_once is not None:
        console.data(
            f"{at_once.contexts} contexts at once: {at_once.per_second:.4g} inferences a second; one takes "
            f"{at_once.p50_ms:.4g} ms (p50), {at_once.p99_ms:.4g} ms (p99)"
        )
    if report.kernels:
        console.data("")
        console.data(_kernels(report))
    if report.access is not None:
        console.data("")
        console.data(launches_table(report.access))


_COLUMNS = (
    "engine",
    "threads",
    "p50 ms",
    "95 % interval",
    "p90 ms",
    "p99 ms",
    "runs",
    "GFLOP/s",
    "% of peak",
)


def _rows(report: compiler.BenchReport) -> list[tuple[object, ...]]:
    return [_row(f"tk {report.target}", report), *(_row(_name(one), one) for one in _others(report))]


def _row(name: str, one: compiler.BenchReport | compiler.EngineTimes) -> tuple[object, ...]:
    return (
        name,
        "" if one.threads is None else one.threads,
        one.p50_ms,
        f"{one.low_ms:.4g} to {one.high_ms:.4g}",
        one.p90_ms,
        one.p99_ms,
        one.runs,
        one.gflops,
        one.percent_of_peak,
    )


def _others(report: compiler.BenchReport) -> tuple[compiler.EngineTimes, ...]:
    return (*report.others, *filter(None, (report.baseline,)))


def _name(one: compiler.EngineTimes) -> str:
    return one.engine if one.library is None else f"{one.engine} ({one.library.name})"


def _in_words(name: str, found: compiler.Difference) -> str:
    verdicts = {
        "faster": "faster",
        "slower": "slower",
        "same": "no difference",
        "undecided": "undecided: this machine is too uneasy; more --seconds narrow the interval",
    }
    interval = f"{found.low:.3f} to {found.high:.3f}"
    return f"ratio to {name}: {found.ratio:.3f}, 95 % of it in {interval}: {verdicts[found.verdict]}"


def _chart(report: compiler.BenchReport) -> BarChart:
    """The medians with their intervals."""
    from toolchain.charts import Bar, BarChart, BarPanel

    others = enumerate(_others(report), start=1)
    bars = (
        Bar(f"tk {report.target}", report.p50_ms, report.low_ms, report.high_ms),
        *(Bar(_name(one), one.p50_ms, one.low_ms, one.high_ms, i) for i, one in others),
    )
    title = f"{report.library.name}: median latency and its 95 % interval"
    return BarChart(title, "ms", (BarPanel("", bars),))


def _history(earlier: Sequence[Record], document: Mapping[str, Any]) -> str:
    """What was measured before, and what that makes of now."""
    from toolchain.records.compare import latency_change, why_not_comparable
    from toolchain.records.measured import measured_latency

    now = measured_latency(document)
    rows = []
    for one in earlier:
        assert one.latency is not None
        why_not = why_not_comparable(one.latency, now)
        rows.append((
            f"{one.when:%Y-%m-%d %H:%M}",
            one.versions.tk,
            one.latency.p50_ms,
            f"{one.latency.low_ms:.4g} to {one.latency.high_ms:.4g}",
            now.p50_ms / one.latency.p50_ms,
            why_not or latency_change(one.latency, now) or "no difference",
        ))  # fmt: skip
    return console.table(("measured before", "tk", "p50 ms", "95 % interval", "now / then", "now"), rows)


def _kernels(report: compiler.BenchReport) -> str:
    header = ("kernel", "calls", "ms", "%", "GFLOP/s", "GB/s", "nodes")
    total = sum(one.ms for one in report.kernels) or 1.0
    rows = [
        (one.kernel, one.calls, one.ms, 100 * one.ms / total, one.gflops, one.gbytes_per_s, _nodes(one.nodes))
        for one in report.kernels
    ]
    return console.table(header, rows)


def _nodes(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
