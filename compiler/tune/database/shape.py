"""How alike workloads are: by the block that does most of the work."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from compiler.core.files import sha256_bytes
from compiler.loops.ir import Block, Const
from compiler.loops.printer import print_stmt
from compiler.stages.workload import Workload

_NAME = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class WorkloadShape:
    """What of a workload its decisions depend on most.

    family: the digest of what its heaviest reduction does, without sizes. anchor: with them; what goes into
    the reduction or comes after it is in neither. extents: of the reduction's iterations.
    """

    family: str
    anchor: str
    extents: tuple[int, ...]

    @property
    def extents_json(self) -> str:
        return json.dumps(self.extents)


def workload_shape(workload: Workload) -> WorkloadShape:
    """The shape of a workload's first form."""
    func = workload.forms[0][1][0]
    blocks = list(func.blocks())
    heavy = max(blocks, key=lambda block: (block.is_reduction, math.prod(_extents(block))), default=None)
    if heavy is None:
        return WorkloadShape(*(sha256_bytes(workload.key.encode()),) * 2, ())
    counted = [heavy] if heavy.is_reduction else blocks
    family = sha256_bytes(json.dumps([_structure(block) for block in counted]).encode())
    extents = tuple(extent for block in counted for extent in _extents(block))
    return WorkloadShape(family, sha256_bytes(f"{family} {extents}".encode()), extents)


def shape_distance(first: Sequence[int], second: Sequence[int]) -> float:
    """How far apart the extents of two workloads of a family are: 1 for a factor of two in one of them."""
    if len(first) != len(second):
        return math.inf
    return sum(abs(math.log2(max(a, 1) / max(b, 1))) for a, b in zip(first, second, strict=True))


def _structure(block: Block) -> list[object]:
    """What a block does, without the extents of its iterations and the names of its tensors."""
    buffers = list(dict.fromkeys(one.buffer for one in (*block.reads, *block.writes)))
    numbers = {item.name: f"t{number}" for number, item in enumerate(buffers)}
    body = _NAME.sub(lambda found: numbers.get(found[0], found[0]), print_stmt(block.body))
    kinds = [item.kind for item in block.iters]
    return [block.name, kinds, [str(item.dtype) for item in buffers], body]


def _extents(block: Block) -> tuple[int, ...]:
    """The extents of a block's iterations; 1 for one that is not known before it runs."""
    return tuple(int(item.extent.value) if isinstance(item.extent, Const) else 1 for item in block.iters)
