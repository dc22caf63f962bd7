"""The stages that `compiler.pipeline` lists: each takes what the one before it made."""
