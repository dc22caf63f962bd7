"""The recipe format as JSON Schema and as tables: `python -m toolchain.recipes.published` rewrites both.

The schema describes files as they are written: rows may leave out what `each` gives, a field may be `none`,
and texts may have placeholders. What `tk` checks is stricter: rows are checked when all that is filled in.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from compiler import write_atomic
from toolchain.data import data_directory
from toolchain.recipes import schema

FILES: dict[str, type[BaseModel]] = {
    "stacks/NAME.yaml": schema.Stack,
    "components/NAME.yaml": schema.ComponentFile,
    "systems.yaml": schema.Systems,
    "rules.yaml": schema.Rules,
    "targets.yaml": schema.Targets,
    "environments.yaml": schema.Environments,
    "issues/NAME.yaml": schema.Issues,
}
BEGIN, END = "<!-- made by toolchain.recipes.published: begin -->", "<!-- end -->"
# Records of which a file may write a part, because `each` or another file has the rest.
_PARTIAL = {"StackRow": ["version"], "Release": ["version"], "Build": [], "Stack": [], "ComponentFile": []}
_FILLED = r"^[^\x00-\x1f\x7f$`\\]*\{[a-z][a-z0-9-]*(\.(version|prefix))?\}[^\x00-\x1f\x7f$`\\]*$"


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one recipe file of any kind."""
    _, document = models_json_schema(
        [(model, "validation") for model in FILES.values()], ref_template="#/$defs/{model}"
    )
    records = {name: _written(name, record) for name, record in sorted(document["$defs"].items())}
    for whole, row, rows in (("Stack", "StackRow", "rows"), ("ComponentFile", "Release", "releases")):
        records[f"Each{row}"] = {**records[row], "required": []}
        properties = records[whole]["properties"]
        properties["each"] = {"$ref": f"#/$defs/Each{row}"}
        properties[rows] = {"type": "array", "items": {"$ref": f"#/$defs/{row}"}}
        records[whole]["required"] = ["stack" if row == "StackRow" else "component", rows]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Recipe files of tk",
        "description": "A file is one of these, by its name: " + ", ".join(FILES),
        "anyOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in FILES.values()],
        "$defs": records,
    }


def _written(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """A record as files write it."""
    record = {**record, "required": _PARTIAL.get(name, record.get("required", []))}
    properties = {key: _with_placeholders(one) for key, one in record["properties"].items()}
    if name in ("StackRow", "Release"):
        properties = {key: _or_none(key, one) for key, one in properties.items()}
    return {**record, "properties": properties}


def _or_none(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return value if key == "version" else {"anyOf": [value, {"const": "none"}]}


def _with_placeholders(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_placeholders(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "pattern" in value:
        return {"anyOf": [value, {"type": "string", "pattern": _FILLED, "maxLength": 300}]}
    return {key: one if key == "default" else _with_placeholders(one) for key, one in value.items()}


def schema_text() -> str:
    """The published file's text."""
    return json.dumps(json_schema(), indent=1, sort_keys=True) + "\n"


def tables() -> str:
    """A table of fields for each record, in the order in which files mention them."""
    _, document = models_json_schema([(model, "validation") for model in FILES.values()])
    records = document["$defs"]
    order: list[str] = []
    for model in FILES.values():
        _collect(model.__name__, records, order)
    return "\n".join(part for name in order for part in _table(name, records[name]))


def _collect(name: str, records: dict[str, Any], order: list[str]) -> None:
    if name in order:
        return
    order.append(name)
    for reference in _references(records[name]):
        _collect(reference, records, order)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for one in value.values():
            yield from _references(one)
    elif isinstance(value, list):
        for one in value:
            yield from _references(one)


def _table(name: str, record: dict[str, Any]) -> Iterator[str]:
    files = [file for file, model in FILES.items() if model.__name__ == name]
    yield f"### {name}" + (f" (`{files[0]}`)" if files else "") + "\n"
    yield textwrap.fill(" ".join(str(record.get("description", "")).split()), 118) + "\n"
    yield "| field | value | |\n|---|---|---|"
    required = record.get("required", [])
    for key, value in record["properties"].items():
        default = f"default `{_default(value['default'])}`" if _default(value.get("default")) else ""
        yield f"| `{key}` | {_said(value)} | {'required' if key in required else default} |"
    yield ""


def _default(value: Any) -> str:
    """What is worth showing of a default: not that something is empty or false."""
    return str(value) if isinstance(value, (str, int)) and value and not isinstance(value, bool) else ""


def _said(value: Any) -> str:
    """A value's grammar in words."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        return " or ".join(_said(one) for one in value["anyOf"] if one.get("type") != "null")
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    if value.get("type") == "array":
        return f"list: {_said(value['items'])}" if "items" in value else "list"
    if value.get("type") == "object":
        inner = [*value.get("patternProperties", {}).values(), value.get("additionalProperties", {})]
        return f"mapping of names to: {_said(inner[0])}"
    words = {"boolean": "`true` or `false`", "integer": "a whole number"}
    return str(value.get("description") or words.get(value.get("type", ""), "text")).replace("|", "\\|")


def recipes_page(text: str) -> str:
    """The page with its tables renewed; what is outside of the markers stays."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def main() -> int:
    """Rewrite recipes/schema.json, and the pages named on the command line."""
    write_atomic(data_directory("recipes") / "schema.json", schema_text().encode())
    for name in sys.argv[1:]:
        path = Path(name)
        write_atomic(path, recipes_page(path.read_text()).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
