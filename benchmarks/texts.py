"""Whether a change of the compiler leaves what it makes as it was: every network's texts on every target.

    python benchmarks/texts.py --record FOLDER             # before the change, or on another checkout
    python benchmarks/texts.py --against FOLDER [--quick]  # after it: exit status 1 where a text differs
    python benchmarks/texts.py --against FOLDER --replay   # the recorded traces, too, replayed by today

For each network and target the loops, traces, scheduled loops, sources, plan and manifest are compared by
digest; nothing is compiled to machine code, so a target needs no toolchain. What was recorded has the loops
and the trace of each kernel, so that they can be replayed. The host's own instruction sets are not asked.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from support import WORK, model_path

import compiler
from compiler.core.diagnostics import TkError
from compiler.core.files import write_atomic
from compiler.loops.text import parse_func
from compiler.schedule.trace import Trace
from compiler.stages.kernels import replay_kernel
from compiler.targets import get_target
from toolchain import zoo

TARGETS = (
    "cpu:x86-64-v3",
    "cpu:x86-64-v4",
    "cuda-nvidia:sm_90",
    "opencl-nvidia:sm_70",
    "rocm-amd:gfx908",
    "sycl-intel:spir64",
    "opencl-cpu:x86-64-v3",
    "cuda-nvidia:sm_70",
    "rocm-hygon:gfx906",
    "sycl-cpu:x86-64-v3",
    "sycl-nvidia:sm_80",
    "sycl-amd:gfx90a",
    "sycl-hygon:gfx906",
    "opencl-amd:gfx906",
    "opencl-hygon:gfx906",
    "opencl-intel:spir64",
)
"""Each target once, with several architectures where rules differ; the first six reach every rule."""
REACH_EVERY_RULE = 6
QUICK = ("mnist", "squeezenet", "transformer-encoder")
LEFT_OUT = {"perceptron-2gb"}
"""Nine times one kernel, and 2.4 GB of constants to write."""
PARTS = {
    "fuse": "20-*",
    "layout": "21-*",
    "loops": "30-*/*",
    "trace": "31-*/*",
    "schedule": "32-*/*",
    "render": "5*/*",
    "module": "51-*",
    "plan": "60-*",
    "host": "61-*",
    "manifest": "62-*",
}
"""Files of `--dump` by what they hold; those of the lowering's passes bear the names of passes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, or compare and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--record", type=Path, metavar="FOLDER", help="write what this checkout makes")
    way.add_argument("--against", type=Path, metavar="FOLDER", help="compare with what was recorded")
    parser.add_argument("--replay", action="store_true", help="replay the recorded traces, too")
    parser.add_argument("--quick", action="store_true", help="three networks, targets that reach every rule")
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="by default all of the zoo")
    parser.add_argument("--targets", nargs="+", metavar="TARGET", help="TARGET[:ARCH], by default all")
    parser.add_argument("-n", "--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    networks = options.networks or (QUICK if options.quick else sorted(set(zoo.networks()) - LEFT_OUT))
    targets = options.targets or (TARGETS[:REACH_EVERY_RULE] if options.quick else TARGETS)
    models = WORK / "models"
    models.mkdir(parents=True, exist_ok=True)
    work = partial(look_at, record=options.record, against=options.against, replay=options.replay)
    differences = 0
    with ProcessPoolExecutor(options.processes) as pool:
        pending = [
            pool.submit(work, model_path(name, models), target) for name in networks for target in targets
        ]
        for done in as_completed(pending):
            line, differs = done.result()
            differences += differs
            print(line, flush=True)
    if options.against:
        print(f"{len(pending)} pairs of network and target, {differences} differ")
    return 1 if differences else 0


def look_at(
    model: Path, target: str, *, record: Path | None, against: Path | None, replay: bool
) -> tuple[str, bool]:
    """Record one pair, or compare it: a line to print, and whether anything differs."""
    network, made = model.stem, made_now(model, target)
    if record is not None:
        write_atomic(file_of(record, network, target), gzip.compress(json.dumps(made).encode(), mtime=0))
        return f"{network} {target}: {len(made['kernels'])} kernels recorded", False
    assert against is not None
    before = json.loads(gzip.decompress(file_of(against, network, target).read_bytes()))
    found = [part for part in PARTS if made["parts"][part] != before["parts"][part]]
    if replay:
        found += [f"replay of kernel {number}" for number in not_replayed(before["kernels"], target)]
    kernels = len(before["kernels"])
    what = f"differs in {', '.join(found)}" if found else f"the same ({kernels} kernels)"
    return f"{network} {target}: {what}", bool(found)


def file_of(folder: Path, network: str, target: str) -> Path:
    """Where a pair is recorded."""
    return folder / f"{network}-{target.replace(':', '-')}.json.gz"


def made_now(model: Path, target: str) -> dict[str, Any]:
    """Digests of the texts that this checkout makes, and each kernel's loops, trace and source's digest."""
    name, _, arch = target.partition(":")
    with TemporaryDirectory() as directory:
        dump = Path(directory) / "dump"
        compiler.compile_model(
            model,
            compiler.CompileOptions(
                output=Path(directory) / "sources",
                target=name,
                arch=arch,
                emit="source",
                dump=dump,
                threads=2,
            ),
        )
        parts = {part: digest(dump, pattern) for part, pattern in PARTS.items()}
        manifest = json.loads((dump / "62-manifest.json").read_text(encoding="utf-8"))
        shutil.rmtree(dump)
    kernels = [{key: one[key] for key in ("func", "trace", "source_sha256")} for one in manifest["kernels"]]
    return {"parts": parts, "kernels": kernels}


def digest(dump: Path, pattern: str) -> str:
    """One digest of all files that fit the pattern, in the order of their names."""
    total = sha256()
    for path in sorted(dump.glob(pattern)):
        total.update(path.relative_to(dump).as_posix().encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def not_replayed(kernels: Sequence[Mapping[str, Any]], target: str) -> Iterator[int]:
    """Numbers of the recorded kernels whose traces make other sources today, or cannot be replayed."""
    chosen = get_target(*target.split(":"))
    for number, one in enumerate(kernels):
        try:
            text = replay_kernel(number, parse_func(one["func"]), Trace.from_json(one["trace"]), chosen)
        except TkError:
            text = ""
        if sha256(text.encode()).hexdigest() != one["source_sha256"]:
            yield number


if __name__ == "__main__":
    sys.exit(main())
