"""The image of a vendor's runtime, onto which a package's layers are put: read from an archive or a layout.

Formats: OCI image layout (a folder, or a tar of it) and Docker's archive (`manifest.json`, Docker image
specification 1.2), as `docker save` and `podman save` write them. Nothing of it is run. What it says of
itself is not believed: every layer is hashed.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler import BadInputError
from toolchain.deploy.packed import FilePart, PackedFile

_MOST_JSON = 16 << 20
_MOST_LAYERS = 1000
_MOST_NESTED = 4
_KINDS = ((b"\x1f\x8b", "tar+gzip"), (b"\x28\xb5\x2f\xfd", "tar+zstd"))
"""How a compressed layer begins: RFC 1952, RFC 8878."""
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_HAS_VERSIONS = re.compile(r"lib(c|stdc\+\+)(\.so\.6(\.[0-9.]+)?|-2\.[0-9]+\.so)")
_VERSION = re.compile(rb"\b(GLIBC|GLIBCXX|CXXABI)_(\d+(?:\.\d+)+)\0")
_MOST_LIBRARY = 64 << 20


@dataclass(frozen=True, slots=True)
class SavedLayer:
    """A layer as it lies there: `kind` is tar, tar+gzip or tar+zstd; digests are hexadecimal.

    `diff_id` is that of the tar.
    """

    kind: str
    content: Path | FilePart
    digest: str
    diff_id: str


@dataclass(frozen=True, slots=True)
class SavedImage:
    """An image that others are made from: what it is called, its layers, and its configuration."""

    name: str
    digest: str
    layers: tuple[SavedLayer, ...]
    config: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        """Of which machine it is, as Go calls it: amd64, arm64."""
        return str(self.config.get("architecture", ""))

    @property
    def size(self) -> int:
        """Bytes of its layers, as they lie there."""
        return sum(PackedFile("", one.content).size for one in self.layers)

    def setting(self, name: str) -> Any:
        """What its configuration says a container has: `Env`, `Labels` and so on."""
        found = self.config.get("config")
        return found.get(name) if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class BaseContents:
    """Names of the files in an image, and the highest versions of symbols that glibc and libstdc++ offer.

    `complete` is false where a layer is compressed in a way that cannot be read here.
    """

    names: frozenset[str]
    versions: Mapping[str, tuple[int, ...]]
    complete: bool


def read_base(path: Path, name: str, architecture: str) -> SavedImage:
    """The image in an archive or layout; of several, that of an architecture.

    Raises BadInputError for what is none, and where a digest is not that of its bytes.
    """
    try:
        return _Reader(path, name, architecture).read()
    except (OSError, EOFError, tarfile.TarError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _no_image(path, str(error)) from error


def contents_of(base: SavedImage) -> BaseContents:
    """Look through the layers of an image; raises BadInputError where one cannot be read."""
    names: set[str] = set()
    versions: dict[str, tuple[int, ...]] = {}
    for layer in base.layers:
        if layer.kind == "tar+zstd":
            continue
        try:
            with PackedFile("", layer.content).open() as stream:
                mode = "r|gz" if layer.kind == "tar+gzip" else "r|"
                with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]
                    _look_through(archive, names, versions)
        except (OSError, EOFError, tarfile.TarError) as error:
            raise BadInputError(
                "a layer of the base cannot be read", where=base.name, why=f"sha256:{layer.digest}: {error}"
            ) from error
    return BaseContents(frozenset(names), versions, all(one.kind != "tar+zstd" for one in base.layers))


def _look_through(archive: tarfile.TarFile, names: set[str], versions: dict[str, tuple[int, ...]]) -> None:
    for member in archive:
        name = posixpath.basename(member.name)
        names.add(name)
        if not member.isfile() or member.size > _MOST_LIBRARY or not _HAS_VERSIONS.fullmatch(name):
            continue
        stream = archive.extractfile(member)
        for family, numbers in set(_VERSION.findall(stream.read() if stream is not None else b"")):
            version = tuple(int(one) for one in numbers.split(b"."))
            key = family.decode()
            versions[key] = max(version, versions.get(key, ()))


def _no_image(path: Path, why: str) -> BadInputError:
    return BadInputError(
        "this is no image",
        where=str(path),
        why=why,
        hint="an OCI layout, or an archive that `docker save` or `podman save` wrote, not compressed",
    )


class _Reader:
    """Reads one image out of a folder or an archive."""

    def __init__(self, path: Path, name: str, architecture: str) -> None:
        self._path = path
        self._name = name
        self._architecture = architecture
        self._find = _in_folder(path) if path.is_dir() else _in_archive(path)

    def read(self) -> SavedImage:
        if (index := self._find("index.json")) is not None:
            return self._oci(self._json(index))
        if (listed := self._find("manifest.json")) is not None:
            return self._docker(self._json(listed))
        raise _no_image(self._path, "it has neither index.json nor manifest.json")

    def _oci(self, index: Any, depth: int = 0) -> SavedImage:
        entries = [one for one in _list(index, "manifests") if self._fits(one)]
        if not entries or depth > _MOST_NESTED:
            raise _no_image(self._path, f"it has no image for {self._architecture}")
        manifest, digest = self._blob_json(entries[0])
        if "manifests" in manifest:
            return self._oci(manifest, depth + 1)
        config, _ = self._blob_json(manifest.get("config"))
        blobs = [self._blob(one) for one in _list(manifest, "layers")]
        return self._image(config, blobs, digest)

    def _fits(self, entry: Any) -> bool:
        platform = entry.get("platform") if isinstance(entry, dict) else None
        return not isinstance(platform, dict) or platform.get("architecture") in (None, self._architecture)

    def _docker(self, listed: Any) -> SavedImage:
        if not isinstance(listed, list) or len(listed) != 1 or not isinstance(listed[0], dict):
            raise _no_image(self._path, "its manifest.json does not list one image")
        content = self._named(str(listed[0].get("Config")))
        data = self._bytes(content)
        config = json.loads(data)
        blobs = [self._named(str(one)) for one in _list(listed[0], "Layers")]
        hashed = [(one, PackedFile("", one).sha256) for one in blobs]
        return self._image(config, hashed, hashlib.sha256(data).hexdigest())

    def _image(self, config: Any, blobs: list[tuple[Path | FilePart, str]], digest: str) -> SavedImage:
        diffs = [_DIGEST.fullmatch(str(one)) for one in _list(config.get("rootfs"), "diff_ids")]
        if len(diffs) != len(blobs) or not blobs or len(blobs) > _MOST_LAYERS:
            raise _no_image(self._path, f"{len(diffs)} digests of layers for {len(blobs)} layers")
        layers = []
        for found, (content, hashed) in zip(diffs, blobs, strict=True):
            kind = _kind_of(content)
            if found is None or (kind == "tar" and found[1] != hashed):
                raise _no_image(
                    self._path, f"a layer has the digest sha256:{hashed}, which its list does not"
                )
            layers.append(SavedLayer(kind, content, hashed, found[1]))
        return SavedImage(self._name, f"sha256:{digest}", tuple(layers), config)

    def _blob_json(self, descriptor: Any) -> tuple[Any, str]:
        content, digest = self._blob(descriptor)
        found = json.loads(self._bytes(content))
        if not isinstance(found, dict):
            raise _no_image(self._path, f"sha256:{digest} is no JSON object")
        return found, digest

    def _blob(self, descriptor: Any) -> tuple[Path | FilePart, str]:
        named = descriptor.get("digest") if isinstance(descriptor, dict) else None
        found = _DIGEST.fullmatch(str(named))
        if found is None:
            raise _no_image(self._path, f"the digest {named} is not of SHA-256")
        content = self._named(f"blobs/sha256/{found[1]}")
        if PackedFile("", content).sha256 != found[1]:
            raise _no_image(self._path, f"the bytes of {named} are others")
        return content, found[1]

    def _named(self, name: str) -> Path | FilePart:
        found = self._find(name)
        if found is None:
            raise _no_image(self._path, f"it has no {name}")
        return found

    def _json(self, content: Path | FilePart) -> Any:
        return json.loads(self._bytes(content))

    def _bytes(self, content: Path | FilePart) -> bytes:
        one = PackedFile("", content)
        if one.size > _MOST_JSON:
            raise _no_image(self._path, f"a document of {one.size:,} bytes")
        with one.open() as stream:
            return stream.read()


_Find = Callable[[str], "Path | FilePart | None"]


def _in_folder(root: Path) -> _Find:
    def find(name: str) -> Path | None:
        path = root / name
        inside = path.resolve().is_relative_to(root.resolve())
        return path if inside and path.is_file() else None

    return find


def _in_archive(path: Path) -> _Find:
    """Members by name, where they lie; links, as Docker's archives have them for equal layers, too."""
    parts: dict[str, FilePart] = {}
    links: dict[str, str] = {}
    with path.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            if member.isreg():
                parts[name] = FilePart(path, member.offset_data, member.size)
            elif member.issym():
                links[name] = posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))
            elif member.islnk():
                links[name] = posixpath.normpath(member.linkname)
    return lambda name: parts.get(name) or parts.get(links.get(name, ""))


def _kind_of(content: Path | FilePart) -> str:
    with PackedFile("", content).open() as stream:
        start = stream.read(4)
    return next((kind for magic, kind in _KINDS if start.startswith(magic)), "tar")


def _list(document: Any, name: str) -> list[Any]:
    found = document.get(name) if isinstance(document, dict) else None
    return found if isinstance(found, list) else []
