"""A plan as the text and the files that a builder gets; the same plan always gives the same bytes."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from toolchain.images import quoting
from toolchain.images.parse_back import check_parses_back
from toolchain.images.plan import ContextFile, Copy, From, Instruction, Plan, Run, Stage

if TYPE_CHECKING:
    import jinja2

_FILTERS = ("comment", "exec_form", "image", "path", "quoted", "search_path", "variable", "words")
SECRET_FOLDER = ".secrets"  # noqa: S105 - where secrets lie, not one
"""Where the classic builder's context has build secrets: one file for each id, empty when there is none."""


def dockerfile(plan: Plan, *, mounts: bool = True) -> str:
    """The plan's Dockerfile, read back and compared with the plan.

    mounts: as BuildKit reads it; False gives the form for the classic builder, which knows no mounts (see
    `without_mounts`). Raises InternalError when the text does not say what the plan says, and BadInputError
    for values that no Dockerfile can hold.
    """
    wanted = plan if mounts else without_mounts(plan)
    text = _template("Dockerfile.j2").render(plan=wanted)
    check_parses_back(wanted, text)
    return text


def context(plan: Plan, *, mounts: bool = True) -> tuple[ContextFile, ...]:
    """The files of the build context, Dockerfile included, sorted by path.

    Without mounts the context needs one more file for each of `plan.secrets`, `.secrets/<id>`, which the
    caller adds (empty when there is no such secret).
    """
    text = dockerfile(plan, mounts=mounts)
    files = (ContextFile("Dockerfile", text.encode()), *plan.files)
    return tuple(sorted(files, key=lambda one: one.path))


def without_mounts(plan: Plan) -> Plan:
    """The same plan for the classic builder.

    Files of the context are copied into each stage that reads them, caches start empty and are removed, and
    secrets are copied into the stages whose layers do not become the image's.
    """
    kept = _layers_of_the_image(plan)
    stages = tuple(_stage_without_mounts(one, keep_secrets=one.name not in kept) for one in plan.stages)
    return dataclasses.replace(plan, stages=stages)


def _layers_of_the_image(plan: Plan) -> set[str]:
    """The last stage and the stages that it stands on: their layers are the image's."""
    below = {
        one.stage: one.image for stage in plan.stages for one in stage.instructions if isinstance(one, From)
    }
    found = {plan.stages[-1].name}
    name = plan.stages[-1].name
    while (name := below[name]) in below:
        found.add(name)
    return found


def _stage_without_mounts(stage: Stage, *, keep_secrets: bool) -> Stage:
    written: list[Instruction] = []
    copied: set[tuple[str, str]] = set()
    for one in stage.instructions:
        if not isinstance(one, Run):
            written.append(one)
            continue
        for mount in one.mounts:
            if mount.kind == "cache" or (mount.kind == "secret" and not keep_secrets):
                continue
            source = mount.source if mount.kind == "bind" else f"{SECRET_FOLDER}/{mount.id}"
            if (source, mount.target) not in copied:
                copied.add((source, mount.target))
                written.append(Copy((source,), mount.target, mount.from_stage))
        caches = tuple(mount.target for mount in one.mounts if mount.kind == "cache")
        emptied = (("find", *caches, "-mindepth", "1", "-delete"),) if caches else ()
        made = (("mkdir", "-p", *caches),) if caches else ()
        written.append(dataclasses.replace(one, commands=(*made, *one.commands, *emptied), mounts=()))
    return dataclasses.replace(stage, instructions=tuple(written))


def _template(name: str) -> jinja2.Template:
    return _environment().get_template(name)


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    from toolchain.data import data_directory

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_directory("dockerfiles")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - no HTML; every value passes a quoting filter
    )
    environment.filters.update({name: getattr(quoting, name) for name in _FILTERS})
    environment.tests["instance"] = lambda value, name: type(value).__name__ == name
    return environment
