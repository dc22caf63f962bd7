"""`tk run`: one inference, inputs from files or random, outputs to files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.place import placeable


@placeable
def run_command(
    library: options.Library,
    inputs: options.Input = None,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", metavar="DIR", help="Write the outputs there."),
        options.Role.RESULT,
    ] = None,
    file_format: Annotated[
        str, typer.Option("--format", metavar="KIND", help="Files to write: npy, npz (one file) or raw.")
    ] = "npy",
    shape: options.RunShape = None,
    dim: options.RunDim = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Run a compiled model once, on given or random inputs."""
    from toolchain import tensors

    tensors.check_format(file_format)
    model = compiler.load(options.existing_file(library), device=device)
    dims = options.pairs("--dim", dim, options.read_extent)
    shapes = options.pairs("--shape", shape, options.read_dims)
    sizes = compiler.sizes_of(model.manifest, model.inputs, dims, shapes)
    feeds = compiler.read_feeds(model.inputs, inputs or (), seed, sizes=sizes)
    context = model.context(threads)
    started = time.perf_counter()
    outputs = context.run(feeds)
    seconds = time.perf_counter() - started
    files = {} if output_dir is None else tensors.write_outputs(output_dir, outputs, file_format)
    summaries = [tensors.summary(name, array, files.get(name)) for name, array in outputs.items()]
    if json:
        console.data_json(
            {
                "library": library,
                "device": model.device,
                "seconds": seconds,
                "seed": seed,
                "outputs": summaries,
            }
        )
        return
    rows = [
        (one.name, one.dtype, console.shape(one.shape), one.minimum, one.maximum, one.mean, one.file)
        for one in summaries
    ]
    console.data(console.table(("output", "type", "shape", "min", "max", "mean", "file"), rows))
    place = f" on {model.device}" if model.device else ""
    console.talk(f"ran in {seconds * 1e3:.2f} ms{place}; `tk bench` measures properly")
