"""The table of networks, its look-up, and the download of originals."""

from __future__ import annotations

import hashlib
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from compiler import BadInputError, HostError, UsageError
from toolchain import zoo
from toolchain.zoo import download, weights

_PROMISED = [
    "bvlc_alexnet",
    "squeezenet",
    "shufflenet",
    "inception_v1",
    "inception_v2",
    "densenet121",
    "resnet50",
    "vgg19",
    "zfnet512",
    "mnist",
    "caffenet",
    "efficientnet-lite4",
    "mobilenetv2",
    "rcnn-ilsvrc13",
    "resnet18-v1",
    "resnet18-v2",
    "resnet101-v1",
    "resnet101-v2",
    "resnet152-v1",
    "resnet152-v2",
    "vgg16",
    "vgg16-bn",
    "transformer-encoder",
    "unet",
]


def test_holds_every_promised_network() -> None:
    assert set(_PROMISED) <= set(zoo.networks())


def test_listing_imports_neither_numpy_nor_onnx() -> None:
    code = (
        "import sys; from toolchain import zoo; zoo.networks(); print({'numpy', 'onnx'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_an_unknown_name_suggests_the_closest() -> None:
    with pytest.raises(UsageError) as caught:
        zoo.network("sqeezenet")
    assert caught.value.hint == "did you mean 'squeezenet'?"


def test_checksums_are_whole_or_openly_missing() -> None:
    for one in zoo.networks().values():
        if one.original is not None and one.original.sha256 != zoo.UNRESOLVED:
            assert len(bytes.fromhex(one.original.sha256)) == 32
            assert one.original.size_bytes > 0


def test_weights_are_the_same_forever() -> None:
    """Values of the PCG64 bit stream, written down once: numpy promises that they stay."""
    values = weights.uniform("net", "tensor", (5,), -1.0, 1.0)
    expected = [
        "0x1.cd4f780000000p-2",
        "-0x1.00ae280000000p-2",
        "-0x1.e554580000000p-1",
        "-0x1.2e1c000000000p-1",
        "-0x1.af78580000000p-1",
    ]
    assert [float(one).hex() for one in values] == expected


def test_weights_do_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = weights.uniform("net", "tensor", (1000,), 0.0, 1.0)
    monkeypatch.setattr(weights, "_BLOCK", 64)
    assert (weights.uniform("net", "tensor", (1000,), 0.0, 1.0) == whole).all()


def test_fetch_writes_the_checked_file(server: str, tmp_path: Path) -> None:
    fetched = download.fetch(
        _record(hashlib.sha256(b"a model").hexdigest()), tmp_path / "m.onnx", base_url=server
    )
    assert fetched.verified
    assert (tmp_path / "m.onnx").read_bytes() == b"a model"


def test_fetch_says_when_nothing_was_pinned(server: str, tmp_path: Path) -> None:
    fetched = download.fetch(_record(zoo.UNRESOLVED), tmp_path / "m.onnx", base_url=server)
    assert not fetched.verified
    assert fetched.sha256 == hashlib.sha256(b"a model").hexdigest()


def test_fetch_refuses_another_file_and_leaves_nothing(server: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="not the one that is pinned"):
        download.fetch(_record("0" * 64), tmp_path / "m.onnx", base_url=server)
    assert not list(tmp_path.iterdir())


def test_fetch_reports_a_missing_file(server: str, tmp_path: Path) -> None:
    record = _record(zoo.UNRESOLVED)
    assert record.original is not None
    gone = replace(record, original=replace(record.original, path="gone"))
    with pytest.raises(HostError, match="does not hand out"):
        download.fetch(gone, tmp_path / "m.onnx", base_url=server)


def test_fetch_notices_a_download_that_breaks_off(server: str, tmp_path: Path) -> None:
    record = _record(zoo.UNRESOLVED)
    assert record.original is not None
    record = replace(record, original=replace(record.original, path="half"))
    with pytest.raises(HostError, match="broke off") as caught:
        download.fetch(record, tmp_path / "m.onnx", base_url=server)
    assert caught.value.why == "7 of 14 bytes arrived"
    assert not list(tmp_path.iterdir())


def test_fetch_tells_how_far_it_is(server: str, tmp_path: Path) -> None:
    told: list[tuple[str, float, float]] = []
    download.fetch(
        _record(zoo.UNRESOLVED), tmp_path / "m", base_url=server, progress=lambda *one: told.append(one)
    )
    assert told == [("download", 0, 7), ("download", 7, 7)]


def test_fetch_without_a_connection_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        download.fetch(_record(zoo.UNRESOLVED), tmp_path / "m.onnx", base_url="http://127.0.0.1:9/")
    assert caught.value.what == "cannot reach the ONNX model zoo"
    assert "tk zoo make mnist" in caught.value.hint


def test_fetch_of_a_network_of_our_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no original"):
        zoo.fetch("unet", tmp_path / "m.onnx")


def _record(sha256: str) -> zoo.Network:
    return replace(zoo.network("mnist"), original=zoo.Original("there", sha256))


@pytest.fixture
def server() -> Iterator[str]:
    """A web server that knows one file, and hands out half of another one."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sizes = {"/there": 7, "/half": 14}
            self.send_response(200 if self.path in sizes else 404)
            self.send_header("Content-Length", str(sizes.get(self.path, 0)))
            self.end_headers()
            self.wfile.write(b"a model" if self.path in sizes else b"")

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()
        thread.join()
