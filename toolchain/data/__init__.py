"""Recipes and templates as data: beside the code in a wheel, top-level folders in a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def data_directory(name: Literal["recipes", "dockerfiles", "workflows"]) -> Path:
    """The folder of the shipped recipes or templates, without links, so that messages name the real file."""
    return (Path(__file__).parent / name).resolve()
