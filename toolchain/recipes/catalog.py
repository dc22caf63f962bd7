"""All recipes: the shipped ones and a site's own, read, joined, filled in and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from compiler import BadInputError, did_you_mean
from toolchain.data import data_directory
from toolchain.recipes import schema
from toolchain.recipes.check import Problems, refused, validate
from toolchain.recipes.consistency import cross_check
from toolchain.recipes.fill import LATE, fill, fill_node, overlay, sample
from toolchain.recipes.strict_yaml import YamlNode, read_strict
from toolchain.recipes.versions import is_comparable, version_key

T = TypeVar("T", bound=BaseModel)

MOST_FILES = 200
_ISSUES = "issues"
# Fields in which placeholders may stay until a combination is resolved.
_LATE_FIELDS = ("install", "build", "selector")
# file, or folder of files -> (the model of the whole, its only field, what names a record, whether a site may
# replace a record)
_TABLES: Mapping[str, tuple[type[BaseModel], str, str, bool]] = {
    "environments.yaml": (schema.Environments, "environments", "name", False),
    _ISSUES: (schema.Issues, "issues", "id", False),
    "rules.yaml": (schema.Rules, "rules", "id", False),
    "systems.yaml": (schema.Systems, "systems", "", False),
    "targets.yaml": (schema.Targets, "targets", "target", True),
}
_FOLDERS = ("stacks", "components", _ISSUES)
# As the value of a row's field: what `each` says does not hold for this row.
_NONE = "none"
_READ_ELSEWHERE = ("devices.yaml",)  # the table of chips: toolchain/devices/table.py


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """A checked record and what it was made of, which may hold placeholders and knows where it stands."""

    row: T
    node: YamlNode

    @property
    def where(self) -> str:
        return self.node.where

    @property
    def content(self) -> Any:
        return self.node.plain()


@dataclass(frozen=True, slots=True)
class StackCatalog:
    """A stack with its versions, oldest first."""

    stack: schema.Stack
    rows: tuple[Entry[schema.StackRow], ...]


@dataclass(frozen=True, slots=True)
class ComponentCatalog:
    """A component with its releases, oldest first."""

    component: schema.ComponentFile
    releases: tuple[Entry[schema.Release], ...]


@dataclass(frozen=True, slots=True)
class RecipeCatalog:
    """Everything that the recipes say, by name. `systems` are named `ubuntu-20.04`."""

    stacks: Mapping[str, StackCatalog]
    components: Mapping[str, ComponentCatalog]
    systems: Mapping[str, Entry[schema.System]]
    rules: Mapping[str, Entry[schema.Rule]]
    targets: Mapping[str, Entry[schema.TargetImages]]
    issues: Mapping[str, Entry[schema.Issue]]
    environments: Mapping[str, Entry[schema.Environment]]

    def entries(self) -> Iterator[Entry[Any]]:
        """Everything that an image can be made of: versions of stacks, releases of components, systems."""
        for stack in self.stacks.values():
            yield from stack.rows
        for component in self.components.values():
            yield from component.releases
        yield from self.systems.values()


def load_catalog(folders: Sequence[Path] = ()) -> RecipeCatalog:
    """Read the shipped recipes and those in `folders`, which add records and replace versions.

    Raises BadInputError that lists every problem of every file with its file:line.
    """
    problems: Problems = []
    files = list(_files(data_directory("recipes"), shipped=True))
    for folder in folders:
        files += _files(folder, shipped=False)
    nodes = _read_all(files, problems)
    if problems:
        raise refused(problems)
    tables = {name: _table(name, nodes, problems) for name in _TABLES}
    stacks = _joined("stack", [node for name, node in nodes if name.startswith("stacks/")], problems)
    parts = _joined("component", [node for name, node in nodes if name.startswith("components/")], problems)
    catalog = RecipeCatalog(
        stacks={name: one for name, node in stacks.items() for one in _stack(node, problems)},
        components={name: one for name, node in parts.items() for one in _component(node, problems)},
        systems=tables["systems.yaml"],
        rules=tables["rules.yaml"],
        targets=tables["targets.yaml"],
        issues=tables[_ISSUES],
        environments=tables["environments.yaml"],
    )
    if not problems:
        cross_check(catalog, problems)
    if problems:
        raise refused(problems)
    return catalog


def load_issues(folders: Sequence[Path] = ()) -> tuple[schema.Issue, ...]:
    """Known issues alone, read in a fraction of the time: those in `folders` before the shipped ones.

    Raises BadInputError as `load_catalog` does.
    """
    problems: Problems = []
    files = [one for folder in folders for one in _files(folder, shipped=False)]
    files += _files(data_directory("recipes"), shipped=True)
    nodes = _read_all([one for one in files if one[0].startswith(f"{_ISSUES}/")], problems)
    found = _table(_ISSUES, nodes, problems)
    if problems:
        raise refused(problems)
    return tuple(one.row for one in found.values())


def _files(folder: Path, *, shipped: bool) -> Iterator[tuple[str, Path, str]]:
    """(path in the folder, path, how it is shown) of the YAML files of a recipe folder."""
    if not folder.is_dir():
        raise BadInputError(
            "a recipe folder does not exist", where=str(folder), hint="check the site's `recipes`"
        )
    paths = [one for one in sorted(folder.rglob("*")) if one.suffix in (".yaml", ".yml")]
    if len(paths) > MOST_FILES:
        raise BadInputError(
            "a recipe folder has too many files", where=str(folder), why=f"limit {MOST_FILES}"
        )
    for path in paths:
        name = path.relative_to(folder).as_posix()
        shown = f"recipes/{name}" if shipped else str(path)
        if name in _READ_ELSEWHERE:
            continue
        known = name in _TABLES or (name.count("/") == 1 and name.split("/")[0] in _FOLDERS)
        if not known or path.suffix != ".yaml":
            tables = [one for one in _TABLES if one not in _FOLDERS]
            places = [*tables, *(f"{one}/NAME.yaml" for one in _FOLDERS)]
            hint = did_you_mean(name, places) or f"recipe files are {', '.join(places)}"
            raise BadInputError("a file is no recipe file", where=shown, hint=hint)
        yield name, path, shown


def _read_all(files: Sequence[tuple[str, Path, str]], problems: Problems) -> list[tuple[str, YamlNode]]:
    nodes: list[tuple[str, YamlNode]] = []
    for name, path, shown in files:
        try:
            node = read_strict(path, shown)
        except BadInputError as error:
            problems.append((error.where, f"{error.what}{': ' if error.why else ''}{error.why}"))
            continue
        if isinstance(node.content, Mapping):
            nodes.append((name, node))
        else:
            problems.append((node.where, "expected a mapping at the top of the file"))
    return nodes


def _table(file: str, nodes: Sequence[tuple[str, YamlNode]], problems: Problems) -> dict[str, Entry[Any]]:
    model, field, key, replaces = _TABLES[file]
    found: dict[str, Entry[Any]] = {}
    for name, node in nodes:
        if file not in (name, name.partition("/")[0]):
            continue
        whole = validate(model, node, problems)
        if whole is None:
            continue
        for record, one in zip(getattr(whole, field), node.entries()[field].items(), strict=True):
            own = f"{record.system}-{record.version}" if not key else getattr(record, key)
            if own in found and (not replaces or found[own].where.split(":")[0] == node.file):
                problems.append((one.where, f"`{own}` is already described in {found[own].where}"))
            found[own] = Entry(record, one)
    return found


def _joined(kind: str, nodes: Sequence[YamlNode], problems: Problems) -> dict[str, YamlNode]:
    """Files about the same stack or component become one: headers overlaid, rows of a version replaced."""
    rows_of = "rows" if kind == "stack" else "releases"
    found: dict[str, YamlNode] = {}
    for node in nodes:
        name = node.entries().get(kind)
        if name is None or not isinstance(name.content, str):
            problems.append((node.where, f"`{kind}` is missing"))
            continue
        rows = _unique(node.entries().get(rows_of), problems)
        before = found.get(name.content)
        if before is not None:
            own = {_version(one) for one in rows}
            rows = [*(one for one in before.entries()[rows_of].items() if _version(one) not in own), *rows]
            node = overlay(before, node)
        joined = YamlNode(tuple(rows), node.file, node.key_lines.get(rows_of, node.line))
        found[name.content] = YamlNode(
            {**node.entries(), rows_of: joined}, node.file, node.line, node.key_lines
        )
    return found


def _unique(rows: YamlNode | None, problems: Problems) -> list[YamlNode]:
    seen: dict[str, str] = {}
    for one in rows.items() if rows else ():
        version = _version(one)
        if version in seen:
            problems.append((one.where, f"version `{version}` is already listed in {seen[version]}"))
        seen[version] = one.where
    return list(rows.items()) if rows else []


def _version(row: YamlNode) -> str:
    version = row.entries().get("version")
    return version.content if version and isinstance(version.content, str) else ""


def _stack(node: YamlNode, problems: Problems) -> Iterator[StackCatalog]:
    rows = [_filled(node, row, problems) for row in node.entries()["rows"].items()]
    checked = _check_whole(schema.Stack, node, "rows", rows, problems)
    if checked is None:
        return
    problems.extend(
        (row.where, f"`version`: {_version(row)} is no version that can be compared")
        for row in rows
        if not is_comparable(_version(row))
    )
    if problems:
        return
    entries = [Entry(one, row) for one, row in zip(checked.rows, rows, strict=True)]
    yield StackCatalog(checked, tuple(sorted(entries, key=lambda one: version_key(one.row.version))))


def _component(node: YamlNode, problems: Problems) -> Iterator[ComponentCatalog]:
    rows = [_filled(node, row, problems) for row in node.entries()["releases"].items()]
    checked = _check_whole(schema.ComponentFile, node, "releases", rows, problems)
    if checked is None:
        return
    entries = [Entry(one, row) for one, row in zip(checked.releases, rows, strict=True)]
    yield ComponentCatalog(checked, tuple(sorted(entries, key=lambda one: version_key(one.row.released))))


def _check_whole(
    model: type[T], node: YamlNode, rows_of: str, rows: Sequence[YamlNode], problems: Problems
) -> T | None:
    header = {key: one for key, one in node.entries().items() if key not in ("each", rows_of)}
    body = YamlNode(tuple(rows), node.file, node.key_lines.get(rows_of, node.line))
    whole = YamlNode({**header, rows_of: body}, node.file, node.line, node.key_lines)
    content = {key: one.plain() for key, one in header.items()}
    return validate(model, whole, problems, {**content, rows_of: [sample(row.plain()) for row in rows]})


def _filled(file: YamlNode, row: YamlNode, problems: Problems) -> YamlNode:
    """A row over the file's `each`, with its own version and parameters filled in."""
    each = file.entries().get("each")
    whole = overlay(each, row) if each is not None else row
    if not isinstance(whole.content, Mapping):
        return whole
    own = {"version": _version(row)}
    parameters = _texts(whole.entries().get("parameters"))
    values = {
        **own,
        **{key: fill(text, own) if text == "{version}" else text for key, text in parameters.items()},
    }
    taken_away = {key for key, one in row.entries().items() if one.content == _NONE and each is not None}
    bases = whole.entries().get("bases")
    late = {*LATE, *(name for base in (bases.items() if bases else ()) for name in _parameters(base))}
    entries = {
        key: fill_node(one, values, late if key in _LATE_FIELDS else None, problems)
        for key, one in whole.content.items()
        if key not in taken_away
    }
    return YamlNode(entries, row.file, row.line, whole.key_lines)


def _parameters(base: YamlNode) -> Mapping[str, str]:
    return _texts(base.entries().get("parameters"))


def _texts(node: YamlNode | None) -> dict[str, str]:
    entries = node.entries() if node is not None else {}
    return {key: one.content for key, one in entries.items() if isinstance(one.content, str)}
