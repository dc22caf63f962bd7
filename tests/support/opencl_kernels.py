"""Lowered programs as kernels in OpenCL C, run on a driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import Const, Func
from compiler.render.device import Launch, render_launches
from compiler.targets import Target
from tests.support.opencl_host import Array, Program, open_program

_GUARD = 64


@dataclass(frozen=True)
class OpenClKernel:
    """One Func on a driver; as `CompiledKernel` for host code. The program may have other kernels, too.

    blocks: the most that a launch gets where blocks deal out their work; few, so that each has several parts.
    """

    func: Func
    launches: tuple[Launch, ...]
    program: Program
    blocks: int = 3

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
            x, y, z = launch.grid
            grid = (min(x, self.blocks) if launch.elastic else x, y, z)
            self.program.run(launch.name, arrays, grid, launch.block, shared_bytes=launch.shared_bytes)
        for item, raw in zip(self.func.params, memory, strict=True):
            assert (raw[-_GUARD:] == 0xFF).all(), f"{item.name}: written out of bounds"
        first = len(self.func.params) - self.func.outputs
        return {
            item.name: raw[:-_GUARD].view(STORAGE[item.dtype.name])
            for item, raw in zip(self.func.params[first:], memory[first:], strict=True)
        }


@contextmanager
def opened(
    lowered: Sequence[Func], target: Target, library: Path, driver: str
) -> Iterator[list[OpenClKernel]]:
    """The Funcs as the kernels of one program: building takes drivers longer than what is in it."""
    made = [render_launches(func, n, target.vocabulary, target.facts) for n, func in enumerate(lowered)]
    source = "\n".join([target.vocabulary.prelude, *(one.text for one in made)])
    program = open_program(library, source, [launch.name for one in made for launch in one.launches], driver)
    yield [OpenClKernel(func, one.launches, program) for func, one in zip(lowered, made, strict=True)]
    program.close()
