"""What sliding-window operators share: the geometry of windows, in ONNX's attributes and in ours.

Canonical attributes, one number per spatial axis: `kernel`, `strides`, `dilations`, and `before` and
`after`, the elements of padding. Every window lies inside the padded tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array
from compiler.graph.ir import TensorType
from compiler.graph.op import InvalidError
from compiler.graph.ops.indexing import pad_with
from compiler.loops.build import COMBINERS, Builder, identity_of
from compiler.loops.ir import Buffer, Expr


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of `kernel` taps, `dilations` apart, every `strides` elements of a padded tensor."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """Elements from the first tap of a window to its last, both included."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def taps(self) -> int:
        """Elements that one window reads."""
        return math.prod(self.kernel)

    @property
    def padded(self) -> bool:
        """Whether any padding is left to do."""
        return any((*self.before, *self.after))

    def counts(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """How many windows there are per axis; raises InvalidError when there are none."""
        found = []
        for n, low, high, reach, stride in zip(
            spatial, self.before, self.after, self.reach, self.strides, strict=True
        ):
            if n + low + high < reach:
                raise InvalidError(
                    f"a window of {reach} elements does not fit into {n} padded by {low} and {high}"
                )
            found.append((n + low + high - reach) // stride + 1)
        return tuple(found)

    def attrs(self) -> dict[str, AttrValue]:
        """As attributes of a node."""
        return {
            "kernel": self.kernel,
            "strides": self.strides,
            "dilations": self.dilations,
            "before": self.before,
            "after": self.after,
        }

    def position(self, out: Sequence[Expr], tap: Sequence[Expr]) -> tuple[Expr, ...]:
        """Where, in the padded tensor, the given tap of the given window lies."""
        pairs = zip(out, tap, self.strides, self.dilations, strict=True)
        return tuple(o * stride + t * dilation for o, t, stride, dilation in pairs)


def windows_of(attrs: Attrs) -> Windows:
    """The windows that canonical attributes describe."""
    return Windows(*(attrs.integers(name) for name in ("kernel", "strides", "dilations", "before", "after")))


def check_positive(windows: Windows) -> None:
    """Raises InvalidError where windows have no taps, or stand still."""
    if min((*windows.kernel, *windows.strides, *windows.dilations)) < 1:
        raise InvalidError("kernel, strides and dilations must be positive")


def import_windows(given: Attrs, kernel: tuple[int, ...], spatial: Sequence[int]) -> Windows:
    """Windows from ONNX's kernel_shape, strides, dilations, pads, auto_pad and ceil_mode.

    With ceil_mode `after` grows until the last window fits; a window that would start in the padding at the
    end does not count (as ONNX says since opset 19, and as all runtimes do).
    """
    ones = (1,) * len(kernel)
    strides, dilations = given.integers("strides", ones), given.integers("dilations", ones)
    if not len(kernel) == len(strides) == len(dilations) == len(spatial):
        raise InvalidError(
            f"kernel {list(kernel)}, strides and dilations do not fit {len(spatial)} spatial axes"
        )
    plain = Windows(kernel, strides, dilations, ones, ones)
    check_positive(plain)
    before, after = _import_pads(given, plain, spatial)
    if given.flag("ceil_mode", default=False) and given.text("auto_pad", "NOTSET") == "NOTSET":
        after = _ceil_pads(plain, spatial, before, after)
    return Windows(kernel, strides, dilations, before, after)


def _import_pads(
    given: Attrs, plain: Windows, spatial: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rank, mode = len(spatial), given.text("auto_pad", "NOTSET")
    if mode == "NOTSET":
        pads = given.integers("pads", (0,) * (2 * rank))
        if len(pads) != 2 * rank:
            raise InvalidError(f"{len(pads)} pads for {rank} spatial axes")
        if min(pads, default=0) < 0:
            raise InvalidError(f"pads {list(pads)} are negative")
        return pads[:rank], pads[rank:]
    if mode == "VALID":
        return (0,) * rank, (0,) * rank
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise InvalidError(f"auto_pad has no mode {mode!r}")
    total = [
        max((-(-n // stride) - 1) * stride + reach - n, 0)
        for n, stride, reach in zip(spatial, plain.strides, plain.reach, strict=True)
    ]
    return share_pads(total, mode)


def share_pads(total: Sequence[int], mode: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pads at both ends; what is odd goes to the end with SAME_UPPER, else to the beginning."""
    less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    return (less, more) if mode == "SAME_UPPER" else (more, less)


def _ceil_pads(
    plain: Windows, spatial: Sequence[int], before: Sequence[int], after: Sequence[int]
) -> tuple[int, ...]:
    grown = []
    for n, low, high, reach, stride in zip(spatial, before, after, plain.reach, plain.strides, strict=True):
        count = -(-(n + low + high - reach) // stride) + 1
        if (count - 1) * stride >= n + low:
            count -= 1
        grown.append(max((count - 1) * stride + reach - n - low, high if count == 0 else 0))
    # Padding beyond the last window is of no use, but one window must stay.
    return tuple(grown)


def spatial_type(source: TensorType, channels: int, windows: Windows) -> TensorType:
    """The result type: batch, `channels`, one element per window."""
    return source.with_shape((source.shape[0], channels, *windows.counts(source.shape[2:])))


def pad_array(x: Array, windows: Windows, value: Any) -> Array:
    """`x` padded on its spatial axes."""
    if not windows.padded:
        return x
    pads = [(0, 0), (0, 0), *zip(windows.before, windows.after, strict=True)]
    return np.pad(x, pads, constant_values=value)


def window_view(x: Array, windows: Windows) -> Array:
    """All windows of a padded array: (batch, channels, *windows, *taps), without copying."""
    rank = len(windows.kernel)
    found = np.lib.stride_tricks.sliding_window_view(x, windows.reach, tuple(range(2, 2 + rank)))
    starts = tuple(slice(None, None, stride) for stride in windows.strides)
    taps = tuple(slice(None, None, dilation) for dilation in windows.dilations)
    return found[(slice(None), slice(None), *starts, *taps)]


def padded_buffer(
    b: Builder, source: Buffer, kind: TensorType, windows: Windows, combiner: str = "sum"
) -> Buffer:
    """A buffer with padding in place that changes no result of a combiner (`source` where there is none)."""
    if not windows.padded:
        return source
    before, after = (0, 0, *windows.before), (0, 0, *windows.after)
    return pad_with(b, source, kind.shape, before, after, identity_of(COMBINERS[combiner], kind.dtype))
