"""Candidates built and measured by workers of a cluster: the tuner's side, and theirs."""
