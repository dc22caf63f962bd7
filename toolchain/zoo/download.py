"""Download an original model from the ONNX model zoo, checked against its pinned sha256."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from compiler import BadInputError, HostError, Progress, Steps, TkError, silent, stream_atomic
from toolchain.zoo.record import UNRESOLVED, Network, Original

SOURCES = (
    "https://huggingface.co/onnxmodelzoo/{name}/resolve/main/{name}.onnx",
    "https://github.com/onnx/models/raw/main/validated/{path}",
)
"""Where the model zoo lies. Its own repository hands out no large files since July 2025 and names the
other place (README.md of github.com/onnx/models at b1eeaa1). What comes is checked, so either will do."""
_TIMEOUT_SECONDS = 30.0
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Fetched:
    """A downloaded file: its sha256, and whether that was checked against a pinned one."""

    path: Path
    url: str
    sha256: str
    verified: bool


def fetch(
    network: Network,
    original: Original,
    path: Path,
    *,
    sources: Sequence[str] = SOURCES,
    progress: Progress = silent,
) -> Fetched:
    """Download an original of `network` to `path` from the first source that has it.

    An original whose sha256 is `unresolved` is downloaded and reported as not verified. `progress` is told of
    bytes. Raises HostError when no source hands it out, BadInputError when one hands out another file than
    the pinned one; `path` is touched only by a complete and checked file.
    """
    failed: list[TkError] = []
    for source in sources:
        url = source.format(name=original.name, path=original.path)
        try:
            return _fetched(url, network, original, path, progress)
        except (HostError, BadInputError) as error:
            failed.append(error)
    worst = next((one for one in failed if isinstance(one, BadInputError)), failed[0])
    if len(failed) > 1:
        worst.why = "\n".join(f"{one.where}: {one.why}" for one in failed)
        worst.where = ""
    raise worst


def _fetched(url: str, network: Network, original: Original, path: Path, progress: Progress) -> Fetched:
    digest = hashlib.sha256()
    with stream_atomic(path) as stream:
        for chunk in _download(url, network, progress):
            digest.update(chunk)
            stream.write(chunk)
        _check(original.sha256, digest.hexdigest(), url)
    return Fetched(path, url, digest.hexdigest(), verified=original.sha256 != UNRESOLVED)


def _download(url: str, network: Network, progress: Progress) -> Iterator[bytes]:
    """The bytes behind an address, all of them; raises HostError for whatever keeps them away."""
    try:
        # The address is https, or a test's own server.
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            total, received = _length(response), 0
            done = Steps(progress, "download", total)
            while chunk := response.read(_CHUNK_BYTES):
                received += len(chunk)
                done.advance(len(chunk))
                yield chunk
    except urllib.error.HTTPError as error:
        error.close()
        raise HostError(
            "the ONNX model zoo does not hand out the file",
            where=url,
            why=f"HTTP status {error.code} {error.reason}",
            hint=f"make it with random weights instead: tk zoo make {network.name}",
        ) from error
    except (OSError, HTTPException) as error:
        raise HostError(
            "cannot reach the ONNX model zoo",
            where=url,
            why=str(getattr(error, "reason", error)),
            hint=f"connect to the internet, or make it with random weights: tk zoo make {network.name}",
        ) from error
    if received < total:
        raise HostError(
            "the download broke off",
            where=url,
            why=f"{received:,} of {total:,} bytes arrived",
            hint="try again",
        )


def _length(response: HTTPResponse) -> int:
    """Bytes to come; 0 when the server does not say."""
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _check(expected: str, actual: str, url: str) -> None:
    if expected in (UNRESOLVED, actual):
        return
    raise BadInputError(
        "the downloaded file is not the one that is pinned",
        where=url,
        why=f"its sha256 is {actual}, expected {expected}",
        hint="try again later; if it stays so, the file was replaced upstream and the record needs a review",
    )
