"""The graph: tensors and operators, their records, rewrites, fusion."""
