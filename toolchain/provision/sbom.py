"""The inventory of an image as a CycloneDX document: the same bytes for the same image.

https://cyclonedx.org/specification/overview/, version 1.6. Without time, and with a serial number made from
the image's id, so that two people who look at one image get one document. Packages are named by package URLs
(https://github.com/package-url/purl-spec).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler import __version__, write_atomic
from toolchain.images.plan import UNRESOLVED, Plan
from toolchain.provision.inventory import ImageContents, Package

if TYPE_CHECKING:
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component
    from packageurl import PackageURL

NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 4122, name space of URLs
_PURL_TYPES = {"deb": "deb", "rpm": "rpm", "python": "pypi"}


def sbom_text(inventory: ImageContents, plan: Plan) -> str:
    """CycloneDX 1.6 JSON of an image: base, packages, downloads, and what was built from sources."""
    return bom_text(_bom(inventory, plan))


def bom_text(bom: Bom) -> str:
    """A document as CycloneDX 1.6 JSON, without time: the same bytes for the same document."""
    from cyclonedx.output.json import JsonV1Dot6

    text = JsonV1Dot6(bom).output_as_string(indent=2)
    document = json.loads(text)
    document["metadata"].pop("timestamp", None)  # the library puts the clock there
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def sbom_path(inventory: ImageContents) -> Path:
    """Where `tk` keeps the document of an image: in the user's state folder, by the image's id."""
    from platformdirs import user_state_path

    identity = inventory.id.rpartition(":")[2] or "unknown"
    return user_state_path("tk", appauthor=False) / "sbom" / f"{identity}.cdx.json"


def store_sbom(inventory: ImageContents, plan: Plan) -> Path:
    """Write an image's document to its place in the state folder. Raises HostError."""
    path = sbom_path(inventory)
    write_atomic(path, sbom_text(inventory, plan))
    return path


def _bom(inventory: ImageContents, plan: Plan) -> Bom:
    from cyclonedx.model.component import Component, ComponentType

    image = Component(
        type=ComponentType.CONTAINER,
        name=plan.repository,
        version=plan.reference.rpartition(":")[2],
        bom_ref="image",
        purl=_purl("oci", plan.repository.rpartition("/")[2], inventory.id),
        properties=_properties(inventory, plan),
    )
    parts = [
        *_base(inventory, plan),
        *_packages(inventory),
        *_files(inventory, plan),
        *_sources(inventory, plan),
    ]
    return new_bom(uuid.uuid5(NAMESPACE, f"tk:{inventory.id}"), image, parts)


def new_bom(serial: uuid.UUID, whole: Component, parts: Iterable[Component]) -> Bom:
    """A document about `whole`, which depends on its parts, as made by this version of tk."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType

    tool = Component(type=ComponentType.APPLICATION, name="tk", version=__version__, bom_ref="tk")
    bom = Bom(serial_number=serial)
    bom.metadata.component = whole
    bom.metadata.tools.components.add(tool)
    known = tuple(parts)
    for one in known:
        bom.components.add(one)
    bom.register_dependency(whole, known)
    return bom


def _properties(inventory: ImageContents, plan: Plan) -> list[Any]:
    from cyclonedx.model import Property

    pairs = {
        "tk:name": plan.name,
        "tk:plan": plan.key,
        "tk:recipe": inventory.labels.get("tk.recipe", ""),
        "tk:stand-in": inventory.labels.get("tk.stand-in", ""),
    }
    return [Property(name=name, value=value) for name, value in pairs.items() if value]


def _base(inventory: ImageContents, plan: Plan) -> Iterator[Component]:
    from cyclonedx.model.component import Component, ComponentType

    repository, _, tag = plan.base.reference.rpartition(":")
    digest = "" if plan.base.digest == UNRESOLVED else plan.base.digest
    yield Component(
        type=ComponentType.CONTAINER,
        name=repository or plan.base.reference,
        version=tag or None,
        bom_ref="base",
        purl=_purl("oci", (repository or plan.base.reference).rpartition("/")[2], digest) if digest else None,
    )
    yield Component(
        type=ComponentType.OPERATING_SYSTEM,
        name=inventory.os.get("ID", "linux"),
        version=inventory.os.get("VERSION_ID") or None,
        description=inventory.os.get("PRETTY_NAME") or None,
        bom_ref="system",
    )


def _packages(inventory: ImageContents) -> Iterator[Component]:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, ComponentType

    for one in inventory.packages:
        where = [Property(name="tk:where", value=one.where)] if one.where else []
        yield Component(
            type=ComponentType.LIBRARY,
            name=one.name,
            version=one.version,
            bom_ref=":".join(part for part in (one.kind, one.name, one.version, one.arch, one.where) if part),
            purl=_package_url(one, inventory.os),
            properties=where,
        )


def _files(inventory: ImageContents, plan: Plan) -> Iterator[Component]:
    """Downloads, with the sha256 that was checked when they were fetched."""
    from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
    from cyclonedx.model.component import Component, ComponentType

    for one in sorted(set(plan.downloads), key=lambda download: download.url):
        digest = inventory.files.get(one.path, one.sha256)
        hashes = [] if digest == UNRESOLVED else [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
        yield Component(
            type=ComponentType.FILE,
            name=one.url.rpartition("/")[2],
            version=None,
            bom_ref=f"file:{one.path}",
            hashes=hashes,
            external_references=[
                ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(one.url))
            ],
        )


def _sources(inventory: ImageContents, plan: Plan) -> Iterator[Component]:
    """What was built from sources: its repository and commit."""
    from cyclonedx.model import ExternalReference, ExternalReferenceType, XsUri
    from cyclonedx.model.component import Component, ComponentType

    for need in plan.needs:
        for tree in need.git:
            commit = inventory.commits.get(tree.url, tree.commit)
            yield Component(
                type=ComponentType.APPLICATION,
                name=need.name,
                version=commit,
                bom_ref=f"component:{need.name}",
                external_references=[ExternalReference(type=ExternalReferenceType.VCS, url=XsUri(tree.url))],
            )


def _package_url(package: Package, system: Mapping[str, str]) -> PackageURL:
    from packageurl import PackageURL

    if package.kind == "python":
        return PackageURL("pypi", name=package.name, version=package.version)
    vendor, release = system.get("ID", "linux"), system.get("VERSION_ID", "")
    facts = {"arch": package.arch, "distro": f"{vendor}-{release}" if release else vendor}
    return PackageURL(_PURL_TYPES[package.kind], vendor, package.name, package.version, facts)


def _purl(kind: str, name: str, version: str) -> PackageURL:
    from packageurl import PackageURL

    return PackageURL(kind, name=name, version=version or None)
