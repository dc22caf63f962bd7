"""What a parallel region costs: quiet, after pauses, and on a busy machine.

    python benchmarks/parallel_region.py [--threads 2] [--cxx g++]

Each row is one case: threads, pause before each region, work per thread, competing processes, and the time of
one region in microseconds. The work is what the region would take without any cost, if each thread had a
processor of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compiler.core.cache import ContentCache
from compiler.core.files import private_directory
from compiler.core.process import run
from compiler.core.settings import load_settings
from compiler.runtime.library import COMPILE_FLAGS, INCLUDE, PROGRAM_FLAGS, Contents, Toolchain, link_library

# pause in us, work in ns, regions
CASES = ((0, 0, 50_000), (100, 0, 5_000), (0, 2_000, 20_000), (0, 20_000, 4_000), (1_000, 20_000, 500))


def build(cxx: str, directory: Path) -> Path:
    """The measuring program."""
    settings = load_settings()
    source = Path(__file__).with_suffix(".cpp")
    compiled, program = directory / "main.o", directory / "parallel_region"
    flags = [*COMPILE_FLAGS, "-Wall", "-Wextra", "-Werror", "-I", str(INCLUDE)]
    done = run([cxx, *flags, "-c", str(source), "-o", str(compiled)])
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    identity = run([cxx, "--version"]).stdout
    toolchain = Toolchain(cxx, identity, jobs=settings.jobs)
    contents = Contents(b"{}", (), (), lambda stream: stream.write(b""))
    cache = ContentCache(settings.cache_dir / "objects")
    link_library([compiled], contents, program, toolchain, cache, flags=PROGRAM_FLAGS)
    return program


def spin() -> None:
    """A competitor for the processors."""
    while True:
        pass


@contextlib.contextmanager
def competitors(count: int) -> Iterator[None]:
    """`count` processes that never pause."""
    hogs = [multiprocessing.Process(target=spin, daemon=True) for _ in range(count)]
    for hog in hogs:
        hog.start()
    time.sleep(0.3)
    try:
        yield
    finally:
        for hog in hogs:
            hog.terminate()
            hog.join()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=load_settings().jobs)
    parser.add_argument("--cxx", default=shutil.which("g++") or "clang++")
    parser.add_argument("--competitors", type=int, nargs="*", default=[0, 1, 2])
    arguments = parser.parse_args()
    with private_directory("tk-benchmark") as directory:
        program = build(arguments.cxx, directory)
        print("microseconds per region")
        print("competitors threads pause_us work_us |     mean      p50      p90      p99      max")
        for count in arguments.competitors:
            with competitors(count):
                for threads in sorted({1, arguments.threads}):
                    for pause, work, regions in CASES:
                        argv = [program, threads, pause, work, regions]
                        done = run([str(argument) for argument in argv], timeout=120)
                        numbers = " ".join(f"{float(number):8.2f}" for number in done.stdout.split())
                        print(f"{count:11} {threads:7} {pause:8} {work / 1000:7.1f} | {numbers}", flush=True)


if __name__ == "__main__":
    main()
