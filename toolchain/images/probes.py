"""Smoke tests that need more than one program's name: small programs that the image carries."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from compiler import BadInputError, did_you_mean
from toolchain.data import data_directory
from toolchain.images import steps
from toolchain.images.plan import ContextFile, SmokeTest

if TYPE_CHECKING:
    from toolchain.recipes.schema import Layer

_FOLDER = "probes"
_READS = re.compile(r"\$here/([A-Za-z0-9_.-]+)")


def probe_files(layers: Sequence[Layer], where: str) -> tuple[ContextFile, ...]:
    """The files of every probe that the layers name, for the context.

    A probe is `dockerfiles/probes/<name>.sh` with the files beside it that it reads. Raises BadInputError
    for a name that has none.
    """
    folder = data_directory("dockerfiles") / _FOLDER
    known = sorted(one.stem for one in folder.glob("*.sh"))
    wanted = sorted({one.probe for layer in layers for one in layer.smoke if one.probe is not None})
    unknown = [one for one in wanted if one not in known]
    if unknown:
        raise BadInputError(
            f"no probe is called {', '.join(map(repr, unknown))}",
            where=where,
            why=f"probes: {', '.join(known)}",
            hint=did_you_mean(unknown[0], known) or "write the command itself under `run`",
        )
    scripts = {f"{name}.sh": (folder / f"{name}.sh").read_text() for name in wanted}
    read = {name for text in scripts.values() for name in _READS.findall(text)}
    names = sorted({*scripts, *read})
    return tuple(ContextFile(f"{_FOLDER}/{name}", (folder / name).read_bytes()) for name in names)


def smoke_tests(layers: Sequence[Layer]) -> tuple[SmokeTest, ...]:
    """The smoke tests of layers, as programs with arguments."""
    return tuple(
        SmokeTest(
            one.name,
            ("sh", f"{steps.PROBES}/{one.probe}.sh") if one.probe else tuple(one.run),
            one.needs_device,
            one.expect or "",
        )
        for layer in layers
        for one in layer.smoke
    )
