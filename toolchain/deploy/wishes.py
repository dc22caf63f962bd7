"""What commands ask of images. Imports nothing heavy, as `tk --help` imports it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageWishes:
    """What is asked of an image: its name (NAME:TAG, or None), inputs of its self test, where it goes.

    inputs: texts NAME=FILE; others are random, of `seed`. `push` names it in a registry, empty for nowhere.
    `base` is the image under it: an archive, a layout, an image of the engine or of `tk image list`.
    """

    reference: str | None = None
    inputs: tuple[str, ...] = ()
    seed: int = 0
    load: bool = False
    push: str = ""
    base: str = ""

    @property
    def needs_engine(self) -> bool:
        """Whether it goes to an engine."""
        return self.load or bool(self.push)
