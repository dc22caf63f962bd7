"""Lowered programs as kernels in OpenCL C, run on a driver."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import Const, Func
from compiler.render.device import render_launches
from compiler.targets import Target
from tests.support.opencl_host import Array, open_program

_GUARD = 64


class OpenClKernel:
    """One Func on a driver; as `CompiledKernel` for host code."""

    def __init__(self, lowered: Func, target: Target, library: Path, driver: str) -> None:
        self.func = lowered
        made = render_launches(lowered, 0, target.vocabulary, target.facts)
        self.launches = made.launches
        self.source = f"{target.vocabulary.prelude}\n{made.text}"
        names = [launch.name for launch in made.launches]
        self.program = open_program(library, self.source, names, driver)

    def __call__(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Run all launches; memory behind every buffer is checked to be untouched."""
        memory = []
        for item in self.func.params:
            size = item.shape[0]
            assert isinstance(size, Const)
            kind = np.dtype(STORAGE[item.dtype.name])
            raw = np.full(int(size.value) * kind.itemsize + _GUARD, 0xFF, np.uint8)
            if item.name in inputs:
                given = np.ascontiguousarray(inputs[item.name]).astype(kind).reshape(-1)
                raw[:-_GUARD] = given.view(np.uint8)
            memory.append(raw)
        for launch in self.launches:
            arrays = [memory[number] for number in launch.params]
            self.program.run(launch.name, arrays, launch.grid, launch.block, shared_bytes=launch.shared_bytes)
        for item, raw in zip(self.func.params, memory, strict=True):
            assert (raw[-_GUARD:] == 0xFF).all(), f"{item.name}: written out of bounds"
        first = len(self.func.params) - self.func.outputs
        return {
            item.name: raw[:-_GUARD].view(STORAGE[item.dtype.name])
            for item, raw in zip(self.func.params[first:], memory[first:], strict=True)
        }

    def close(self) -> None:
        self.program.close()
