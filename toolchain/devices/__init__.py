"""Accelerators of a machine: what is there, what it is called, and the least that a container needs of it."""
