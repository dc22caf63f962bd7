"""An image written without an engine: an OCI image layout that Docker's archives are, too.

Formats: OCI image specification 1.1 (layout, index, manifest, configuration); Docker image specification 1.2
(`manifest.json`), which engines before Docker 25 read alone. Layers are not compressed, so that their bytes
depend on nothing but the files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler import UsageError, private_directory, sha256_file, stream_atomic
from toolchain.deploy.bill import GCC_RUNTIME, GLIBC
from toolchain.deploy.ground import WRITABLE, Ground
from toolchain.deploy.library import PackagedLibrary
from toolchain.deploy.packed import FilePart, PackedFile, write_tar
from toolchain.deploy.slim import RUNNER, USER, ImageLayer

_ARCHITECTURES = {"x86_64": {"architecture": "amd64"}, "aarch64": {"architecture": "arm64", "variant": "v8"}}
_TYPE = "application/vnd.oci.image"
_EPOCH = "1970-01-01T00:00:00Z"
_PART = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_REFERENCE = re.compile(rf"{_PART}(:[0-9]+)?(/{_PART})*:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}")


@dataclass(frozen=True, slots=True)
class _Blob:
    """A part of an image by its digest: its media type, and where its bytes are."""

    kind: str
    content: bytes | Path | FilePart
    digest: str

    @property
    def path(self) -> str:
        return f"blobs/sha256/{self.digest}"

    def descriptor(self) -> dict[str, Any]:
        size = PackedFile(self.path, self.content).size
        return {"mediaType": self.kind, "digest": f"sha256:{self.digest}", "size": size}


def image_reference(library: PackagedLibrary, given: str | None) -> str:
    """What an image is called: `given`, else NAME:VERSION; raises UsageError for what no engine takes."""
    version = re.sub(r"[^A-Za-z0-9_.-]", "-", library.version)
    reference = given or f"{library.distribution}:{version}"
    if not _REFERENCE.fullmatch(reference):
        raise UsageError(
            f"`{reference}` cannot be the name of an image",
            where="--tag",
            hint=f"NAME:TAG, with a registry in front or without, for example {library.distribution}:1",
        )
    return reference


def architecture_of(library: PackagedLibrary) -> str:
    """What images call the machine of a library."""
    return _ARCHITECTURES[library.needs.machine]["architecture"]


def write_image(
    library: PackagedLibrary,
    layers: Sequence[ImageLayer],
    reference: str,
    output: Path,
    ground: Ground | None = None,
) -> str:
    """Write an image's layout as the tar `output`; returns the digest of its manifest, `sha256:...`.

    The same files on the same ground give the same bytes. Raises HostError when the place cannot be written.
    """
    below = () if ground is None else ground.base.layers
    with private_directory("tk-package") as folder:
        own = [_layer_blob(one, folder / f"{number}.tar") for number, one in enumerate(layers)]
        config = _json_blob("config.v1+json", _config(library, layers, own, ground))
        packed = [*(_Blob(f"{_TYPE}.layer.v1.{one.kind}", one.content, one.digest) for one in below), *own]
        platform = {**_ARCHITECTURES[library.needs.machine], "os": "linux"}
        manifest = _json_blob(
            "manifest.v1+json",
            {
                "schemaVersion": 2,
                "mediaType": f"{_TYPE}.manifest.v1+json",
                "config": config.descriptor(),
                "layers": [one.descriptor() for one in packed],
                "annotations": _labels(library, ground),
            },
        )
        names = {
            "io.containerd.image.name": reference,
            "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
        }
        entry = {**manifest.descriptor(), "platform": platform, "annotations": names}
        index = {"schemaVersion": 2, "mediaType": f"{_TYPE}.index.v1+json", "manifests": [entry]}
        docker = [{"Config": config.path, "RepoTags": [reference], "Layers": [one.path for one in packed]}]
        files = [
            PackedFile("oci-layout", _json({"imageLayoutVersion": "1.0.0"})),
            PackedFile("index.json", _json(index)),
            PackedFile("manifest.json", _json(docker)),
            *{one.path: PackedFile(one.path, one.content) for one in (config, manifest, *packed)}.values(),
        ]
        with stream_atomic(output) as stream:
            write_tar(files, stream)
        return f"sha256:{manifest.digest}"


def _layer_blob(layer: ImageLayer, path: Path) -> _Blob:
    with stream_atomic(path) as stream:
        write_tar(layer.files, stream)
    return _Blob(f"{_TYPE}.layer.v1.tar", path, sha256_file(path))


def _json_blob(kind: str, document: object) -> _Blob:
    data = _json(document)
    return _Blob(f"{_TYPE}.{kind}", data, hashlib.sha256(data).hexdigest())


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def _config(
    library: PackagedLibrary, layers: Sequence[ImageLayer], own: Sequence[_Blob], ground: Ground | None
) -> Mapping[str, Any]:
    below = () if ground is None else ground.base.layers
    return {
        **_ARCHITECTURES[library.needs.machine],
        "os": "linux",
        "created": _EPOCH,
        "config": {
            "User": USER,
            "Env": ["PATH=/usr/bin"] if ground is None else _environment(ground),
            "Entrypoint": [RUNNER],
            "WorkingDir": "/",
            "Labels": _labels(library, ground),
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{one}" for one in (*(b.diff_id for b in below), *(o.digest for o in own))],
        },
        "history": [
            *({"created": _EPOCH, "created_by": "tk package: the base"} for _ in below),
            *({"created": _EPOCH, "created_by": f"tk package: {one.title}"} for one in layers),
        ],
    }


def _environment(ground: Ground) -> list[str]:
    """That of the base; a home that runtimes which compile kernels may write to, if the container has one."""
    given = ground.base.setting("Env")
    kept = [one for one in given if isinstance(one, str)] if isinstance(given, list) else []
    names = {one.partition("=")[0] for one in kept}
    own = {
        **({} if "PATH" in names else {"PATH": "/usr/local/bin:/usr/bin:/bin"}),
        "HOME": WRITABLE,
        "TMPDIR": WRITABLE,
    }
    return [one for one in kept if one.partition("=")[0] not in own] + [f"{k}={v}" for k, v in own.items()]


def _labels(library: PackagedLibrary, ground: Ground | None) -> dict[str, str]:
    """On a base its own terms hold as well, which no label of ours states."""
    own = {
        "org.opencontainers.image.title": library.title,
        "org.opencontainers.image.version": library.version,
        "org.opencontainers.image.licenses": f"{library.licences} AND {GLIBC} AND {GCC_RUNTIME}",
        "tk.library": f"sha256:{library.sha256}",
        "tk.target": str(library.manifest["target"]),
    }
    if ground is None:
        return own
    given = ground.base.setting("Labels")
    kept = {str(k): str(v) for k, v in given.items()} if isinstance(given, dict) else {}
    return {
        **{name: value for name, value in kept.items() if not name.startswith("tk.")},
        **own,
        "org.opencontainers.image.licenses": library.licences,
        "org.opencontainers.image.base.name": ground.base.name,
        "org.opencontainers.image.base.digest": ground.base.digest,
        **{f"tk.run.{engine}": words for engine, words in ground.commands().items()},
    }
