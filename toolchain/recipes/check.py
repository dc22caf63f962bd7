"""From nodes to checked records: every problem of a file at once, each with its line and what to do."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from compiler import BadInputError, did_you_mean
from toolchain.recipes.grammar import FORMS
from toolchain.recipes.strict_yaml import YamlNode

M = TypeVar("M", bound=BaseModel)
Problems = list[tuple[str, str]]
"""What is wrong with recipes: (file:line, what)."""

_MOST_SHOWN = 20


def validate(model: type[M], node: YamlNode, problems: Problems, content: Any = None) -> M | None:
    """Make a `model` of a node, or add what is wrong to `problems`.

    content: what is checked in place of the node's own content (placeholders filled in).
    """
    try:
        return model.model_validate(node.plain() if content is None else content)
    except ValidationError as error:
        problems.extend(_problem(model, node, one) for one in _own(error.errors(include_url=False)))
        return None


def _own(errors: Sequence[Any]) -> Iterator[Any]:
    """Without lists that are called too short only because their items are wrong."""
    for error in errors:
        inside = [one for one in errors if len(one["loc"]) > len(error["loc"])]
        below = any(one["loc"][: len(error["loc"])] == error["loc"] for one in inside)
        if error["type"] != "too_short" or not below:
            yield error


def refused(problems: Sequence[tuple[str, str]]) -> BadInputError:
    """One error for all problems."""
    count = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
    lines = [f"{where}: {what}" for where, what in problems[:_MOST_SHOWN]]
    if len(problems) > _MOST_SHOWN:
        lines.append(f"and {len(problems) - _MOST_SHOWN} more")
    return BadInputError(
        f"a recipe has {count}",
        where=problems[0][0],
        why="\n".join(lines) if len(problems) > 1 else problems[0][1],
        hint="docs/recipes.md describes every field",
    )


def _problem(model: type[BaseModel], root: YamlNode, error: Any) -> tuple[str, str]:
    path = tuple(error["loc"])
    field = ".".join(str(one) for one in path if one != "[key]")
    if error["type"] == "extra_forbidden":
        known = [name for one in _models_at(model, path[:-1]) for name in one.model_fields]
        hint = did_you_mean(str(path[-1]), known) or f"known here: {', '.join(sorted(known))}"
        return _where(root, path, key=True), f"unknown key `{field}`; {hint}"
    if error["type"] == "missing":
        return _where(root, path[:-1]), f"`{field}` is missing"
    return _where(root, path, key=path[-1:] == ("[key]",)), f"`{field}`: {_said(error)}"


def _said(error: Any) -> str:
    if error["type"] == "string_pattern_mismatch":
        pattern = error["ctx"]["pattern"]
        return f"expected {FORMS.get(pattern, pattern)}"
    if error["type"] == "too_short":
        return "expected at least one"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message if message[1:2].isupper() else message[:1].lower() + message[1:]


def _where(root: YamlNode, path: tuple[int | str, ...], *, key: bool = False) -> str:
    """The file:line of the value at a path, or of its key; of the nearest value above where there is none."""
    node = root
    line = root.line
    for step in path:
        if isinstance(step, int):
            if step >= len(node.items()):
                break
            node, line = node.items()[step], node.items()[step].line
            continue
        if step not in node.entries():
            break
        line = node.key_lines.get(step, node.line)
        node = node.entries()[step]
    return f"{node.file}:{line if key or isinstance(node.content, Mapping) else node.line}"


def _models_at(model: type[BaseModel], path: tuple[int | str, ...]) -> list[type[BaseModel]]:
    """The models that a value at `path` may be an instance of."""
    found: list[Any] = [model]
    for step in path:
        if isinstance(step, int):
            continue
        fields = [one.model_fields[step].annotation for one in found if step in one.model_fields]
        found = [leaf for one in fields for leaf in _leaves(one)]
    return found


def _leaves(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _leaves(inner)
