"""A plan in the words of other tools: each format in a module of its own."""

from toolchain.images.formats import apptainer, bake, compose, devcontainer

__all__ = ["apptainer", "bake", "compose", "devcontainer"]
