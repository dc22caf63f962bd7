"""A candidate as numbers for a model to learn from: what its loops do, and what was decided."""

from __future__ import annotations
