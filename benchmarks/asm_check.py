"""No vector spill in the innermost loops of convolution and GEMM kernels: looks at their assembly.

    python benchmarks/asm_check.py MODEL.onnx ... [--arch ARCH] [-v]

Without models: the nine networks of the speed table. Exit code 1 when a kernel spills.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from compiler.compile import compile_model
from compiler.core.diagnostics import TkError
from compiler.core.files import private_directory
from compiler.core.settings import load_settings
from compiler.reports import CompileOptions
from compiler.targets import get_target
from compiler.targets.assembly import innermost_loops, spilling_loops
from compiler.targets.build import compile_object
from compiler.targets.toolchain import find_cxx
from toolchain.zoo import make, networks


def main(arguments: Sequence[str] | None = None) -> int:
    """Check every model; print one line for each, and the spilling loops."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--arch", default="host")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every loop with multiply-adds")
    options = parser.parse_args(arguments)
    with private_directory("tk-asm") as directory:
        models = options.models or [_made(name, directory) for name in _light()]
        return max([_check(model, options.arch, directory, verbose=options.verbose) for model in models])


def _light() -> list[str]:
    """Names of the networks of the speed table."""
    return [name for name, record in networks().items() if record.builder == "light"]


def _made(name: str, directory: Path) -> Path:
    make(name, directory / f"{name}.onnx")
    return directory / f"{name}.onnx"


def _check(model: Path, arch: str, directory: Path, *, verbose: bool) -> int:
    dump = directory / f"{model.stem}-stages"
    sources = directory / f"{model.stem}-sources"
    compile_model(model, CompileOptions(target=f"cpu:{arch}", output=sources, emit="source", dump=dump))
    kernels = json.loads((dump / "62-manifest.json").read_text())["kernels"]
    paths = [sources / f"k{number:03}.cpp" for number, item in enumerate(kernels) if item["kind"] == "anchor"]
    loops = spilled = 0
    for path, text in _assembly(paths, arch):
        found = [loop for loop in innermost_loops(text) if loop.multiply_adds >= 4]
        bad = spilling_loops(text)
        loops, spilled = loops + len(found), spilled + len(bad)
        for loop in found if verbose else bad:
            count = len(loop.instructions)
            of = f"{loop.multiply_adds} of {count}"
            print(f"  {path.name} {loop.function} {loop.label}: {of}, {len(loop.spills)} spills")
    print(f"{model.stem}: {len(paths)} kernels, {loops} loops with multiply-adds, {spilled} of them spill")
    return 1 if spilled else 0


def _assembly(paths: list[Path], arch: str) -> Iterator[tuple[Path, str]]:
    """The assembly of each kernel file, as the target's build makes it."""
    target, settings = get_target(f"cpu:{arch}"), load_settings()
    cxx = find_cxx(settings)
    flags = target.flags(cxx)

    def assemble(path: Path) -> str:
        return compile_object(cxx, flags, path.name, path.read_text(), output="-S").decode()

    with ThreadPoolExecutor(settings.jobs) as pool:
        yield from zip(paths, pool.map(assemble, paths), strict=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TkError as error:
        print("\n".join(error.lines()), file=sys.stderr)
        sys.exit(int(error.code))
