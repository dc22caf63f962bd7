"""Container engines: which one, what it is, and what is asked of it."""
