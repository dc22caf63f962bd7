"""Vocabulary of the compiler: imports nothing else of it."""
