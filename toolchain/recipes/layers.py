"""Layers and builds of one combination: conditions decided, placeholders filled in, parts joined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from compiler import BadInputError, did_you_mean
from toolchain.recipes.fill import fill
from toolchain.recipes.rules import Facts, holds
from toolchain.recipes.schema import Arguments, Build, Condition, Layer

M = TypeVar("M", bound=BaseModel)


def layer_of(content: Any, facts: Facts, values: Mapping[str, str], where: str) -> Layer:
    """Join the layers of a row (`install`) whose conditions hold; raises BadInputError for an open value."""
    return _joined(_layers(content.get("install", ()), facts, values, where))


def with_layers(layer: Layer, more: Iterable[Layer], facts: Facts) -> Layer:
    """A layer with those of `more` whose conditions hold."""
    return _joined([layer, *(one for one in more if holds(one.when, facts))])


def build_of(content: Any, facts: Facts, values: Mapping[str, str], where: str) -> Build | None:
    """The build of a release with the arguments whose conditions hold; None when it has none."""
    build = content.get("build")
    if build is None:
        return None
    kept = {
        **build,
        "layers": [],
        **{
            name: [one for one in build.get(name, ()) if _applies(one, facts)]
            for name in ("configure", "compile")
        },
    }
    filled = _filled(Build, kept, values, where)
    layers = _layers(build.get("layers", ()), facts, values, where)
    return filled.model_copy(
        update={
            "layers": (_joined(layers),) if layers else (),
            "configure": _one_list(filled.configure),
            "compile": _one_list(filled.compile),
        }
    )


def _one_list(arguments: Sequence[Arguments]) -> tuple[Arguments, ...]:
    words = tuple(word for one in arguments for word in one.words)
    return (Arguments(words=words),) if words else ()


def _layers(contents: Any, facts: Facts, values: Mapping[str, str], where: str) -> list[Layer]:
    return [_filled(Layer, one, values, where) for one in contents if _applies(one, facts)]


def _applies(content: Mapping[str, Any], facts: Facts) -> bool:
    return holds(Condition.model_validate(content.get("when", {})), facts)


def _filled(model: type[M], content: Any, values: Mapping[str, str], where: str) -> M:
    try:
        return model.model_validate(fill(content, values))
    except KeyError as error:
        name = str(error.args[0])
        raise BadInputError(
            f"a recipe uses {{{name}}}, which nothing in this combination provides",
            where=where,
            hint=did_you_mean(name, values) or "give the layer a condition under `when`",
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(one) for one in first["loc"])
        raise BadInputError(
            "a recipe is wrong once filled in", where=where, why=f"`{field}`: {first['msg']}"
        ) from error


def _joined(layers: Iterable[Layer]) -> Layer:
    joined: dict[str, Any] = {}
    for layer in layers:
        for name in Layer.model_fields:
            value = getattr(layer, name)
            if name == "when" or not value:
                continue
            before = joined.get(name, type(value)())
            if isinstance(value, dict):
                joined[name] = {**before, **value}
            else:
                joined[name] = (*before, *(one for one in value if one not in before))
    return Layer().model_copy(update=joined)
