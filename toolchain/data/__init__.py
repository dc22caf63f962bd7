"""Recipes, templates and examples as data: beside the code in a wheel, top-level folders in a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def data_directory(name: Literal["recipes", "dockerfiles", "workflows", "examples"]) -> Path:
    """The folder of shipped data, without links, so that messages name the real file."""
    return (Path(__file__).parent / name).resolve()


def own_licence() -> str:
    """The text of the licence that tk, its runtime and its examples are under."""
    return (Path(__file__).parent / "LICENSE").read_text(encoding="utf-8")
