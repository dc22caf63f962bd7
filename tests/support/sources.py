"""The project's own sources, parsed, for the rules of the house."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file: its path relative to the repository and its text."""

    path: str
    text: str

    @property
    def package(self) -> str:
        """`compiler.graph` for compiler/graph/x.py; `compiler.pipeline` for compiler/pipeline.py."""
        parts = self.path.removesuffix(".py").split("/")
        return ".".join(parts[:2])

    def tree(self) -> ast.Module:
        return _parsed(self)

    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree, which many rules look at: collected once."""
        return _nodes(self)


@cache
def _parsed(source: Source) -> ast.Module:
    return ast.parse(source.text, source.path)


@cache
def _nodes(source: Source) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_parsed(source)))


@cache
def python_sources(*tops: str) -> tuple[Source, ...]:
    """All Python files under these directories."""
    paths = (path for top in tops for path in sorted((ROOT / top).rglob("*.py")))
    return tuple(Source(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths)


def violations(rule: Callable[[Source], Iterator[str]], *tops: str) -> list[str]:
    """What a rule finds in the files under `tops`, each with its path."""
    return [f"{source.path}: {found}" for source in python_sources(*tops) for found in rule(source)]
