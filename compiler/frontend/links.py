"""What reads what in a model, by name: for those who show it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compiler.frontend.functions import inlined
from compiler.frontend.proto import read_model
from compiler.frontend.subgraphs import reads


@dataclass(frozen=True, slots=True)
class NodeLinks:
    """A node of a model by its name and those of what it reads and writes.

    is_constant: it depends on constants alone.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    is_constant: bool


def node_links(path: Path) -> tuple[NodeLinks, ...]:
    """A model's nodes that compute something, in order; raises BadInputError for no model."""
    graph = inlined(read_model(path), str(path)).graph
    fixed = {tensor.name for tensor in graph.initializer}
    found: list[NodeLinks] = []
    for item in graph.node:
        inner = sorted(reads(item) - set(item.input))
        read, writes = (tuple(filter(None, names)) for names in ((*item.input, *inner), item.output))
        is_constant = item.op_type == "Constant" or (bool(read) and fixed.issuperset(read))
        fixed.update(writes if is_constant else ())
        if item.op_type != "Constant":
            found.append(NodeLinks(item.name, read, writes, is_constant))
    return tuple(found)
