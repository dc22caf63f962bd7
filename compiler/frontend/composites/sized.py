"""Operators whose shapes are the content of an input that only a run knows, where the model declares them.

Each is compiled for what is declared; a run checks that the input asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler.frontend.composites.writer import BodyWriter, Write
from compiler.graph.op import normal_axis


def _sized(write: Callable[[BodyWriter], str]) -> Write:
    """The same operator with a constant, which `write` makes, for its last input if that is not known."""

    def body(w: BodyWriter) -> tuple[str, ...]:
        last = len(w.inputs) - 1
        if w.content(last) is not None:
            return ()
        return (w.emit(w.op, *w.inputs[:last], write(w), **w.attributes()),)

    return body


def _window(w: BodyWriter) -> str:
    (size,) = w.checked(w.input(0), w.result(1).shape)
    return w.constant(size, w.type(0))


def _affine_grid(w: BodyWriter) -> str:
    """A grid has no channels: one stands for however many there are."""
    count = w.type(1).size
    without = w.emit("Gather", w.input(1), w.constant([0, *range(2, count)]))
    batch, *space = w.checked(without, w.result(count).shape[:-1])
    return w.constant([batch, 1, *space])


def _center_crop_pad(w: BodyWriter) -> str:
    rank = w.type(0).rank
    axes = w.attributes().get("axes", range(rank))
    shape = w.result(rank).shape
    return w.constant(w.checked(w.input(1), [shape[normal_axis(axis, rank)] for axis in axes]))


BODIES: Mapping[tuple[str, str], Write] = {
    ("", "AffineGrid"): _sized(_affine_grid),
    ("", "BlackmanWindow"): _sized(_window),
    ("", "CenterCropPad"): _sized(_center_crop_pad),
    ("", "HammingWindow"): _sized(_window),
    ("", "HannWindow"): _sized(_window),
}
