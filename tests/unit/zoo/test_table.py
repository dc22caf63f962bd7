"""The table of networks, its look-up, and the download of originals."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compiler import BadInputError, HostError, UsageError
from tests.support.command import Result
from toolchain import zoo
from toolchain.site import Mirror, Proxy, SiteConfig
from toolchain.zoo import download, weights

_PROMISED = [
    "bvlc_alexnet",
    "squeezenet",
    "shufflenet",
    "googlenet",
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
    for one in (original for record in zoo.networks().values() for original in record.originals):
        if one.sha256 != zoo.UNRESOLVED:
            assert len(bytes.fromhex(one.sha256)) == 32
            assert one.size_bytes > 0


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


NAMED_IN_REPORTS = {
    "mnist-1": "mnist",
    "caffenet-3": "caffenet",
    "caffenet-9": "caffenet",
    "googlenet-3": "googlenet",
    "resnet50-caffe2-v1-3": "resnet50",
    "resnet50-caffe2-v1-6": "resnet50",
    "resnet50-v1-7": "resnet50-v1",
    "resnet101-v2-7": "resnet101-v2",
    "resnet152-v1-7": "resnet152-v1",
    "vgg16-7": "vgg16",
    "vgg16-bn-7": "vgg16-bn",
    "vgg19-caffe2-6": "vgg19",
}
"""The revisions that the team's reports name, each with its network."""


@pytest.mark.parametrize(("revision", "name"), NAMED_IN_REPORTS.items())
def test_revisions_can_be_named(revision: str, name: str) -> None:
    record, original = zoo.trained(revision)
    assert (record.name, original.name) == (name, revision)
    assert original.sha256 != zoo.UNRESOLVED


def test_a_network_s_name_means_its_own_file() -> None:
    assert zoo.trained("mnist")[1] == zoo.network("mnist").original


def test_every_revision_has_one_name() -> None:
    names = [one.name for record in zoo.networks().values() for one in record.originals]
    assert len(names) == len(set(names))
    assert not set(names) & set(zoo.networks())


def test_googlenet_is_a_family_of_its_own() -> None:
    families = {one.family for one in zoo.networks().values() if "googlenet" in one.name}
    assert families == {"googlenet"}
    assert [one.name for one in zoo.networks().values() if one.family == "googlenet"] == ["googlenet"]


def test_an_unknown_revision_suggests_the_closest() -> None:
    with pytest.raises(UsageError) as caught:
        zoo.trained("caffenet-30")
    assert caught.value.hint == "did you mean 'caffenet-3'?"


def test_a_revision_is_fetched_not_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        zoo.make("mnist-1", tmp_path / "m.onnx")
    assert caught.value.hint == "tk zoo fetch mnist-1, or with random weights: tk zoo make mnist"


def test_the_table_names_what_can_be_fetched(tk: Callable[..., Result]) -> None:
    rows = {line.split()[0]: line for line in tk("zoo", "list").out.splitlines()}
    assert "mnist-8, mnist-1 " in rows["mnist"]
    assert "none known" in rows["unet"]


def test_fetch_writes_the_checked_file(server: str, tmp_path: Path) -> None:
    fetched = fetch(hashlib.sha256(b"a model").hexdigest(), tmp_path / "m.onnx", server)
    assert fetched.verified
    assert (tmp_path / "m.onnx").read_bytes() == b"a model"


def test_fetch_says_when_nothing_was_pinned(server: str, tmp_path: Path) -> None:
    fetched = fetch(zoo.UNRESOLVED, tmp_path / "m.onnx", server)
    assert not fetched.verified
    assert fetched.sha256 == hashlib.sha256(b"a model").hexdigest()


def test_fetch_refuses_another_file_and_leaves_nothing(server: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="not the one that is pinned"):
        fetch("0" * 64, tmp_path / "m.onnx", server)
    assert not list(tmp_path.iterdir())


def test_fetch_reports_a_missing_file(server: str, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="does not hand out"):
        fetch(zoo.UNRESOLVED, tmp_path / "m.onnx", server, path="gone")


def test_fetch_notices_a_download_that_breaks_off(server: str, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="broke off") as caught:
        fetch(zoo.UNRESOLVED, tmp_path / "m.onnx", server, path="half")
    assert "7 bytes read, 7 more expected" in caught.value.why
    assert not list(tmp_path.iterdir())


def test_fetch_goes_on_to_the_next_source(server: str, tmp_path: Path) -> None:
    """One has gone, one hands out another file (a pointer, say), the third has it."""
    pinned = zoo.Original("m.onnx", hashlib.sha256(b"a model").hexdigest())
    sources = [f"{server}gone", f"{server}other", f"{server}there"]
    fetched = download.download_model(
        zoo.network("mnist"), pinned, tmp_path / "m.onnx", sources=sources, site=SiteConfig()
    )
    assert (fetched.url, fetched.verified) == (f"{server}there", True)
    with pytest.raises(BadInputError) as caught:
        download.download_model(
            zoo.network("mnist"), pinned, tmp_path / "n.onnx", sources=sources[:2], site=SiteConfig()
        )
    assert f"{server}gone: HTTP status 404" in caught.value.why
    assert f"{server}other: its sha256 is" in caught.value.why
    assert not (tmp_path / "n.onnx").exists()


def test_fetch_tells_how_far_it_is(server: str, tmp_path: Path) -> None:
    told: list[tuple[str, float, float]] = []
    fetch(zoo.UNRESOLVED, tmp_path / "m", server, progress=lambda *one: told.append(one))
    assert told == [("download", 0, 7), ("download", 7, 7)]


def test_fetch_without_a_connection_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        fetch(zoo.UNRESOLVED, tmp_path / "m.onnx", "http://127.0.0.1:9/")
    assert caught.value.what == "cannot reach the ONNX model zoo"
    assert "tk zoo make mnist" in caught.value.hint


def test_fetch_goes_through_the_site_s_proxy(server: str, tmp_path: Path) -> None:
    site = SiteConfig(proxy=Proxy(http=server))
    assert fetch(zoo.UNRESOLVED, tmp_path / "m.onnx", "http://zoo.invalid/", site=site).sha256
    site = SiteConfig(proxy=Proxy(http=server, no_proxy=("zoo.invalid",)))
    with pytest.raises(HostError, match="cannot reach"):
        fetch(zoo.UNRESOLVED, tmp_path / "n.onnx", "http://zoo.invalid/", site=site)


def test_fetch_goes_to_the_site_s_mirror(server: str, tmp_path: Path) -> None:
    site = SiteConfig(url_mirrors=(Mirror("https://zoo.invalid/", server),))
    assert fetch(zoo.UNRESOLVED, tmp_path / "m.onnx", "https://zoo.invalid/", site=site).sha256


def test_fetch_believes_the_site_s_ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says, which requests would ask first."""
    if shutil.which("openssl") is None:
        pytest.skip("no program `openssl` makes the keys")
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -keyout key.pem -out ca.pem"
    more = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *words.split(), *more], cwd=tmp_path, check=True, capture_output=True)
    other = ["openssl", *words.replace(" ca.pem", " other.pem").replace("key.pem", "x.pem").split()]
    subprocess.run(other, cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "other.pem"))
    with serving(tmp_path) as url:
        site = SiteConfig(ca_bundle=tmp_path / "ca.pem")
        assert fetch(zoo.UNRESOLVED, tmp_path / "m.onnx", url, site=site).sha256
        with pytest.raises(HostError, match="cannot reach") as caught:
            fetch(zoo.UNRESOLVED, tmp_path / "n.onnx", url)
        assert "certificate" in caught.value.why


def test_the_command_reads_the_site(tk: Callable[..., Result], server: str, tmp_path: Path) -> None:
    lines = [
        f"  - original: {original}\n    mirror: {server}gone/"
        for original in ("https://huggingface.co/", "https://github.com/")
    ]
    (tmp_path / "site.yaml").write_text("mirrors:\n  url:\n" + "\n".join(lines) + "\n")
    result = tk("zoo", "fetch", "mnist", "--site", "site.yaml")
    assert result.code == 4
    assert "HTTP status 404" in result.err


def test_fetch_of_a_network_of_our_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no original"):
        zoo.fetch("unet", tmp_path / "m.onnx", site=SiteConfig())


def fetch(
    sha256: str,
    target: Path,
    server: str,
    *,
    path: str = "there",
    site: SiteConfig | None = None,
    **more: Any,
) -> download.Fetched:
    """Fetch a file of the server's as if it were mnist's original."""
    original = zoo.Original(path, sha256)
    return download.download_model(
        zoo.network("mnist"),
        original,
        target,
        sources=[f"{server}{{path}}"],
        site=site or SiteConfig(),
        **more,
    )


@pytest.fixture
def server() -> Iterator[str]:
    with serving() as url:
        yield url


@contextlib.contextmanager
def serving(keys: Path | None = None) -> Iterator[str]:
    """A web server that knows one file, and hands out half of another one; with keys over TLS."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.path = self.path.removeprefix("http://zoo.invalid")  # as a proxy is asked
            sizes = {"/there": 7, "/half": 14, "/other": 7}
            self.send_response(200 if self.path in sizes else 404)
            self.send_header("Content-Length", str(sizes.get(self.path, 0)))
            self.end_headers()
            texts = {"/there": b"a model", "/half": b"a model", "/other": b"pointer"}
            self.wfile.write(texts.get(self.path, b""))

        def log_message(self, *_: object) -> None:
            return

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            return

    with Server(("127.0.0.1", 0), Handler) as running:
        if keys is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(keys / "ca.pem", keys / "key.pem")
            running.socket = context.wrap_socket(running.socket, server_side=True)
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield f"http{'s' if keys else ''}://127.0.0.1:{running.server_port}/"
        finally:
            running.shutdown()
            thread.join()


def test_many_inputs_are_counted(tk: Callable[..., Result]) -> None:
    lines = tk("zoo", "list").out.splitlines()
    (decoder,) = (line for line in lines if line.startswith("llama-decoder"))
    assert "position_ids batchxtokens, 12 more" in decoder
