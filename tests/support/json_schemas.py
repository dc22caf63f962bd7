"""Documents against JSON schemas; the libraries take a second to import: only who validates does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def schema_problem(schema: Mapping[str, Any], document: object, *, formats: bool = False) -> str:
    """What a schema refuses in a document, "" for nothing; formats: also dates, addresses and such."""
    import jsonschema

    kind = jsonschema.validators.validator_for(schema)
    checker = jsonschema.FormatChecker() if formats else None
    best = jsonschema.exceptions.best_match(kind(schema, format_checker=checker).iter_errors(document))
    return "" if best is None else f"{best.json_path}: {best.message}"


def bill_problem(text: str) -> str:
    """What CycloneDX's schema, version 1.6, refuses in a bill of materials; "" for nothing."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    return "" if problem is None else str(problem)
