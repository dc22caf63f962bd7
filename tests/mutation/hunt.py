"""Breaks rendered CUDA and HIP kernels in ways drawn by a seed, and counts which breaks the emulator finds.

`python -m tests.mutation.hunt --seed 1 --mutants 40`: a line for each mutant, the survivors at the end.
A mutant is found when the emulator reports it, when a result differs from onnxruntime's, or when it does not
end. Exit code 1 when fewer are found than 95 of 100.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from compiler.core.diagnostics import CrashError
from compiler.core.files import private_directory
from compiler.core.process import run
from compiler.core.settings import child_environment, load_settings
from tests.mutation.models import MODELS
from tests.mutation.mutants import KINDS, Mutant, draw
from tests.support.emulated_models import TARGETS, emulate, text_only

ROOT = Path(__file__).resolve().parents[2]
NEEDED = 0.95
_LIMIT_SECONDS = 120.0


@dataclass(frozen=True)
class Hunted:
    """A mutant with its model and target, and what became of it."""

    model: str
    target: str
    mutant: Mutant
    outcome: str
    message: str

    @property
    def found(self) -> bool:
        return self.outcome not in ("survived", "not compiled")


@cache
def kernels(model: str, target: str) -> str:
    """The text of a model's module, which runs without a finding."""
    texts: list[str] = []

    def keep(text: str) -> str:
        texts.append(text)
        return text

    proto, feeds = MODELS[model]()
    with pytest.MonkeyPatch.context() as patch, private_directory("tk-mutant") as directory:
        text_only(patch, keep)
        emulate(proto, feeds, target, directory)
    return texts[-1]


def mutants(seed: int) -> Iterator[tuple[str, str, Mutant]]:
    """Model, target and mutant without end: the kinds in turns, the rest drawn."""
    rng = np.random.default_rng(seed)
    while True:
        for kind in KINDS:
            while True:
                model = str(rng.choice(list(MODELS)))
                target = str(rng.choice(TARGETS))
                if (mutant := draw(kernels(model, target), kind, rng)) is not None:
                    yield model, target, mutant
                    break


def hunt(model: str, target: str, mutant: Mutant) -> Hunted:
    """Run a mutant in a process of its own."""
    request = json.dumps({"model": model, "target": target, "text": mutant.text})
    env = child_environment(PYTHONPATH=str(ROOT))
    argv = [sys.executable, "-m", "tests.mutation.child"]
    try:
        done = run(argv, input=request.encode(), env=env, timeout=_LIMIT_SECONDS)
    except CrashError:
        return Hunted(model, target, mutant, "did not end", f"within {_LIMIT_SECONDS:g} s")
    if done.returncode < 0:
        return Hunted(model, target, mutant, "crashed", f"signal {-done.returncode}")
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    answer = json.loads(done.stdout)
    return Hunted(model, target, mutant, answer["outcome"], answer["message"])


def hunt_all(seed: int, count: int) -> list[Hunted]:
    """The first `count` mutants of a seed that compile, with what became of them."""
    hunted: list[Hunted] = []
    drawn = mutants(seed)
    with ThreadPoolExecutor(load_settings().jobs) as pool:
        while len(hunted) < count:
            some = [next(drawn) for _ in range(count - len(hunted))]
            results = list(pool.map(lambda one: hunt(*one), some))
            hunted += [one for one in results if one.outcome != "not compiled"]
    return hunted


def main(arguments: list[str] | None = None) -> int:
    """Hunt, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=40)
    asked = parser.parse_args(arguments)
    hunted = hunt_all(asked.seed, asked.mutants)
    sys.stdout.write("\n".join(summary(hunted, asked.seed)) + "\n")
    return 0 if sum(one.found for one in hunted) >= NEEDED * len(hunted) else 1


def summary(hunted: Sequence[Hunted], seed: int) -> Iterator[str]:
    """Lines: each mutant, how many of each kind were found, the survivors."""
    for one in hunted:
        yield f"{one.outcome:13} {one.mutant.kind:25} {one.target:12} {one.model}: {one.message[:150]}"
    yield f"\n{'kind':25} found of"
    found = Counter(one.mutant.kind for one in hunted if one.found)
    drawn = Counter(one.mutant.kind for one in hunted)
    yield from (f"{kind:25} {found[kind]:5} {drawn[kind]:2}" for kind in KINDS)
    for one in hunted:
        if not one.found:
            yield f"\nsurvived: {one.mutant.kind}, {one.target}, {one.model}, line {one.mutant.line}"
            yield f"  - {one.mutant.before}\n  + {one.mutant.after}"
    yield f"\n{sum(found.values())} of {len(hunted)} found (seed {seed})"


if __name__ == "__main__":
    sys.exit(main())
