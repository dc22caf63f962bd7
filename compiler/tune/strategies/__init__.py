"""What is measured next: strategies over a design space, a learned cost model, the order of the kernels."""
