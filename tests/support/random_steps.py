"""Random steps of a schedule, one proposer for each primitive whose good arguments need thought.

Arguments of the others are guessed from the names of their fields, so that a new primitive is tested without
being asked for.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from compiler.loops.ir import Block, Buffer, For, ForKind, Region, Select, Seq, Store
from compiler.schedule import tensor_intrinsics
from compiler.schedule.primitives import PRIMITIVES
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import iter_kinds, outer_blocks
from compiler.schedule.schedule import Schedule

RECKLESS = 0.25  # share of proposals that ignore what the primitive is known to refuse
TAILS = ("guard", "partition", "shift", "mask", "roundup")


def serial(s: Schedule) -> list[For]:
    return [item for item in s.program.loops.values() if item.kind is ForKind.SERIAL]


def is_reduce(item: For) -> bool:
    return any("reduce" in iter_kinds(block, item.var.name) for block in outer_blocks(item))


def is_innermost(item: For) -> bool:
    return not any(isinstance(below, For) for below in item.body.walk())


def pick(r: random.Random, items: list[Any]) -> Any:
    if not items:
        raise LookupError
    return r.choice(items)


def chains(s: Schedule, length: int) -> list[tuple[str, ...]]:
    """Names of loops that directly hold each other."""
    found = []
    for first in serial(s):
        path = [first]
        while len(path) < length and isinstance(path[-1].body, For):
            path.append(path[-1].body)
        if len(path) == length:
            found.append(tuple(item.var.name for item in path))
    return found


def same_kind(s: Schedule, names: tuple[str, ...]) -> bool:
    return len({is_reduce(s.loop(name)) for name in names}) == 1


def split(s: Schedule, r: random.Random) -> dict[str, Any]:
    loop = pick(r, [item for item in serial(s) if item.extent.value > 1])
    factor = r.randint(1, loop.extent.value)
    factors = r.choice([(None, factor), (None, factor), (factor, None), (None, factor, r.randint(1, 2))])
    return {"loop": loop.var.name, "factors": factors, "tail": r.choice(TAILS)}


def fuse(s: Schedule, r: random.Random) -> dict[str, Any]:
    blind = r.random() < RECKLESS
    return {"loops": pick(r, [names for names in chains(s, 2) if blind or same_kind(s, names)])}


def reorder(s: Schedule, r: random.Random) -> dict[str, Any]:
    names = list(pick(r, chains(s, r.choice((2, 3, 4)))))
    r.shuffle(names)
    return {"loops": tuple(names)}


def tile(s: Schedule, r: random.Random) -> dict[str, Any]:
    names = pick(r, chains(s, 2))
    sizes = tuple(r.randint(1, 4) for _ in names)
    return {"loops": names, "sizes": sizes, "tail": r.choice(("guard", "mask"))}


def parallel(s: Schedule, r: random.Random) -> dict[str, Any]:
    around = {ForKind.PARALLEL, ForKind.BOUND}
    blind = r.random() < RECKLESS
    free = [
        item
        for item in serial(s)
        if (blind or not is_reduce(item))
        and not any(other.kind in around for other in s.program.loops_around(item.var.name))
        and not any(isinstance(below, For) and below.kind in around for below in item.body.walk())
    ]
    return {"loop": pick(r, free).var.name}


def vectorize(s: Schedule, r: random.Random) -> dict[str, Any]:
    blind = r.random() < RECKLESS
    free = [item for item in serial(s) if is_innermost(item) and (blind or not is_reduce(item))]
    return {"loop": pick(r, free).var.name}


def unroll(s: Schedule, r: random.Random) -> dict[str, Any]:
    return {"loop": pick(r, serial(s)).var.name}


def bind(s: Schedule, r: random.Random) -> dict[str, Any]:
    if any(item.kind is ForKind.BOUND for item in s.program.loops.values()):
        raise LookupError
    return {**parallel(s, r), "tag": r.choice(("blockIdx.x", "blockIdx.y", "vthread.x"))}


def annotate(s: Schedule, r: random.Random) -> dict[str, Any]:
    target = r.choice([*s.program.loops, *s.program.blocks])
    return {"target": target, "key": f"note{r.randint(0, 99)}", "value": r.choice((1, "text", (1, 2)))}


def unannotate(s: Schedule, r: random.Random) -> dict[str, Any]:
    notes = [
        (name, key)
        for table in (s.program.loops, s.program.blocks)
        for name, item in table.items()
        for key, _ in item.annotations
        if key.startswith("note")
    ]
    target, key = pick(r, notes)
    return {"target": target, "key": key}


def is_local(s: Schedule, buffer: Buffer) -> bool:
    return buffer in s.func.allocs


def compute_inline(s: Schedule, r: random.Random) -> dict[str, Any]:
    fit = [
        item.name
        for item in s.program.blocks.values()
        if not item.is_reduction
        and item.init is None
        and isinstance(item.body, Store)
        and is_local(s, item.body.buffer)
        and len(s.program.writers(item.body.buffer.name)) == 1
    ]
    return {"block": pick(r, fit)}


def producers(s: Schedule, block: Block) -> list[Block]:
    """Blocks that write what a block reads, in program order."""
    read = {region.buffer.name for region in block.reads}
    return [
        other for other in s.program.blocks.values() if other is not block and touches(other.writes, read)
    ]


def consumers(s: Schedule, block: Block) -> list[Block]:
    """Blocks that read what a block writes, in program order."""
    written = {region.buffer.name for region in block.writes}
    return [
        other for other in s.program.blocks.values() if other is not block and touches(other.reads, written)
    ]


def touches(regions: tuple[Region, ...], names: set[str]) -> bool:
    return any(region.buffer.name in names for region in regions)


def reverse_compute_inline(s: Schedule, r: random.Random) -> dict[str, Any]:
    fit = []
    for item in s.program.blocks.values():
        makers = producers(s, item)
        if not item.is_reduction and len(makers) == 1 and not makers[0].is_reduction:
            fit.append(item.name)
    return {"block": pick(r, fit)}


def reductions(s: Schedule) -> list[str]:
    return [name for name, item in s.program.blocks.items() if item.is_reduction and item.init is not None]


def reduce_loops(s: Schedule, block: str) -> list[str]:
    return [name for name in s.loops(block) if "reduce" in iter_kinds(s.block(block), name)]


def decompose_reduction(s: Schedule, r: random.Random) -> dict[str, Any]:
    block = pick(r, reductions(s))
    loops = s.loops(block)
    first = loops.index(pick(r, reduce_loops(s, block)[: 3 if r.random() < RECKLESS else 1]))
    return {"block": block, "loop": loops[r.randint(0, first)]}


def rfactor(s: Schedule, r: random.Random) -> dict[str, Any]:
    block = pick(r, reductions(s))
    return {"block": block, "loop": pick(r, reduce_loops(s, block)), "axis": r.randint(0, 1)}


def sample_tile(s: Schedule, r: random.Random) -> dict[str, Any]:
    loop = pick(r, serial(s)).var.name
    return {"loop": loop, "parts": r.randint(1, 3), "largest": 4, "dividing": r.random() < 0.5}


def sample_categorical(_s: Schedule, _r: random.Random) -> dict[str, Any]:
    return {"candidates": (1, 2, 4), "weights": (0.5, 0.25, 0.25)}


def sample_compute_location(s: Schedule, r: random.Random) -> dict[str, Any]:
    return {"block": compute_at(s, r)["block"]}


def compute_at(s: Schedule, r: random.Random) -> dict[str, Any]:
    fit = []
    for block in s.program.blocks.values():
        written = [region.buffer for region in block.writes]
        users = consumers(s, block)
        if users and all(is_local(s, item) and len(s.program.writers(item.name)) == 1 for item in written):
            shared = set(s.loops(users[0].name)).intersection(*(s.loops(user.name) for user in users))
            own = set(s.loops(block.name))
            fit += [(block.name, loop) for loop in s.loops(users[0].name) if loop in shared - own]
    block, loop = pick(r, fit)
    return {"block": block, "loop": loop}


def cache_read(s: Schedule, r: random.Random) -> dict[str, Any]:
    block = pick(r, [item for item in s.program.blocks.values() if item.reads])
    return {"block": block.name, "buffer": pick(r, list(block.reads)).buffer.name, "scope": "scratch"}


def cache_write(s: Schedule, r: random.Random) -> dict[str, Any]:
    block = pick(r, list(s.program.blocks.values()))
    return {"block": block.name, "buffer": pick(r, list(block.writes)).buffer.name, "scope": "scratch"}


def cache_inplace(s: Schedule, r: random.Random) -> dict[str, Any]:
    updates = [item for item in s.program.blocks.values() if item.is_reduction and item.init is None]
    block = pick(r, updates)
    buffer = block.writes[0].buffer.name
    return {
        "block": block.name,
        "buffer": buffer,
        "scope": "scratch",
        "loop": pick(r, list(s.loops(block.name))),
    }


def reverse_compute_at(s: Schedule, r: random.Random) -> dict[str, Any]:
    fit = []
    blind = r.random() < RECKLESS
    for block in s.program.blocks.values():
        makers = producers(s, block)
        if len(makers) == 1 and not block.is_reduction:
            own = set(s.loops(block.name))
            for loop in s.loops(makers[0].name):
                if not blind and "reduce" in iter_kinds(makers[0], loop):
                    break
                if loop not in own:
                    fit.append((block.name, loop))
    block, loop = pick(r, fit)
    return {"block": block, "loop": loop}


def decompose_padding(s: Schedule, r: random.Random) -> dict[str, Any]:
    fit = [
        name
        for name, item in s.program.blocks.items()
        if isinstance(getattr(item.body, "value", None), Select)
    ]
    return {"block": pick(r, fit)}


def pad_einsum(s: Schedule, r: random.Random) -> dict[str, Any]:
    block = pick(r, [name for name in reductions(s) if name in {"c", "conv"}])
    iters = s.block(block).iters
    repeated = [n for n, item in enumerate(iters) if item.kind == "spatial" and r.random() < RECKLESS]
    return {"block": block, "padding": tuple(r.choice((1, 2, 4)) for _ in iters), "repeated": tuple(repeated)}


def tensorize(s: Schedule, r: random.Random) -> dict[str, Any]:
    return {"target": pick(r, list(s.program.loops)), "intrinsic": pick(r, list(tensor_intrinsics.names()))}


def software_pipeline(s: Schedule, r: random.Random) -> dict[str, Any]:
    loop = pick(r, [item for item in serial(s) if isinstance(item.body, Seq)])
    stages = sorted(r.choice((0, 1)) for _ in loop.body.stmts[1:])
    return {"loop": loop.var.name, "stages": (0, *stages)}


def vthread(s: Schedule, r: random.Random) -> dict[str, Any]:
    return {"loop": pick(r, [item for item in serial(s) if not is_reduce(item)]).var.name}


PROPOSERS: dict[str, Callable[[Schedule, random.Random], dict[str, Any]]] = {
    item.__name__: item
    for item in (
        split,
        fuse,
        reorder,
        tile,
        parallel,
        vectorize,
        unroll,
        bind,
        annotate,
        unannotate,
        compute_inline,
        reverse_compute_inline,
        decompose_reduction,
        rfactor,
        sample_tile,
        sample_categorical,
        sample_compute_location,
        compute_at,
        reverse_compute_at,
        cache_read,
        cache_write,
        cache_inplace,
        decompose_padding,
        pad_einsum,
        tensorize,
        software_pipeline,
        vthread,
    )
}


GUESSES: dict[str, Callable[[Schedule, dict[str, Any], random.Random], Any]] = {
    "block": lambda s, _, r: pick(r, list(s.program.blocks)),
    "loop": lambda s, found, r: pick(
        r, list(s.loops(found["block"]) if "block" in found else s.program.loops)
    ),
    "buffer": lambda s, found, r: pick(r, touched(s, found["block"]) if "block" in found else local(s)),
    "scope": lambda _s, _, r: r.choice(("global", "scratch")),
    "axis": lambda _s, _, r: r.choice((0, 0, 1)),
    "factor": lambda _s, _, r: r.choice((4, 8)),
    "index_map": lambda s, found, r: index_map(s, found, r),
    "pad": lambda _s, _, _r: 0.0,
}
"""Fields in an order in which later ones may depend on earlier ones."""


def touched(s: Schedule, block: str) -> list[str]:
    return [region.buffer.name for region in (*s.block(block).reads, *s.block(block).writes)]


def local(s: Schedule) -> list[str]:
    return [item.name for item in s.func.allocs]


def guess(cls: type[Primitive], s: Schedule, r: random.Random) -> dict[str, Any]:
    """Arguments from the names of the fields of a primitive."""
    fields = {item.name: item for item in dataclasses.fields(cls)}
    found: dict[str, Any] = {}
    for name, make in GUESSES.items():
        if name in fields:
            found[name] = make(s, found, r)
    for name, item in fields.items():
        if name not in found:
            assert item.default is not dataclasses.MISSING, f"{cls.name}.{name}: add a proposer or a guess"
    return found


def index_map(s: Schedule, found: dict[str, Any], r: random.Random) -> str:
    if "buffer" in found:
        rank = len(s.func.buffer(found["buffer"]).shape)
    else:
        rank = len(s.block(found["block"]).iters)
    names = [f"a{number}" for number in range(rank)]
    if rank == 0:
        raise LookupError
    turn = r.randrange(rank)
    outputs = [*names[turn:], *names[:turn]]
    if r.random() < 0.5:
        at, size = r.randrange(rank), r.choice((2, 4))
        outputs[at : at + 1] = [f"{outputs[at]} // {size}", f"{outputs[at]} % {size}"]
    return f"{', '.join(names)} -> {', '.join(outputs)}"


def propose(name: str, s: Schedule, r: random.Random) -> Primitive:
    cls = PRIMITIVES[name]
    found = PROPOSERS[name](s, r) if name in PROPOSERS else guess(cls, s, r)
    return cls(**found)
