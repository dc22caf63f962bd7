"""Asking where things come from: the sha256 of a download, the commit of a tag, the digest of an image."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import BuildError, HostError, run, stream_atomic
from toolchain import web
from toolchain.images.plan import GitTree
from toolchain.settings import git_environment

if TYPE_CHECKING:
    from toolchain.site import SiteConfig

_CHUNK_BYTES = 1 << 20
_GIT_SECONDS = 300.0
_MOST_BYTES = 8 << 30
_ANSWERED = re.compile("returned error|certificate")
"""How git says that it has reached a server which it cannot use."""


def download(url: str, site: SiteConfig, target: Path | None = None) -> str:
    """Fetch a file once and return its sha256 in hex; keep it as `target` where one is named.

    Through the site's mirror, proxy and CA bundle. Raises HostError when it cannot be fetched.
    """
    digest, size = hashlib.sha256(), 0
    with contextlib.ExitStack() as stack:
        keep = stack.enter_context(stream_atomic(target)) if target is not None else None
        for chunk in _chunks(url, site):
            digest.update(chunk)
            size += len(chunk)
            if size > _MOST_BYTES:
                raise HostError(f"{url} is larger than {_MOST_BYTES:,} bytes", hint="is the address right?")
            if keep is not None:
                keep.write(chunk)
    return digest.hexdigest()


def resolve_commit(tree: GitTree, site: SiteConfig) -> str:
    """The commit that a tag or branch stands for now, as 40 hex digits; an annotated tag's is what it marks.

    Raises HostError when git or the repository cannot be used and BuildError when there is no such tag.
    """
    rewrites = [
        word for one in site.git_mirrors for word in ("-c", f"url.{one.mirror}.insteadOf={one.original}")
    ]
    patterns = (f"refs/tags/{tree.ref}", f"refs/tags/{tree.ref}^{{}}", f"refs/heads/{tree.ref}")
    with web.ca_file(site) as certificates:
        env = git_environment(certificates, site.proxy.http, site.proxy.https, ",".join(site.proxy.no_proxy))
        done = run(["git", *rewrites, "ls-remote", "--", tree.url, *patterns], timeout=_GIT_SECONDS, env=env)
    if done.returncode != 0:
        is_answer = "unable to access" not in done.stderr or _ANSWERED.search(done.stderr)
        raise (HostError if is_answer else web.UnreachableError)(
            f"cannot ask {tree.url} for its tags",
            why=done.stderr.strip()[-300:],
            hint="check the network, or name a mirror in site.yaml (`mirrors.git`)",
        )
    lines = (line.partition("\t") for line in done.stdout.splitlines())
    found = {name: commit for commit, _, name in lines}
    for name in (patterns[1], patterns[0], patterns[2]):
        if re.fullmatch(r"[0-9a-f]{40}", found.get(name, "")):
            return found[name]
    raise BuildError(
        f"{tree.url} has no tag or branch {tree.ref}", hint="correct the recipe, or the mirror in site.yaml"
    )


def _chunks(url: str, site: SiteConfig) -> Iterator[bytes]:
    """The bytes behind an address; whatever keeps them away is a HostError here, before a file is blamed."""
    import requests

    try:
        with web.answer(url, site) as response:
            yield from response.iter_content(_CHUNK_BYTES)
    except requests.RequestException as error:
        is_answer = isinstance(error, requests.HTTPError | requests.exceptions.SSLError)
        raise (HostError if is_answer else web.UnreachableError)(
            f"cannot fetch {url}",
            why=str(error)[:300],
            hint="check the network, or name a mirror (`mirrors.url`) or the CA (`ca_bundle`) in site.yaml",
        ) from error
