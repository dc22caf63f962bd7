"""The machine code of a device function: instructions, basic blocks and loops.

Read from labelled assembly (`device_assembly.py`). What an instruction is, says a reader of one instruction
set: `sass.py` for NVIDIA's, `gcn.py` for AMD's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """Who executes an instruction."""

    FMA = "fma"
    """Arithmetic of f32, and of f16 in pairs."""
    F64 = "f64"
    MULTIPLY = "imul"
    """Multiplications of integers."""
    ALU = "alu"
    """Other arithmetic of integers, comparisons, logic, moves."""
    SPECIAL = "special"
    """Reciprocals, roots, exponentials, conversions."""
    MATRIX = "matrix"
    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"
    """A thread's own memory: spilled registers and private arrays."""
    SHUFFLE = "shuffle"
    CONSTANT = "constant"
    SCALAR = "scalar"
    """What is the same for all lanes."""
    BRANCH = "branch"
    BARRIER = "barrier"
    WAIT = "wait"
    """Waits for copies, and instructions that do nothing."""


class Flow(StrEnum):
    """Where an instruction goes on."""

    NEXT = "next"
    BRANCH = "branch"
    JUMP = "jump"
    END = "end"


@dataclass(frozen=True, slots=True)
class MachineInstruction:
    """One instruction.

    defines, uses: registers. lane_bytes: what a lane moves between registers and memory, to or from so many
    `places`. goal: the label of a branch. operation: the product of a matrix unit as `MATRIX_RATES` names
    it, or empty. divides: it is the part of an integer division that every such division has once. queue:
    in which it counts until it is done. joins: the queue that it empties, to be done when all in there are.
    waits: for a wait, how many of the youngest of each queue may still be under way. constant: what it puts
    into its register.
    """

    text: str
    opcode: str
    unit: Unit
    flow: Flow = Flow.NEXT
    goal: str = ""
    defines: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    lane_bytes: int = 0
    places: int = 1
    store: bool = False
    operation: str = ""
    divides: bool = False
    queue: str = ""
    joins: str = ""
    waits: Mapping[str, int] | None = None
    constant: int | None = None


_COUNTS = re.compile(r"ATOMG?\b.*\.INC\b|(global|flat)_atomic_inc")
"""How a counter of blocks goes up, from its end to zero."""

ReadMachineCode = Callable[[str], MachineInstruction]
"""What a line of assembly means."""

MarkDivisions = Callable[[Sequence[MachineInstruction], Mapping[str, int]], Sequence[MachineInstruction]]
"""Marks those of a block that divide; the second argument are registers that hold a constant throughout."""


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Instructions that are executed one after the other, and the numbers of the blocks that may follow."""

    label: str
    instructions: tuple[MachineInstruction, ...]
    next: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MachineLoop:
    """A natural loop: its head and all its blocks by number; depth 1 is outermost.

    parent: the number of the loop around it. own: blocks in no loop within.
    """

    head: int
    blocks: frozenset[int]
    depth: int
    parent: int | None
    own: frozenset[int]
    innermost: bool


@dataclass(frozen=True, slots=True)
class MachineFunction:
    """A device function: blocks that can be reached, the first one first, and loops."""

    name: str
    blocks: tuple[BasicBlock, ...]
    loops: tuple[MachineLoop, ...]

    @property
    def behind_counter(self) -> frozenset[int]:
        """What follows where a block of threads comes to a counter, if it does so, and once."""
        counting = {
            number
            for number, block in enumerate(self.blocks)
            if any(_COUNTS.match(one.opcode) for one in block.instructions)
        }
        if any(counting & loop.blocks for loop in self.loops):
            return frozenset()
        found: set[int] = set()
        left = list(counting)
        while left:
            number = left.pop()
            if number not in found:
                found.add(number)
                left += self.blocks[number].next
        return frozenset(found)

    def instructions(self, blocks: Iterable[int]) -> tuple[MachineInstruction, ...]:
        """The instructions of some blocks, in the order of the text."""
        return tuple(one for number in sorted(blocks) for one in self.blocks[number].instructions)


def unit_counts(instructions: Iterable[MachineInstruction]) -> dict[Unit, int]:
    """How many instructions each unit executes."""
    counts = Counter(one.unit for one in instructions)
    return {unit: counts[unit] for unit in Unit if counts[unit]}


def machine_function(name: str, text: str, read: ReadMachineCode, mark: MarkDivisions) -> MachineFunction:
    """A function from its labelled assembly."""
    blocks = _reachable(_blocks(text, read, mark))
    return MachineFunction(name, blocks, _loops(blocks))


# ---------------------------------------------------------------- blocks


def _blocks(text: str, read: ReadMachineCode, mark: MarkDivisions) -> list[BasicBlock]:
    parts: list[tuple[list[str], list[MachineInstruction]]] = [([], [])]
    for line in filter(str.strip, text.splitlines()):
        body = parts[-1][1]
        if not line.startswith(("\t", " ")):
            if body:
                parts.append(([], []))
            parts[-1][0].append(line.rstrip(": "))
            continue
        one = read(line.strip())
        body.append(one)
        if one.flow is not Flow.NEXT:
            parts.append(([], []))
    parts = [part for part in parts if part[1]]
    known = _constants([one for _, body in parts for one in body])
    starts = {label: number for number, (labels, _) in enumerate(parts) for label in labels}
    return [
        BasicBlock(
            labels[0] if labels else "",
            tuple(mark(body, known)),
            _next(body[-1], number, len(parts), starts),
        )
        for number, (labels, body) in enumerate(parts)
    ]


def _constants(instructions: Sequence[MachineInstruction]) -> dict[str, int]:
    """Registers that are written once, with a constant."""
    times = Counter(name for one in instructions for name in one.defines)
    return {
        one.defines[0]: one.constant
        for one in instructions
        if one.constant is not None and len(one.defines) == 1 and times[one.defines[0]] == 1
    }


def _next(last: MachineInstruction, number: int, count: int, starts: Mapping[str, int]) -> tuple[int, ...]:
    follows = (number + 1,) if number + 1 < count else ()
    goal = (starts[last.goal],) if last.goal in starts else ()
    if last.flow is Flow.END:
        return ()
    if last.flow is Flow.JUMP:
        return goal
    return (*follows, *goal) if last.flow is Flow.BRANCH else follows


def _reachable(blocks: Sequence[BasicBlock]) -> tuple[BasicBlock, ...]:
    found, todo = set[int](), [0] if blocks else []
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo += blocks[number].next
    renumbered = {old: new for new, old in enumerate(sorted(found))}
    return tuple(
        BasicBlock(
            blocks[old].label, blocks[old].instructions, tuple(renumbered[one] for one in blocks[old].next)
        )
        for old in renumbered
    )


# ---------------------------------------------------------------- loops


def _loops(blocks: Sequence[BasicBlock]) -> tuple[MachineLoop, ...]:
    """Natural loops by dominance: an edge to a block that dominates its start goes back to a loop's head."""
    before: dict[int, list[int]] = {number: [] for number in range(len(blocks))}
    for number, block in enumerate(blocks):
        for goal in block.next:
            before[goal].append(number)
    order = _reverse_postorder(blocks)
    above = _dominators(order, before)
    found: dict[int, set[int]] = {}
    for number, block in enumerate(blocks):
        for goal in block.next:
            if _dominates(goal, number, above):
                found.setdefault(goal, {goal}).update(_body(goal, number, before))
    return _nested(found)


def _reverse_postorder(blocks: Sequence[BasicBlock]) -> list[int]:
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(blocks[0].next))] if blocks else []
    while stack:
        number, rest = stack[-1]
        goal = next((one for one in rest if one not in seen), None)
        if goal is None:
            order.append(number)
            stack.pop()
        else:
            seen.add(goal)
            stack.append((goal, iter(blocks[goal].next)))
    return order[::-1]


def _dominators(order: Sequence[int], before: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Immediate dominators; Cooper, Harvey and Kennedy: "A Simple, Fast Dominance Algorithm"."""
    place = {number: at for at, number in enumerate(order)}
    above = {order[0]: order[0]} if order else {}

    def common(a: int, b: int) -> int:
        while a != b:
            while place[a] > place[b]:
                a = above[a]
            while place[b] > place[a]:
                b = above[b]
        return a

    changed = True
    while changed:
        changed = False
        for number in order[1:]:
            known = [one for one in before[number] if one in above]
            new = known[0]
            for one in known[1:]:
                new = common(new, one)
            changed = changed or above.get(number) != new
            above[number] = new
    return above


def _dominates(a: int, b: int, above: Mapping[int, int]) -> bool:
    while b != a and above[b] != b:
        b = above[b]
    return a == b


def _body(head: int, tail: int, before: Mapping[int, Sequence[int]]) -> set[int]:
    found, todo = {head}, [tail]
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo += before[number]
    return found


def _nested(found: Mapping[int, set[int]]) -> tuple[MachineLoop, ...]:
    heads = sorted(found, key=lambda head: (-len(found[head]), head))
    made: list[MachineLoop] = []
    for number, head in enumerate(heads):
        around = [at for at in range(number) if head in found[heads[at]]]
        inside = [one for one in heads[number + 1 :] if one in found[head]]
        own = found[head].difference(*(found[one] for one in inside))
        parent = around[-1] if around else None
        depth = made[parent].depth + 1 if parent is not None else 1
        made.append(MachineLoop(head, frozenset(found[head]), depth, parent, frozenset(own), not inside))
    return tuple(made)
