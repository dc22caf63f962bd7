"""`each` (what all rows of a file have in common) and placeholders such as `{version}` in recipe texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from typing import Any

from compiler import did_you_mean
from toolchain.recipes.check import Problems
from toolchain.recipes.strict_yaml import YamlNode

PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[a-z][a-z0-9-]*(\.(version|prefix))?")
# What is known only when a combination is resolved.
LATE = ("system", "codename", "arch", "archs")
_SAMPLES = {"prefix": "/sample", "version": "1"}


def overlay(below: YamlNode, above: YamlNode) -> YamlNode:
    """`above` over `below`: mappings are joined key by key, everything else is replaced."""
    if not isinstance(below.content, Mapping) or not isinstance(above.content, Mapping):
        return above
    joined = dict(below.content)
    for key, node in above.content.items():
        joined[key] = overlay(joined[key], node) if key in joined else node
    return YamlNode(joined, above.file, above.line, {**below.key_lines, **above.key_lines})


def fill_node(
    node: YamlNode, values: Mapping[str, str], late: Container[str] | None, problems: Problems
) -> YamlNode:
    """Put known values in; unknown placeholders are added to `problems`.

    late: names of placeholders that stay (and `NAME.version`, `NAME.prefix`), as they are known only when a
    combination is resolved; None where none may stay.
    """

    def one(text: str, at: YamlNode) -> str:
        def put(match: re.Match[str]) -> str:
            name = match[1]
            if name in values:
                return values[name]
            stays = late is not None and _NAME.fullmatch(name) and ("." in name or name in late)
            if not stays:
                hint = did_you_mean(name, (*values, *LATE)) or f"known: {', '.join(sorted(values))}"
                problems.append((at.where, f"unknown placeholder {match[0]!r}; {hint}"))
            return match[0]

        return PLACEHOLDER.sub(put, text)

    return _mapped(node, one)


def sample(content: Any) -> Any:
    """The same with harmless values for the placeholders that are left, so that grammars can be checked."""
    return _walk(content, lambda match: _SAMPLES.get(match[1].partition(".")[2], "1"))


def fill(content: Any, values: Mapping[str, str]) -> Any:
    """Put in what resolving found; raises KeyError for a placeholder that has no value."""
    return _walk(content, lambda match: values[match[1]])


def _walk(content: Any, put: Callable[[re.Match[str]], str]) -> Any:
    if isinstance(content, str):
        return PLACEHOLDER.sub(put, content)
    if isinstance(content, list):
        return [_walk(one, put) for one in content]
    if isinstance(content, dict):
        return {key: _walk(one, put) for key, one in content.items()}
    return content


def _mapped(node: YamlNode, change: Callable[[str, YamlNode], str]) -> YamlNode:
    content: Any = node.content
    if isinstance(content, str):
        content = change(content, node)
    elif isinstance(content, tuple):
        content = tuple(_mapped(one, change) for one in content)
    else:
        content = {key: _mapped(one, change) for key, one in content.items()}
    return YamlNode(content, node.file, node.line, node.key_lines)
