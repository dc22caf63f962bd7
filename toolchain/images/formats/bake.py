"""A plan as a bake file: `docker buildx bake` builds the components and the image in one go."""

from __future__ import annotations

import json
from typing import Any

from toolchain.images.plan import Plan

FILE = "docker-bake.json"
IMAGE_TARGET = "image"


def bake(plan: Plan) -> str:
    """The bake file for the folder that `tk image render -o` writes.

    A component's reference is a named context that stands for its target, so that nothing has to be in a
    registry or an engine first (docs.docker.com/build/bake/contexts).
    """
    targets = {_target(one): _fields(one, f"{folder_of(one)}") for one in every_need(plan)}
    targets[IMAGE_TARGET] = _fields(plan, ".")
    document = {"group": {"default": {"targets": [IMAGE_TARGET]}}, "target": targets}
    return json.dumps(document, indent=2) + "\n"


def every_need(plan: Plan) -> tuple[Plan, ...]:
    """The components of a plan and theirs, each once, in the order in which they are built."""
    found: dict[str, Plan] = {}
    for need in plan.needs:
        found |= {one.key: one for one in (*every_need(need), need)}
    return tuple(found.values())


def folder_of(need: Plan) -> str:
    """Where a component's build context is, relative to that of the image."""
    return f"needs/{_target(need)}"


def _target(need: Plan) -> str:
    return need.repository.rpartition("/")[2]


def _fields(plan: Plan, folder: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "context": folder,
        "dockerfile": "Dockerfile",
        "tags": [plan.reference],
        "labels": dict(plan.build_labels),
    }
    if plan.needs:
        fields["contexts"] = {one.reference: f"target:{_target(one)}" for one in plan.needs}
    return fields
