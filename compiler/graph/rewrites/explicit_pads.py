"""Padding made explicit: that of convolutions and pools becomes an operator of its own.

Afterwards no window reaches outside, so that no inner loop ever asks where it is. The Pad fuses into whatever
makes the tensor. MaxPool pads with the lowest number, or with 0 where no element is negative, so that
one padded tensor serves pools and convolutions.
"""

from __future__ import annotations

from compiler.graph.edit import Editor, rewriting
from compiler.graph.ir import Node, Value
from compiler.graph.op import Sign
from compiler.graph.ops.pooling import lowest
from compiler.graph.ops.windows import Windows, windows_of

_WINDOWED = frozenset({"Conv", "MaxPool", "SumPool"})
_DEPTH = 64


@rewriting()
def explicit_pads(editor: Editor, item: Node) -> tuple[Value, ...] | None:
    """Replace padding attributes by Pad nodes."""
    if item.op.name not in _WINDOWED:
        return None
    windows, source = windows_of(item.attrs), item.inputs[0]
    if not windows.padded:
        return None
    fill = _fill(editor, item)
    before, after = (0, 0, *windows.before), (0, 0, *windows.after)
    inner = editor.producer(source, "Pad")
    if inner is not None and inner.attrs.text("mode") == "constant" and inner.attrs["value"] == fill:
        source = inner.inputs[0]
        before = tuple(a + b for a, b in zip(before, inner.attrs.integers("before"), strict=True))
        after = tuple(a + b for a, b in zip(after, inner.attrs.integers("after"), strict=True))
    padded = editor.emit("Pad", source, before=before, after=after, mode="constant", value=fill)
    none = (0,) * len(windows.kernel)
    bare = Windows(windows.kernel, windows.strides, windows.dilations, none, none)
    attrs = item.attrs.with_(**bare.attrs())
    return editor.emit_all(item.op, (padded, *item.inputs[1:]), attrs)


def _fill(editor: Editor, item: Node) -> float | int:
    source = item.inputs[0]
    zero: float | int = 0.0 if source.type.dtype.is_float else 0
    if item.op.name != "MaxPool" or _never_negative(editor, source):
        return zero
    return lowest(source.type.dtype)


def _never_negative(editor: Editor, value: Value, depth: int = _DEPTH) -> bool:
    """Whether no element of `value` can be negative, as far as the records' signs tell."""
    known = editor.known(value)
    if known is not None:
        return bool((known >= 0).all())
    maker = editor.producer(value)
    if maker is None or depth == 0:
        return False
    sign = maker.op.sign_of(maker.attrs)
    if sign is Sign.KEEPS:
        return all(_never_negative(editor, operand, depth - 1) for operand in dict.fromkeys(maker.inputs))
    return sign is Sign.NONNEGATIVE
