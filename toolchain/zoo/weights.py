"""Seeded weights whose bytes are the same on every machine and with every numpy.

Only the raw bits of PCG64 are used: numpy promises those to stay, while the distributions of `Generator` may
change between versions. Every tensor has a stream of its own, seeded by network and tensor name, so that
adding a layer changes no other layer.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 20


def uniform(network: str, name: str, shape: Sequence[int], low: float, high: float) -> NDArray[np.float32]:
    """Values in [low, high), float32, of the given shape; the same for the same two names, always."""
    seed = int.from_bytes(hashlib.sha256(f"{network}/{name}".encode()).digest()[:16], "little")
    bits = np.random.PCG64(seed)
    values = np.empty(math.prod(shape), dtype=np.float32)
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK]
        raw = np.asarray(bits.random_raw((block.size + 1) // 2), dtype="<u8").view("<u4")[: block.size]
        block[:] = (raw >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
        block *= np.float32(high - low)
        block += np.float32(low)
    return values.reshape(tuple(shape))


def he_bound(fan_in: int, gain: float) -> float:
    """Half width of the uniform distribution with variance gain / fan_in (arXiv:1502.01852: gain 2)."""
    return math.sqrt(3.0 * gain / fan_in)
