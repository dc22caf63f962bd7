"""Lowered programs: run pass by pass in the interpreter, or compiled and called."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from compiler.core.settings import load_settings
from compiler.core.target import TargetFacts
from compiler.loops.interp import interpret
from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import Const, Func
from compiler.loops.verify import verify_func
from compiler.lower import LEADS_TO, PASSES
from compiler.render.cstyle import render_kernel
from compiler.schedule.layout_changes import layouts_of
from compiler.schedule.repack import repack
from compiler.targets import Target
from compiler.targets.build import compile_object
from compiler.targets.toolchain import find_cxx
from tests.support.schedules import shape_of
from tests.support.unpack import unpack

Array = np.ndarray[Any, Any]

# Threads of the test: the range is cut into uneven parts, each with scratch of its own full of NaN.
_HARNESS = """
#include "tk_plan.h"
static unsigned char scratch_of[4][1 << 20] __attribute__((aligned(64)));
struct tk_exec { int64_t symbols[8]; };
extern "C" void tk_parallel(tk_exec *, tk_body body, void *const *bufs, const int64_t *env, int64_t extent) {
  int64_t begin = 0;
  for (int tid = 0; begin < extent; ++tid) {
    int64_t end = begin + 1 + tid;
    __builtin_memset(scratch_of[tid % 3], 0xff, sizeof scratch_of[0]);
    body(bufs, env, begin, end < extent ? end : extent, scratch_of[tid % 3], tid % 3);
    begin = end;
  }
}
extern "C" unsigned char *tk_scratch(tk_exec *) { return scratch_of[3]; }
extern "C" const int64_t *tk_symbols(const tk_exec *exec) { return exec->symbols; }
extern "C" void tk_k0(void *const *bufs, tk_exec *exec);
extern "C" __attribute__((visibility("default"))) void call(void *const *bufs) {
  tk_exec exec = {};
  tk_k0(bufs, &exec);
}
"""


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


def run_flat(
    scheduled: Func,
    lowered: Func,
    inputs: dict[str, Array],
    shuffle: int | None = None,
    *,
    subgroup: int = 32,
) -> dict[str, Array]:
    """Run a lowered Func in the interpreter; workspace is poisoned, layouts are those of the schedule."""
    given = pack_inputs(scheduled, inputs)
    for item in lowered.workspace:
        kind = np.dtype(STORAGE[item.dtype.name])
        poison = np.nan if kind.kind == "f" else 85
        given[item.name] = np.full(shape_of(lowered, item.name), poison, kind)
    return unpack_outputs(scheduled, interpret(lowered, given, shuffle=shuffle, subgroup=subgroup))


def pack_inputs(func: Func, inputs: dict[str, Array]) -> dict[str, Array]:
    """Inputs in the layouts that the schedule chose."""
    packed = {}
    for name, array in inputs.items():
        for layout in layouts_of(func, name):
            array = repack(layout.index_map, array, np.nan if layout.pad is None else layout.pad)
        packed[name] = array
    return packed


def unpack_outputs(func: Func, outputs: dict[str, Array]) -> dict[str, Array]:
    """Outputs in their shapes, layouts undone."""
    done = {}
    for name, array in outputs.items():
        array = array.reshape(shape_of(func, name))
        for layout in reversed(layouts_of(func, name)):
            array = unpack(layout.index_map, array, layout.shape)
        done[name] = array
    return done


def kernel_source(lowered: Func, target: Target) -> str:
    """The file that holds the one kernel."""
    return target.vocabulary.prelude + render_kernel(lowered, 0, target.vocabulary, target.facts).text


class CompiledKernel:
    """A kernel as machine code; `flags` such as sanitizers may be added."""

    def __init__(self, lowered: Func, target: Target, directory: Path, flags: tuple[str, ...] = ()) -> None:
        self.func = lowered
        self.source = kernel_source(lowered, target)
        cxx = find_cxx(load_settings())
        options = (*target.flags(cxx), "-Werror", *flags)
        parts = []
        for name, text in (("kernel", self.source), ("harness", _HARNESS)):
            parts.append(directory / f"{name}.o")
            parts[-1].write_bytes(compile_object(cxx, options, name, text))
        library = directory / "kernel.so"
        subprocess.run([cxx.path, "-shared", *flags, *parts, "-lm", "-o", library], check=True, timeout=120)
        self._call = ctypes.CDLL(str(library)).call

    def __call__(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Call it; memory around every buffer is checked to be untouched."""
        guard = 64
        memory: dict[str, Array] = {}
        for item in self.func.params:
            size = item.shape[0]
            assert isinstance(size, Const)
            kind = np.dtype(STORAGE[item.dtype.name])
            raw = np.full(int(size.value) * kind.itemsize + 2 * guard, 0xFF, np.uint8)
            if item.name in inputs:
                raw[guard:-guard] = (
                    np.ascontiguousarray(inputs[item.name]).astype(kind).reshape(-1).view(np.uint8)
                )
            memory[item.name] = raw
        pointers = (ctypes.c_void_p * len(memory))(*(raw.ctypes.data + guard for raw in memory.values()))
        self._call(pointers)
        for name, raw in memory.items():
            fences = np.concatenate([raw[:guard], raw[-guard:]])
            assert (fences == 0xFF).all(), f"{name}: written out of bounds"
        outputs = self.func.params[len(self.func.params) - self.func.outputs :]
        return {item.name: memory[item.name][guard:-guard].view(STORAGE[item.dtype.name]) for item in outputs}
