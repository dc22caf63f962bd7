"""Is a library right, and how fast is it: references, tolerances, comparison, measurement."""
