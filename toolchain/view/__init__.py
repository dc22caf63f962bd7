"""A compile as one HTML page: its graph, kernels and memory, to be looked at in a browser."""
