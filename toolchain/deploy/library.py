"""A model library that is to be packaged: what it is called, what it needs, and whether it fits this `tk`."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler import (
    BadInputError,
    DynamicNeeds,
    UsageError,
    dynamic_needs,
    manifest_of,
    sha256_file,
    visible,
)

INTERFACE = 1
"""The version of tk_model.h that header, loader and examples are of."""
NOT_STATED = "LicenseRef-Model-Not-Stated"
"""What stands for the licence of a model of which nothing was said."""
_LONGEST_NAME = 64
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*((a|b|rc)[0-9]+)?(\.post[0-9]+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?")
_OWN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class PackagedLibrary:
    """A library and what a package says of it; `name` is of letters, digits and single dashes.

    `version` is one of PEP 440, `licence` the SPDX expression of the model itself.
    """

    path: Path
    name: str
    version: str
    licence: str
    sha256: str
    manifest: Mapping[str, Any]
    needs: DynamicNeeds

    @property
    def distribution(self) -> str:
        """Its name as a distribution, which is nobody else's: PEP 503."""
        return f"tk-model-{self.name}"

    @property
    def module(self) -> str:
        """Its name as a module, as a library (`lib<module>.so`) and for CMake and pkg-config."""
        return self.distribution.replace("-", "_")

    @property
    def licences(self) -> str:
        """The SPDX expression of a package with the library: our runtime's and the model's."""
        model = f"({self.licence})" if " " in self.licence else self.licence
        return "Apache-2.0" if self.licence == "Apache-2.0" else f"Apache-2.0 AND {model}"

    @property
    def needs_device(self) -> bool:
        """Whether its kernels run on a device, whose runtime the machine must have."""
        return bool(self.manifest["images"])

    @property
    def is_foreign(self) -> bool:
        """Whether it is for processors of another kind than this machine's."""
        return self.needs.machine != platform.machine()

    @property
    def title(self) -> str:
        """What it is, in one line without a name from the model."""
        arch = f" ({visible(str(self.manifest['arch']))})" if self.manifest["arch"] else ""
        return f"Model library {self.name} for {visible(str(self.manifest['target']))}{arch}"


def read_library(path: Path, *, name: str = "", version: str = "", licence: str = "") -> PackagedLibrary:
    """Examine the library at `path`; runs none of its code.

    `name` is by default that of the file, `version` one made from its content. Raises BadInputError for a
    file that is no model library or is of another version of the interface, and UsageError for a name,
    version or licence that cannot be one.
    """
    manifest = manifest_of(path)
    needs = dynamic_needs(path)
    if needs.interface != INTERFACE:
        raise BadInputError(
            "this library has another interface than packages are made for",
            where=str(path),
            why=f"it exports version {needs.interface}, this tk packages version {INTERFACE}",
            hint="compile the model again with this tk",
        )
    missing = {"target", "arch", "inputs", "outputs", "images", "toolchain", "model_sha256"} - manifest.keys()
    if missing:
        raise BadInputError(
            "the manifest of the library is incomplete", where=str(path), why=f"no {min(missing)}"
        )
    digest = sha256_file(path)
    return PackagedLibrary(
        path=path,
        name=_checked_name(name) if name else plain_name(path.name.removesuffix(".so")),
        version=_checked_version(version) if version else f"0+sha{digest[:12]}",
        licence=_checked_licence(licence) if licence else NOT_STATED,
        sha256=digest,
        manifest=manifest,
        needs=needs,
    )


def plain_name(text: str) -> str:
    """Any text as the name of a package: lower case, single dashes for what is neither letter nor digit."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower())[:_LONGEST_NAME].strip("-")
    return plain or "unnamed"


def _checked_name(name: str) -> str:
    plain = plain_name(name)
    if plain != name or not _OWN.fullmatch(name):
        raise UsageError(
            f"`{name}` cannot be the name of a package",
            where="--name",
            why="it takes lower-case letters, digits and single dashes between them",
            hint=f"for example {plain}",
        )
    return name


def _checked_version(version: str) -> str:
    if not _VERSION.fullmatch(version):
        raise UsageError(
            f"`{version}` is no version of a package",
            where="--package-version",
            why="it takes numbers with dots between them, as PEP 440 says",
            hint="for example 1.0.0",
        )
    return version


def _checked_licence(licence: str) -> str:
    """An SPDX expression, or one of its `LicenseRef-` names."""
    from cyclonedx.spdx import is_expression

    if re.fullmatch(r"LicenseRef-[A-Za-z0-9.-]+", licence) or is_expression(licence):
        return licence
    raise UsageError(
        f"`{licence}` is no SPDX licence expression",
        where="--licence",
        hint="for example MIT, Apache-2.0 or LicenseRef-Proprietary; spdx.org/licenses lists them",
    )
