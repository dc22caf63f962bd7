"""Lowered programs: run pass by pass in the interpreter, or compiled and called."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from compiler.core.target import TargetFacts
from compiler.loops.ir import Func
from compiler.loops.verify import verify_func
from compiler.lower import LEADS_TO, PASSES
from compiler.targets import Target
from compiler.verify.interpreted import pack_inputs, run_flat, unpack_outputs
from compiler.verify.single_kernel import SingleKernel, kernel_source

Array = np.ndarray[Any, Any]


def lower_steps(func: Func, facts: TargetFacts) -> Iterator[tuple[str, Func]]:
    """The program after each pass, verified."""
    for name, step in PASSES:
        func = step(func, facts)
        verify_func(func, LEADS_TO[name], after=name)
        yield name, func


def lower_all(func: Func, facts: TargetFacts) -> Func:
    """The program after all passes."""
    *_, (_, lowered) = lower_steps(func, facts)
    return lowered


class CompiledKernel(SingleKernel):
    """A kernel as machine code, without a warning; `flags` such as sanitizers may be added."""

    def __init__(self, lowered: Func, target: Target, directory: Path, flags: tuple[str, ...] = ()) -> None:
        super().__init__(lowered, target, directory, ("-Werror", *flags))


__all__ = [
    "CompiledKernel",
    "kernel_source",
    "lower_all",
    "lower_steps",
    "pack_inputs",
    "run_flat",
    "unpack_outputs",
]
