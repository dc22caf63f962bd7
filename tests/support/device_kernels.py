"""Lowered programs as kernels of a device: printed, several to a module, and run launch by launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import Const, Func
from compiler.render.device import render_launches
from compiler.render.launch import DeviceText, Launch
from compiler.targets import Target
from tests.support.emulation import Dim3, Emulated
from tests.support.opencl_host import open_program

Array = NDArray[Any]
_GUARD = 64


@dataclass(frozen=True)
class DeviceKernel:
    """One Func on a device; as `CompiledKernel` for host code. Its module may have other kernels, too.

    run: launches a kernel with a grid. blocks: the most that a launch gets where blocks deal out their work;
    few, so that each has several parts.
    """

    func: Func
    launches: tuple[Launch, ...]
    run: Callable[[Launch, Dim3, list[Array]], object]
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
            x, y, z = launch.grid
            grid = (min(x, self.blocks) if launch.elastic else x, y, z)
            self.run(launch, grid, [memory[number] for number in launch.params])
        for item, raw in zip(self.func.params, memory, strict=True):
            assert (raw[-_GUARD:] == 0xFF).all(), f"{item.name}: written out of bounds"
        first = len(self.func.params) - self.func.outputs
        return {
            item.name: raw[:-_GUARD].view(STORAGE[item.dtype.name])
            for item, raw in zip(self.func.params[first:], memory[first:], strict=True)
        }


@contextmanager
def on_opencl(
    lowered: Sequence[Func], target: Target, library: Path, driver: str
) -> Iterator[list[DeviceKernel]]:
    """The Funcs as the kernels of one program on an OpenCL driver, which takes long to build each."""
    made = _printed(lowered, target)
    names = [launch.name for one in made for launch in one.launches]
    program = open_program(library, _module(made, target), names, driver)

    def run(launch: Launch, grid: Dim3, arrays: list[Array]) -> None:
        own = np.full((grid[0], launch.block_bytes), 0xFF, np.uint8)
        given = [*arrays, own] if launch.block_bytes else arrays
        program.run(launch.name, given, grid, launch.block, shared_bytes=launch.shared_bytes)
        # Blocks that meet in one place may well take turns: it shows in parts that nobody has written.
        assert not launch.block_bytes or (own != 0xFF).any(axis=1).all(), f"{launch.name}: a part is unused"

    yield [DeviceKernel(func, one.launches, run) for func, one in zip(lowered, made, strict=True)]
    program.close()


def in_emulator(lowered: Sequence[Func], target: Target) -> list[DeviceKernel]:
    """The Funcs as the kernels of one module of CUDA or HIP in the emulator; a defect that it finds fails."""
    made = _printed(lowered, target)
    emulated = Emulated(_module(made, target))

    def run(launch: Launch, grid: Dim3, arrays: list[Array]) -> None:
        defect = emulated.launch(launch.name, grid, launch.block, arrays)
        assert not defect, defect

    return [DeviceKernel(func, one.launches, run) for func, one in zip(lowered, made, strict=True)]


def _printed(lowered: Sequence[Func], target: Target) -> list[DeviceText]:
    return [render_launches(func, n, target.vocabulary, target.facts) for n, func in enumerate(lowered)]


def _module(made: Sequence[DeviceText], target: Target) -> str:
    return "\n".join([target.vocabulary.prelude, *(one.text for one in made)])
