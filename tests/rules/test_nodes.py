"""A node of the loop IR is named in four files: its declaration, interpreter, renderer and what makes it.

Whatever else is asked (what they read, write and bind, what is in them, how they are written) follows
from the declarations: `compiler/loops/regions.py`, `walk.py`, `spelling.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tests.support.sources import Source, python_sources

MOST_FILES = 4
DECLARED_IN = ("compiler.loops.ir", "compiler.loops.exprs")
# node -> why more files name it
EXCEPTIONS: dict[str, str] = {
    **dict.fromkeys(
        (
            "Func",
            "Block",
            "Iter",
            "Buffer",
            "Region",
            "For",
            "Seq",
            "Store",
            "Var",
            "Const",
            "Binary",
            "Load",
        ),
        "what every loop program is made of",
    ),
    **dict.fromkeys(
        ("If", "Let", "Alloc"), "passes make it; printer and parser write it in a way of its own"
    ),
    **dict.fromkeys(
        ("Select", "Cast", "Unary", "Call"), "operators are written with it, and rules look for it"
    ),
    **dict.fromkeys(("Ramp", "Broadcast", "ReduceLanes"), "vectors: a rule for types, ranges or places"),
    "AddressOf": "what a call does behind it is not known, so passes let its buffer be",
    "AtomicUpdate": "written with an operation in front, and checked; its buffer stays outside of loops",
    "Barrier": "threads must meet there: two passes place by it, two check it",
    "LastBlock": "blocks come together there: passes put barriers and reads by it, checks count its blocks",
    "AsyncCopy": "the verifier compares the types of its sides, and pairs groups",
    "AsyncCommit": "the verifier pairs groups",
    "AsyncWait": "the verifier pairs groups",
    "Dim": "two passes make it, one for samples and one for sizes, and it is written in a way of its own",
    "Evaluate": "a call is written as a statement without its keyword",
    "Shuffle": "two passes make it: vectors of neighbouring strides, transposes in registers",
}


def declared(source: Source) -> list[str]:
    """The node classes that a file declares."""
    return [
        item.name
        for item in source.tree().body
        if isinstance(item, ast.ClassDef) and any(ast.unparse(one) == "node" for one in item.decorator_list)
    ]


def named(source: Source) -> Iterator[str]:
    """What a file imports of the module with the nodes, or uses of it as `ir.Name`."""
    for item in source.nodes():
        if (
            isinstance(item, ast.ImportFrom)
            and item.module in DECLARED_IN
            and source.path != "compiler/loops/ir.py"
        ):
            yield from (one.name for one in item.names)
        elif isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name) and item.value.id == "ir":
            yield item.attr


def too_widely_named(sources: Sequence[Source]) -> dict[str, list[str]]:
    nodes = {name: [one.path] for one in sources for name in declared(one)}
    for source in sources:
        for name in set(named(source)) & nodes.keys():
            nodes[name].append(source.path)
    return {name: paths for name, paths in nodes.items() if len(paths) > MOST_FILES}


def test_nodes_are_named_in_few_files() -> None:
    found = too_widely_named(python_sources("compiler", "toolchain", "benchmarks"))
    assert {name: paths for name, paths in found.items() if name not in EXCEPTIONS} == {}
    assert EXCEPTIONS.keys() <= found.keys(), "no exception any more"


def test_the_rule_can_fail() -> None:
    home = Source("compiler/loops/ir.py", "@node\nclass New(Stmt):\n    pass\n")
    users = [Source(f"compiler/a{n}.py", "from compiler.loops.ir import New") for n in range(3)]
    assert too_widely_named([home, *users]) == {}
    more = Source("compiler/b.py", "from compiler.loops import ir\nx = ir.New()")
    assert list(too_widely_named([home, *users, more])) == ["New"]
