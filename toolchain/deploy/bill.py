"""What is inside of a package, as a CycloneDX document: the same bytes for the same package."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler import __version__
from toolchain.deploy.library import PackagedLibrary
from toolchain.provision.sbom import NAMESPACE, bom_text, new_bom

if TYPE_CHECKING:
    from cyclonedx.model import HashType
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import LicenseExpression

GLIBC = "LGPL-2.1-or-later"
GCC_RUNTIME = "GPL-3.0-or-later WITH GCC-exception-3.1"
APACHE = "Apache-2.0"


@dataclass(frozen=True, slots=True)
class CopiedLibrary:
    """A shared library that goes along: its file's name, checksum, and the package that it comes from.

    `package` is NAME=VERSION of Debian's package, empty where no package manager knows the file; `licence` is
    an SPDX expression, empty where it is not known.
    """

    name: str
    sha256: str
    package: str = ""
    licence: str = ""


def package_bill(
    library: PackagedLibrary, copied: Sequence[CopiedLibrary] = (), *, has_runner: bool = False
) -> bytes:
    """CycloneDX 1.6 JSON of a package: the model, our runtime, what was linked in and what goes along."""
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, ComponentType

    identity = "\n".join([library.sha256, library.name, library.version, *(one.sha256 for one in copied)])
    manifest = library.manifest
    facts = {
        "tk:target": manifest["target"],
        "tk:arch": manifest["arch"],
        "tk:machine": library.needs.machine,
        "tk:toolchain": manifest["toolchain"],
        "tk:model-sha256": manifest["model_sha256"],
        "tk:needs": " ".join(library.needs.libraries),
    }
    model = Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=library.distribution,
        version=library.version,
        bom_ref="model",
        hashes=_sha256(library.sha256),
        licenses=_licences(library.licence),
        properties=[Property(name=name, value=str(value)) for name, value in facts.items() if value],
    )
    parts = [*_own_parts(library, has_runner=has_runner), *map(_copied, copied)]
    return bom_text(new_bom(uuid.uuid5(NAMESPACE, f"tk:package:{identity}"), model, parts)).encode()


def _own_parts(library: PackagedLibrary, *, has_runner: bool) -> Iterator[Component]:
    from cyclonedx.model.component import Component, ComponentType

    yield Component(
        type=ComponentType.LIBRARY, name="tk-runtime", version=__version__, bom_ref="runtime",
        description="C++ runtime that is linked into the library", licenses=_licences(APACHE),
    )  # fmt: skip
    if "g++" in str(library.manifest["toolchain"]):
        version = str(library.manifest["toolchain"]).rpartition(" ")[2]
        yield Component(
            type=ComponentType.LIBRARY, name="libgcc", version=version, bom_ref="libgcc",
            description="start-up code and helpers of the compiler, linked into the library",
            licenses=_licences(GCC_RUNTIME),
        )  # fmt: skip
    if has_runner:
        yield Component(
            type=ComponentType.APPLICATION, name="tk-run", version=__version__, bom_ref="runner",
            licenses=_licences(APACHE),
        )  # fmt: skip


def _copied(one: CopiedLibrary) -> Component:
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    name, _, version = one.package.partition("=")
    return Component(
        type=ComponentType.LIBRARY,
        name=one.name,
        version=version or None,
        bom_ref=f"file:{one.name}",
        hashes=_sha256(one.sha256),
        licenses=_licences(one.licence) if one.licence else (),
        purl=PackageURL("deb", "debian", name, version) if name else None,
    )


def _sha256(digest: str) -> list[HashType]:
    from cyclonedx.model import HashAlgorithm, HashType

    return [HashType(alg=HashAlgorithm.SHA_256, content=digest)]


def _licences(expression: str) -> list[LicenseExpression]:
    from cyclonedx.model.license import LicenseExpression

    return [LicenseExpression(expression)]
