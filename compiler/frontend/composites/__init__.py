"""Composite operators of which ONNX has no body, written by what their documentation says in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compiler.frontend.composites import (
    microsoft,
    microsoft_attention,
    random,
    sized,
    support_vectors,
    training,
)
from compiler.frontend.composites.writer import Write

_BODIES = (
    sized.BODIES,
    microsoft.BODIES,
    microsoft_attention.BODIES,
    random.BODIES,
    support_vectors.BODIES,
    training.BODIES,
)

WRITTEN: Mapping[tuple[str, str], Write] = MappingProxyType(
    {name: write for bodies in _BODIES for name, write in bodies.items()}
)
"""By domain and name."""
