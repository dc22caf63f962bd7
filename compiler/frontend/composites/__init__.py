"""Composite operators of which ONNX has no body, written by what their documentation says in words."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from compiler.frontend.composites import random, training
from compiler.frontend.composites.writer import Write

WRITTEN: Mapping[tuple[str, str], Write] = MappingProxyType({**random.BODIES, **training.BODIES})
"""By domain and name."""
