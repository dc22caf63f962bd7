"""The one place that downloads: through the site's mirror, proxy and CA bundle."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import HostError, private_directory, write_atomic

if TYPE_CHECKING:
    import requests

    from toolchain.site import SiteConfig

_SECONDS = 60.0


class UnreachableError(HostError):
    """A server elsewhere cannot be reached, from here or from the engine's machine."""


@contextlib.contextmanager
def answer(url: str, site: SiteConfig) -> Iterator[requests.Response]:
    """What is at an address, to be read in chunks, as it lies there.

    Raises requests.RequestException, also while the caller reads, and HostError for an unusable CA bundle.
    """
    import requests

    mirrored = site.mirrored_url(url)
    with ca_file(site) as certificates, requests.Session() as session:
        # Named with the request: a session's own gives way to the environment's.
        verify = str(certificates) if certificates else True
        plain = {"Accept-Encoding": "identity"}
        proxies = _proxies(mirrored, site)
        with session.get(
            mirrored, stream=True, timeout=_SECONDS, proxies=proxies, verify=verify, headers=plain
        ) as response:
            response.raise_for_status()
            yield response


def _proxies(url: str, site: SiteConfig) -> dict[str, str]:
    """The site's proxies for an address, empty where it is reached without; else the environment's count."""
    from requests.utils import should_bypass_proxies

    if site.proxy.no_proxy and should_bypass_proxies(url, no_proxy=",".join(site.proxy.no_proxy)):
        return {"http": "", "https": ""}
    named = {"http": site.proxy.http, "https": site.proxy.https}
    return {scheme: one for scheme, one in named.items() if one}


@contextlib.contextmanager
def ca_file(site: SiteConfig) -> Iterator[Path | None]:
    """The site's CA bundle as a file of our own, checked; None when there is none."""
    certificates = site.ca_certificates()
    if not certificates:
        yield None
        return
    with private_directory("tk-ca") as folder:
        path = folder / "ca.pem"
        write_atomic(path, certificates)
        yield path
