"""Reduction of a failing model: the smallest model that shows the same fault, and the pass to blame."""
