"""Download an original model from the ONNX model zoo, checked against its pinned sha256."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import BinaryIO

from compiler import BadInputError, HostError, Progress, Steps, UsageError, replace_atomic, silent
from toolchain.zoo.record import UNRESOLVED, Network

BASE_URL = "https://github.com/onnx/models/raw/main/validated/"
_TIMEOUT_SECONDS = 30.0
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Fetched:
    """A downloaded file: its sha256, and whether that was checked against a pinned one."""

    path: Path
    url: str
    sha256: str
    verified: bool


def fetch(network: Network, path: Path, *, base_url: str = BASE_URL, progress: Progress = silent) -> Fetched:
    """Download `network`'s original to `path`; `progress` is told of its bytes.

    A record whose sha256 is `unresolved` is downloaded and reported as not verified. Raises UsageError for a
    network without an original, HostError without a connection, BadInputError when the file is not the pinned
    one; `path` is touched only by a complete and checked file.
    """
    original = network.original
    if original is None:
        raise UsageError(
            f"the network {network.name!r} has no original in the ONNX model zoo",
            why="it is built here",
            hint=f"make it instead: tk zoo make {network.name}",
        )
    url = base_url + original.path
    staged = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The address is https, or a test's own server.
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            sha256 = _copy(response, staged, Steps(progress, "download", _length(response)))
        _check(original.sha256, sha256, url)
        replace_atomic(staged, path)
    except urllib.error.HTTPError as error:
        raise HostError(
            "the ONNX model zoo does not hand out the file",
            where=url,
            why=f"HTTP status {error.code} {error.reason}",
            hint=f"make it with random weights instead: tk zoo make {network.name}",
        ) from error
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise HostError(
            "cannot reach the ONNX model zoo",
            where=url,
            why=str(getattr(error, "reason", error)),
            hint=f"connect to the internet, or make it with random weights: tk zoo make {network.name}",
        ) from error
    except OSError as error:
        raise HostError(
            "cannot write the downloaded file",
            where=str(path),
            why=error.strerror or str(error),
            hint="check the permissions and the free space of the directory, or choose another place",
        ) from error
    finally:
        staged.unlink(missing_ok=True)
    return Fetched(path, url, sha256, verified=original.sha256 != UNRESOLVED)


def _length(response: HTTPResponse) -> int:
    """Bytes to come; 0 when the server does not say."""
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _copy(source: BinaryIO, target: Path, done: Steps) -> str:
    digest = hashlib.sha256()
    with target.open("wb") as stream:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            stream.write(chunk)
            done.advance(len(chunk))
    return digest.hexdigest()


def _check(expected: str, actual: str, url: str) -> None:
    if expected in (UNRESOLVED, actual):
        return
    raise BadInputError(
        "the downloaded file is not the one that is pinned",
        where=url,
        why=f"its sha256 is {actual}, expected {expected}",
        hint="try again later; if it stays so, the file was replaced upstream and the record needs a review",
    )
