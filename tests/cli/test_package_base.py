"""`tk package --format oci --base`: layers on the image of a vendor's runtime, without an engine."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler import BadInputError, TkError, UsageError
from tests.support import command
from tests.support.command import Result
from tests.support.onnx_models import model
from toolchain.deploy.base import contents_of, read_base
from toolchain.deploy.ground import Runtime
from toolchain.deploy.image import make_image
from toolchain.deploy.library import PackagedLibrary, read_library
from toolchain.deploy.oci import architecture_of
from toolchain.deploy.wishes import ImageWishes
from toolchain.devices.elsewhere import options_elsewhere

Tk = Callable[..., Result]
NEEDED = ("libc.so.6", "libm.so.6", "libstdc++.so.6.0.99", "libstdc++.so.6", "libgcc_s.so.1", "libdl.so.2")
NEEDED += ("libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1")
NEW = b"\0GLIBC_2.99\0GLIBCXX_3.4.99\0CXXABI_1.3.99\0"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("library")
    x = np.ones((2, 3), np.float32)
    onnx.save(model([helper.make_node("Relu", ["x"], ["y"])], {"x": x}, ["y"]), folder / "relu.onnx")
    done = command.tk("compile", "relu.onnx", cwd=folder)
    assert done.code == 0, done.err
    return folder / "relu.so"


@pytest.fixture
def library(file: Path) -> PackagedLibrary:
    """A library whose manifest says that it is for a GPU, which this machine need not have."""
    found = read_library(file)
    return replace(
        found, manifest={**found.manifest, "images": [{"kind": "code object"}], "target": "rocm-amd"}
    )


def packed(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture
def layers() -> list[bytes]:
    """Of a base: one with the libraries of a system, one with a vendor's."""
    system = {
        f"usr/lib/{name}": NEW if name.startswith(("libc.", "libstdc++.so.6.")) else b"" for name in NEEDED
    }
    return [packed({**system, "bin/sh": b"shell"}), packed({"opt/vendor/libvendor.so": b"code"})]


def configuration(layers: list[bytes], architecture: str) -> bytes:
    own = {
        "Env": ["PATH=/opt/vendor/bin:/usr/bin", "LD_LIBRARY_PATH=/opt/vendor", "HOME=/root"],
        "Labels": {"maintainer": "somebody", "tk.plan": "123"},
        "Entrypoint": ["/bin/sh"],
        "User": "0",
    }
    document = {"architecture": architecture, "os": "linux", "config": own}
    document["rootfs"] = {"type": "layers", "diff_ids": [digest(one) for one in layers]}
    return json.dumps(document).encode()


def layout(layers: list[bytes], architecture: str) -> dict[str, bytes]:
    """An OCI layout, its layers compressed, in an index of two machines."""
    blobs = {}

    def descriptor(data: bytes, kind: str, **more: Any) -> dict[str, Any]:
        blobs[f"blobs/sha256/{digest(data)[7:]}"] = data
        return {
            "mediaType": f"application/vnd.oci.image.{kind}",
            "digest": digest(data),
            "size": len(data),
            **more,
        }

    def document(value: object, kind: str, **more: Any) -> dict[str, Any]:
        return descriptor(json.dumps(value).encode(), kind, **more)

    config = descriptor(configuration(layers, architecture), "config.v1+json")
    small = [descriptor(gzip.compress(one, mtime=0), "layer.v1.tar+gzip") for one in layers]
    manifest = {"schemaVersion": 2, "config": config, "layers": small}
    platforms = [
        document({"schemaVersion": 2}, "manifest.v1+json", platform={"architecture": "riscv64"}),
        document(manifest, "manifest.v1+json", platform={"architecture": architecture}),
    ]
    inner = document({"schemaVersion": 2, "manifests": platforms}, "index.v1+json")
    return {
        **blobs,
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [inner]}).encode(),
    }


def docker_archive(layers: list[bytes], architecture: str) -> dict[str, bytes]:
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    listed = [{"Config": "config.json", "RepoTags": ["base:1"], "Layers": names}]
    return {
        "manifest.json": json.dumps(listed).encode(),
        "config.json": configuration(layers, architecture),
        **dict(zip(names, layers, strict=True)),
    }


KINDS = {"layout": layout, "archive": layout, "docker": docker_archive}


def written(kind: str, files: Mapping[str, bytes], folder: Path) -> Path:
    path = folder / "base"
    if kind != "layout":
        path.write_bytes(packed(files))
        return path
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def no_engine() -> Any:
    raise AssertionError("no engine is needed")


def image_of(library: PackagedLibrary, base: Path, output: Path, vendor: Any = "amd") -> Any:
    wishes = ImageWishes("team/relu:1", base=str(base))
    return make_image(library, wishes, output, runtime=Runtime(vendor, "an-image"), connect=no_engine)


def read_archive(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        names = [one.name for one in archive if one.isfile()]
        assert len({*names}) == len(names)
        return {name: archive.extractfile(name).read() for name in names}  # type: ignore[union-attr]


def names_in(layer: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        return archive.getnames()


@pytest.mark.parametrize("kind", KINDS)
def test_the_librarys_layers_are_on_those_of_the_base(
    kind: str, library: PackagedLibrary, layers: list[bytes], tmp_path: Path
) -> None:
    base = written(kind, KINDS[kind](layers, architecture_of(library)), tmp_path)
    report = image_of(library, base, tmp_path / "image.tar")
    files = read_archive(tmp_path / "image.tar")
    (entry,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(files[f"blobs/sha256/{entry['digest'][7:]}"])
    config = json.loads(files[f"blobs/sha256/{manifest['config']['digest'][7:]}"])
    assert all(
        digest(files[f"blobs/sha256/{one['digest'][7:]}"]) == one["digest"] for one in manifest["layers"]
    )
    assert all(len(files[f"blobs/sha256/{one['digest'][7:]}"]) == one["size"] for one in manifest["layers"])
    assert config["rootfs"]["diff_ids"][:2] == [digest(one) for one in layers]
    kinds = {one["mediaType"].rpartition(".v1.")[2] for one in manifest["layers"][:2]}
    assert kinds == {"tar" if kind == "docker" else "tar+gzip"}
    assert len(manifest["layers"]) == len(config["rootfs"]["diff_ids"]) == len(config["history"]) == 4
    (docker,) = json.loads(files["manifest.json"])
    assert docker["Layers"] == [f"blobs/sha256/{one['digest'][7:]}" for one in manifest["layers"]]
    own = [names_in(files[one]) for one in docker["Layers"][2:]]
    assert own[0] == ["usr", "usr/bin", "usr/bin/tk-run"]
    assert {"model/model.so", "model/README.md", "model/sbom.cdx.json"} < {*own[1]}
    assert all(one == "model" or one.startswith("model/") for one in own[1])
    setting = config["config"]
    assert setting["User"] == "65532:65532"
    assert setting["Entrypoint"] == ["/usr/bin/tk-run"]
    assert {"PATH=/opt/vendor/bin:/usr/bin", "LD_LIBRARY_PATH=/opt/vendor", "HOME=/tk/tmp"} < {
        *setting["Env"]
    }
    assert "HOME=/root" not in setting["Env"]
    labels = setting["Labels"]
    assert labels["maintainer"] == "somebody"
    assert "tk.plan" not in labels
    assert labels["org.opencontainers.image.base.digest"] == report.image.base_digest
    assert "--device /dev/kfd --device /dev/dri --group-add" in labels["tk.run.docker"]
    with tarfile.open(fileobj=io.BytesIO(files[docker["Layers"][3]])) as archive:
        readme = archive.extractfile("model/README.md").read().decode()  # type: ignore[union-attr]
    assert f"docker run --rm {labels['tk.run.docker']} team/relu:1 --check" in readme
    first = (tmp_path / "image.tar").read_bytes()
    image_of(library, base, tmp_path / "image.tar")
    assert (tmp_path / "image.tar").read_bytes() == first


@pytest.mark.parametrize(
    ("vendor", "engine", "words"),
    [
        ("amd", "docker", ["device /dev/kfd", "device /dev/dri", 'group-add "$(stat -c %g /dev/kfd)"']),
        ("intel", "podman", ["device /dev/dri", 'group-add "$(stat -c %g /dev/dri/renderD128)"']),
        ("nvidia", "docker", ["gpus all", "env NVIDIA_DRIVER_CAPABILITIES=compute,utility"]),
        ("nvidia", "podman", ["cdi nvidia.com/gpu=all"]),
        (None, "docker", []),
    ],
)
def test_what_a_container_gets_is_the_least(vendor: Any, engine: str, words: list[str]) -> None:
    options = options_elsewhere(vendor, engine)
    assert [f"{one.flag} {one.value}" for one in options] == words
    assert all(one.reason and one.source for one in options)


def wrong_layer(files: dict[str, bytes]) -> None:
    name = "1/layer.tar"
    files[name] = files[name].replace(b"code", b"evil")


def wrong_blob(files: dict[str, bytes]) -> None:
    name = max((one for one in files if one.startswith("blobs/")), key=lambda one: len(files[one]))
    files[name] = files[name][:-1] + b"\1"


def missing_layer(files: dict[str, bytes]) -> None:
    del files["1/layer.tar"]


def climbs(files: dict[str, bytes]) -> None:
    files["manifest.json"] = files["manifest.json"].replace(b"1/layer.tar", b"../../outside")


def no_json(files: dict[str, bytes]) -> None:
    files["manifest.json"] = b"["


def not_an_image(files: dict[str, bytes]) -> None:
    files.clear()


def too_few_digests(files: dict[str, bytes]) -> None:
    files["config.json"] = b'{"rootfs": {"diff_ids": []}}'


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("docker", wrong_layer),
        ("docker", missing_layer),
        ("docker", climbs),
        ("docker", no_json),
        ("docker", not_an_image),
        ("docker", too_few_digests),
        ("archive", wrong_blob),
        ("layout", wrong_blob),
    ],
)
def test_a_base_is_not_believed(
    kind: str, spoil: Callable[[dict[str, bytes]], None], layers: list[bytes], tmp_path: Path
) -> None:
    files = KINDS[kind](layers, "amd64")
    spoil(files)
    with pytest.raises(BadInputError, match="this is no image"):
        read_base(written(kind, files, tmp_path), "base", "amd64")


def test_a_link_out_of_a_layout_is_not_followed(layers: list[bytes], tmp_path: Path) -> None:
    path = written("layout", layout(layers, "amd64"), tmp_path)
    blob = max(path.glob("blobs/sha256/*"), key=lambda one: one.stat().st_size)
    blob.rename(tmp_path / "outside")
    blob.symlink_to(tmp_path / "outside")
    with pytest.raises(BadInputError, match="this is no image"):
        read_base(path, "base", "amd64")


def test_what_the_base_lacks_is_said_at_once(
    library: PackagedLibrary, layers: list[bytes], tmp_path: Path
) -> None:
    old = {"lib/libc-2.17.so": b"\0GLIBC_2.2.5\0GLIBC_2.17\0", "lib/libc.so.6": b""}
    base = written("docker", docker_archive([packed(old)], architecture_of(library)), tmp_path)
    assert contents_of(read_base(base, "base", architecture_of(library))).versions == {"GLIBC": (2, 17)}
    with pytest.raises(UsageError, match="the base lacks") as error:
        image_of(library, base, tmp_path / "image.tar")
    assert "it has GLIBC 2.17, the library needs 2." in error.value.why
    assert "tk compile --image" in error.value.hint
    assert not (tmp_path / "image.tar").exists()


def test_a_base_of_another_machine(library: PackagedLibrary, layers: list[bytes], tmp_path: Path) -> None:
    base = written("docker", docker_archive(layers, "s390x"), tmp_path)
    with pytest.raises(UsageError, match="for another machine"):
        image_of(library, base, tmp_path / "image.tar")


def test_without_a_base_the_one_to_take_is_named(library: PackagedLibrary, tmp_path: Path) -> None:
    with pytest.raises(TkError, match="needs a base with its vendor's runtime") as error:
        make_image(
            library,
            ImageWishes(),
            tmp_path / "x.tar",
            runtime=Runtime("amd", "rocm-5.4.3"),
            connect=no_engine,
        )
    assert "--base rocm-5.4.3 (`tk image build rocm-5.4.3` makes it)" in error.value.hint


def test_as_typed(tk: Tk, file: Path, layers: list[bytes], tmp_path: Path) -> None:
    base = written("docker", docker_archive(layers, architecture_of(read_library(file))), tmp_path)
    done = tk("package", file, "--format", "oci", "--base", base, "-o", "image.tar", "--tag", "team/relu:1")
    assert done.code == 0, done.err
    assert "on base (sha256:" in done.err
    assert "run it with `docker run --rm --network none --read-only" in done.err
    refused = tk("package", file, "--format", "tar", "--base", base)
    assert refused.code == 2
    assert "a package of the format tar is no image" in refused.err
    missing = tk(
        "package", file, "--format", "oci", "--base", "x:1", "--docker-host", f"unix://{tmp_path}/no"
    )
    assert missing.code == 4
