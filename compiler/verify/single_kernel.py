"""One kernel of the host as machine code, called with arrays: no plan, no threads, no runtime around it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from compiler.core.compilers import run_compiler
from compiler.core.diagnostics import InternalError
from compiler.core.files import write_atomic
from compiler.core.settings import load_settings
from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import Func
from compiler.loops.queries import static_shape
from compiler.render.cstyle import render_kernel
from compiler.runtime.tensors import Array
from compiler.targets import Target
from compiler.targets.build import compile_object

# In place of threads: the range is cut into uneven parts, each with scratch of its own full of NaN.
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
_GUARD_BYTES = 64
_GUARD = 0xFF


def kernel_source(lowered: Func, target: Target) -> str:
    """The file that holds the one kernel."""
    return target.vocabulary.prelude + render_kernel(lowered, 0, target.vocabulary, target.facts).text


class SingleKernel:
    """A lowered Func compiled in `directory`; `flags` come behind the target's. Raises BuildError."""

    def __init__(self, lowered: Func, target: Target, directory: Path, flags: Sequence[str] = ()) -> None:
        self.func = lowered
        self.source = kernel_source(lowered, target)
        cxx = target.cxx(load_settings())
        options = (*target.flags(cxx), *flags)
        names = []
        for name, text in (("kernel", self.source), ("harness", _HARNESS)):
            write_atomic(directory / f"{name}.o", compile_object(cxx, options, name, text))
            names.append(f"{name}.o")
        argv = [cxx.path, "-shared", *flags, *names, "-lm", "-o", "kernel.so"]
        run_compiler(argv, directory, "the C++ compiler cannot link one kernel")
        self._call = ctypes.CDLL(str(directory / "kernel.so")).call

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Call it with flat arrays; raises InternalError when memory around a buffer is written to."""
        memory: dict[str, Array] = {}
        for item in self.func.params:
            kind = np.dtype(STORAGE[item.dtype.name])
            (size,) = static_shape(item)
            raw = np.full(size * kind.itemsize + 2 * _GUARD_BYTES, _GUARD, np.uint8)
            if item.name in inputs:
                flat = np.ascontiguousarray(inputs[item.name]).astype(kind).reshape(-1)
                raw[_GUARD_BYTES:-_GUARD_BYTES] = flat.view(np.uint8)
            memory[item.name] = raw
        pointers = (ctypes.c_void_p * len(memory))(
            *(raw.ctypes.data + _GUARD_BYTES for raw in memory.values())
        )
        self._call(pointers)
        for name, raw in memory.items():
            if (np.concatenate([raw[:_GUARD_BYTES], raw[-_GUARD_BYTES:]]) != _GUARD).any():
                raise InternalError(f"{name}: written out of bounds")
        return {
            item.name: memory[item.name][_GUARD_BYTES:-_GUARD_BYTES].view(STORAGE[item.dtype.name])
            for item in self.func.results
        }
