"""Measurement of candidates: built together, then run, checked and timed in a process of their own."""
