"""What docs/tuning.md shows of a cluster is done here, as far as one machine can: with and without TLS."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.command import ROOT, tk
from tests.support.onnx_models import model
from tests.support.tune_cluster import TK, Program, free_port, until

TEXT = (ROOT / "docs" / "tuning.md").read_text()
ADDRESSES = r"192\.0\.2\.\d"


def blocks() -> list[list[list[str]]]:
    """The lines of both blocks, as words."""
    section = TEXT.partition("\n## Several machines\n")[2].partition("\n## ")[0]
    found = re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return [[line.partition("#")[0].split() for line in _joined(block)] for block in found]


def _joined(block: str) -> list[str]:
    """Its lines; one that ends in a backslash goes on in the next."""
    return block.replace("\\\n", " ").splitlines()


@contextmanager
def lines(folder: Path, shown: list[list[str]], changes: Mapping[str, str]) -> Iterator[list[str]]:
    """All lines but the last run as they are shown, on a port of their own; gives the words of the last."""
    port = str(free_port())

    def changed(words: list[str]) -> list[str]:
        assert words[0] == "tk"
        text = re.sub(ADDRESSES, "127.0.0.1", " ".join(words[1:])).replace("8786", port)
        return [changes.get(word, word) for word in text.split()]

    programs: list[Program] = []
    try:
        for number, words in enumerate(shown[:-1]):
            own = changed(words)
            own += ["--port", port] if "scheduler" in own else []
            programs.append(Program(folder, f"line{number}", (*TK, *own)))
            if number == 0:
                until(lambda: "://" in programs[0].text, "no scheduler")
        yield changed(shown[-1])
    finally:
        for one in reversed(programs):
            one.end()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    x, w = np.ones((4, 8), np.float32), np.ones((8, 16), np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    onnx.save(model([node], {"x": x}, ["y"], {"w": w}), tmp_path / "model.onnx")
    return tmp_path


def certificates(folder: Path) -> None:
    """An authority, and a certificate that it signed for each of three machines."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl(*new, "-x509", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    for name in ("one", "two", "three"):
        openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed)


def test_what_is_shown_is_what_is_tried() -> None:
    plain, encrypted = blocks()
    assert [words[:3] for words in plain] == [
        ["tk", "tune", "scheduler"], ["tk", "tune", "worker"], ["tk", "tune", "worker"],
        ["tk", "tune", "model.onnx"],
    ]  # fmt: skip
    assert len(encrypted) == 3
    assert all("--tls-ca-file" in words for words in encrypted)


@pytest.mark.slow
def test_on_this_machine(folder: Path) -> None:
    plain, _ = blocks()
    with lines(folder, plain, {"8": "1", "30m": "5m"}) as words:
        done = tk(*words, "--db", "t.db", "--trials", 4, "--threads", 1, cwd=folder)
    assert done.code == 0, done.err
    assert (folder / "model.so").exists()


@pytest.mark.slow
def test_with_tls_and_without_it(folder: Path) -> None:
    certificates(folder)
    _, (scheduler, worker, search) = blocks()
    builds = [word.replace("two", "three") for word in worker if word != "--measure"] + ["--build", "1"]
    with lines(folder, [scheduler, worker, builds, search], {}) as words:
        done = tk(*words, "--db", "t.db", "--trials", 4, "--threads", 1, cwd=folder)
        assert done.code == 0, done.err
        address = words[words.index("--cluster") + 1]
        plain = tk("tune", "model.onnx", "--cluster", address.replace("tls", "tcp"), cwd=folder)
        assert plain.code == 4, plain.err
        assert "scheduler does not answer" in plain.err
        stranger = tk("tune", "model.onnx", "--cluster", address, "--tls-ca-file", "ca.pem", cwd=folder)
        assert stranger.code == 4, stranger.err
        assert "TLS needs certificates" in stranger.err
