"""A compile as one document for people who look at it: graph, kernels, memory, times."""
