"""Capabilities that rules and passes ask for: names in `TargetFacts.intrinsics`."""

from __future__ import annotations

MASKED_MEMORY = "masked_memory"
"""The first n lanes of a vector of 32-bit elements are loaded and stored by one instruction."""

LAST_BLOCK = "last_block"
"""A block sees which of several comes last to a counter, and what the others wrote before (CUDA and HIP)."""

LOAD_OR_ZERO = "load_or_zero"
"""What lies in memory, or zero under a condition, is one load without a branch (AMD's GFX9 in HIP)."""
