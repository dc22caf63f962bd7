"""The search for fast kernels: candidates, their measurement, and the database of what was found."""
