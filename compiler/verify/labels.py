"""What a reference makes of labels and maps of scores, in the numbers that a library makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from compiler.frontend.labels import map_keys
from compiler.runtime.manifest import labels_of
from compiler.verify.compare import Array

_UNKNOWN = -1
"""The number of a label that the library does not know, which none has."""


def in_numbers(
    outputs: Mapping[str, object], manifest: Mapping[str, Any], proto: onnx.ModelProto
) -> dict[str, Array]:
    """Outputs of a reference as the library with this manifest has them.

    Strings are their places in its list of labels, maps from labels to scores one row each.
    """
    labels, keys = labels_of(manifest), map_keys(proto)
    return {name: _array(value, labels.get(name, ()), keys.get(name, ())) for name, value in outputs.items()}


def _array(value: object, labels: Sequence[str], keys: Sequence[int | str]) -> Array:
    if isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return np.asarray([[row[key] for key in keys] for row in value], np.float32).reshape(-1, len(keys))
    found = np.asarray(value)
    if not labels:
        return found
    places = {label: place for place, label in enumerate(labels)}
    flat = [places.get(str(label), _UNKNOWN) for label in found.reshape(-1)]
    return np.asarray(flat, np.int64).reshape(found.shape)
