"""The grammar of `site.yaml`: each field's form, unknown keys refused, every problem at once.

No value can hold a blank, quote, `$`, backslash or line break, so none of them ends a shell word, an apt
source, a git section or a `NAME=value` line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError, model_validator

from compiler import BadInputError
from toolchain.recipes.check import Problems, validate
from toolchain.recipes.grammar import Flag, Id
from toolchain.recipes.strict_yaml import YamlNode

_HOST = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*(:[0-9]{1,5})?"
_PATH = r"(/[A-Za-z0-9_~%+@.-]*)*"
_PART = r"[a-z0-9]+([._-]+[a-z0-9]+)*"

Url = Annotated[str, StringConstraints(pattern=rf"^https?://{_HOST}{_PATH}$", max_length=300)]
ProxyUrl = Annotated[str, StringConstraints(pattern=rf"^(https?|socks5h?)://{_HOST}/?$", max_length=200)]
Host = Annotated[
    str,
    StringConstraints(
        pattern=r"^(\*|\.?[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?(/[0-9]{1,3})?)$", max_length=200
    ),
]
Registry = Annotated[
    str,
    StringConstraints(
        pattern=rf"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{{1,5}})?(/{_PART})*$", max_length=200
    ),
]
LocalPath = Annotated[
    str,
    StringConstraints(pattern=r"^(~/|/|\./|(\.\./)+)?[A-Za-z0-9_+@.][A-Za-z0-9._+@/-]*$", max_length=400),
]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class UrlMirror(_Record):
    """What begins with `original` is fetched from `mirror`."""

    original: Url
    mirror: Url

    @model_validator(mode="after")
    def _slashes(self) -> UrlMirror:
        if self.original.endswith("/") != self.mirror.endswith("/"):
            raise ValueError("`original` and `mirror` must both end in a slash, or neither")
        return self


class TeamRegistry(_Record):
    """The team's own registry; written as its address alone, or as a mapping.

    private: only those whom its owner lets in can pull from it, so anything may go there.
    """

    address: Registry = ""
    private: Flag = False

    @model_validator(mode="before")
    @classmethod
    def _address_alone(cls, value: Any) -> Any:
        return {"address": value} if isinstance(value, str) else value


class RegistryMirror(_Record):
    """Images of the registry or repository `original` are pulled from `mirror`."""

    original: Registry
    mirror: Registry


class PipIndexes(_Record):
    """The index in place of pip's own, and more of them."""

    index: Url = ""
    extra: list[Url] = []


class Mirrors(_Record):
    """Where the same things are fetched."""

    apt: list[UrlMirror] = []
    git: list[UrlMirror] = []
    url: list[UrlMirror] = []
    registry: list[RegistryMirror] = []
    pip: PipIndexes = PipIndexes()


class ProxySettings(_Record):
    """Proxies of build steps, and hosts that are reached without one."""

    http: ProxyUrl = ""
    https: ProxyUrl = ""
    no_proxy: list[Host] = []


class SiteFile(_Record):
    """A whole `site.yaml`."""

    ca_bundle: LocalPath = ""
    proxy: ProxySettings = ProxySettings()
    mirrors: Mirrors = Mirrors()
    registry: TeamRegistry = TeamRegistry()
    recipes: list[LocalPath] = []
    allow: list[Id] = []


def is_registry(text: str) -> bool:
    """Whether a text has the form of a registry's address."""
    try:
        TypeAdapter(Registry).validate_python(text)
    except ValidationError:
        return False
    return True


def read_site_file(node: YamlNode, problems: Problems) -> SiteFile | None:
    """Check a file's content; what is wrong is added to `problems` as (file:line, what)."""
    if not node.entries():
        problems.append((node.where, "expected a mapping at the top of the file"))
        return None
    return validate(SiteFile, node, problems)


def problems_error(problems: Sequence[tuple[str, str]]) -> BadInputError:
    """One error for everything that is wrong with the site's files."""
    many = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
    lines = [f"{where}: {what}" for where, what in problems] if len(problems) > 1 else [problems[0][1]]
    return BadInputError(
        f"the site's configuration has {many}",
        where=problems[0][0],
        why="\n".join(lines[:20]),
        hint="docs/site.md describes every field",
    )
