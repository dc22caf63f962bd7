"""Download an original model from the ONNX model zoo, checked against its pinned sha256."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import BadInputError, HostError, Progress, Steps, TkError, silent, stream_atomic
from toolchain import web
from toolchain.zoo.record import UNRESOLVED, Network, Original

if TYPE_CHECKING:
    import requests

    from toolchain.site import SiteConfig

SOURCES = (
    "https://huggingface.co/onnxmodelzoo/{name}/resolve/main/{name}.onnx",
    "https://github.com/onnx/models/raw/main/validated/{path}",
)
"""Where the model zoo lies. Its own repository hands out no large files since July 2025 and names the
other place (README.md of github.com/onnx/models at b1eeaa1). What comes is checked, so either will do."""
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Fetched:
    """A downloaded file: its sha256, and whether that was checked against a pinned one."""

    path: Path
    url: str
    sha256: str
    verified: bool


def download_model(
    network: Network,
    original: Original,
    path: Path,
    *,
    site: SiteConfig,
    sources: Sequence[str] = SOURCES,
    progress: Progress = silent,
) -> Fetched:
    """Download an original of `network` to `path` from the first source that has it.

    Through the site's mirror, proxy and CA bundle. An original whose sha256 is `unresolved` is downloaded
    and reported as not verified. `progress` is told of bytes. Raises HostError when no source hands it out,
    BadInputError when one hands out another file than the pinned one; `path` is touched only by a complete
    and checked file.
    """
    failed: list[TkError] = []
    for source in sources:
        url = source.format(name=original.name, path=original.path)
        try:
            return _fetched(url, network, original, path, progress, site)
        except (HostError, BadInputError) as error:
            failed.append(error)
    worst = next((one for one in failed if isinstance(one, BadInputError)), failed[0])
    if len(failed) > 1:
        worst.why = "\n".join(f"{one.where}: {one.why}" for one in failed)
        worst.where = ""
    raise worst


def _fetched(
    url: str, network: Network, original: Original, path: Path, progress: Progress, site: SiteConfig
) -> Fetched:
    digest = hashlib.sha256()
    with stream_atomic(path) as stream:
        for chunk in _download(url, network, progress, site):
            digest.update(chunk)
            stream.write(chunk)
        _check(original.sha256, digest.hexdigest(), url)
    return Fetched(path, url, digest.hexdigest(), verified=original.sha256 != UNRESOLVED)


def _download(url: str, network: Network, progress: Progress, site: SiteConfig) -> Iterator[bytes]:
    """The bytes behind an address, all of them; raises HostError for whatever keeps them away."""
    import requests

    total, received = 0, 0
    try:
        with web.answer(url, site) as response:
            total = _length(response)
            done = Steps(progress, "download", total)
            for chunk in response.iter_content(_CHUNK_BYTES):
                received += len(chunk)
                done.advance(len(chunk))
                yield chunk
    except requests.HTTPError as error:
        raise HostError(
            "the ONNX model zoo does not hand out the file",
            where=url,
            why=f"HTTP status {error.response.status_code} {error.response.reason}",
            hint=f"make it with random weights instead: tk zoo make {network.name}",
        ) from error
    except requests.RequestException as error:
        if total or received:
            raise _broke_off(url, _reason(error)) from error
        raise HostError(
            "cannot reach the ONNX model zoo",
            where=url,
            why=_reason(error),
            hint="connect to the internet, name proxy, CA bundle or mirror in site.yaml, or make it with "
            f"random weights: tk zoo make {network.name}",
        ) from error
    if received < total:
        raise _broke_off(url, f"{received:,} of {total:,} bytes arrived")


def _reason(error: BaseException) -> str:
    """The innermost of the reasons that requests and urllib3 wrap into each other."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return getattr(error, "strerror", None) or str(error)[:300] or type(error).__name__


def _broke_off(url: str, why: str) -> HostError:
    return HostError("the download broke off", where=url, why=why, hint="try again")


def _length(response: requests.Response) -> int:
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
