"""Code motion: pad the parts of a concatenation instead of its result.

Afterwards each part is padded by the kernel that makes it, and the concatenation only puts whole blocks one
after another, which may need no copy at all.
"""

from __future__ import annotations

from compiler.graph.edit import Editor, rewriting
from compiler.graph.ir import Node, Value


@rewriting()
def hoist_pads(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """Move each Pad above the Concat that it alone reads."""
    if item.op.name != "Pad" or item.attrs.text("mode") != "constant":
        return None
    source = item.inputs[0]
    concat = editor.producer(source, "Concat")
    if concat is None or editor.uses[source] != 1:
        return None
    axis = concat.attrs.integer("axis")
    if item.attrs.integers("before")[axis] or item.attrs.integers("after")[axis]:
        return None
    padded = [editor.emit_all(item.op, (part,), item.attrs)[0] for part in concat.inputs]
    return editor.emit_all(concat.op, padded, concat.attrs)
