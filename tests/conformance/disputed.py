"""Cases whose data are not what the standard's text says, and what takes the place of these data.

A result that differs from the data is then compared with that, with the tolerance of the case; it counts as
`disputed`, not as passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime


@dataclass(frozen=True)
class Dispute:
    """Why the data are not followed, and what the outputs of the model are for these inputs instead."""

    reason: str
    expected: Callable[[onnx.ModelProto, Sequence[Any]], Sequence[np.ndarray]]


def _by_onnxruntime(model: onnx.ModelProto, given: Sequence[Any]) -> Sequence[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = (item.name for item in session.get_inputs())
    return list(session.run(None, dict(zip(names, given, strict=True))))


def _inverse_in_doubles(_model: onnx.ModelProto, given: Sequence[Any]) -> Sequence[np.ndarray]:
    """The inverse transform along axis 1, all that these cases have."""
    x = given[0].astype(np.float64)
    found = np.fft.ifft(x[..., 0] + 1j * x[..., 1], axis=1)
    return [np.stack([found.real, found.imag], -1).astype(np.float32)]


_LENGTH = Dispute(
    "the standard says `x_resized * (length_original - 1) / (length_resized - 1)` with the length of the "
    "resized tensor; the data were made with a length that has a fraction (4 * 0.8 = 3.2 for 3, 4 * 0.6 = "
    "2.4 for 2). Ours equals onnxruntime",
    _by_onnxruntime,
)
_ROUNDING = Dispute(
    "the data have 1.9e-07 where the exact result is 0: numpy's rounding in f32, more than the tolerance "
    "of 1e-07 itself. Ours equals the transform in f64",
    _inverse_in_doubles,
)

DISPUTED: Mapping[str, Dispute] = {
    "test_resize_downsample_scales_cubic_align_corners": _LENGTH,
    "test_resize_downsample_scales_linear_align_corners": _LENGTH,
    "test_dft_inverse": _ROUNDING,
    "test_dft_inverse_opset19": _ROUNDING,
}
