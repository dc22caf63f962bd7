"""Where a cluster is, and how it is encrypted: nothing goes unencrypted beyond this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from compiler.core.diagnostics import HostError, UsageError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from distributed import Security

LOOPBACK = "127.0.0.1"
_ENCRYPTED = "tls"
_SCHEMES = ("tcp", _ENCRYPTED)
_PARTS = ("client", "worker", "scheduler")
_CERTIFICATES = (
    "name the certificates in Dask's configuration, or where a command has them with "
    "--tls-ca-file, --tls-cert and --tls-key (docs/tuning.md)"
)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of Dask's TLS; what is left out comes from Dask's own configuration.

    ca: whom to believe. cert, key: what this process shows.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """A scheduler's address, `tcp://HOST:PORT` or `tls://HOST:PORT`, as an option gave it."""

    text: str
    tls: TlsFiles = field(default_factory=TlsFiles)
    option: str = "--cluster"

    @property
    def where(self) -> str:
        """The option as it was typed."""
        return f"{self.option} {self.text}"

    def check(self) -> None:
        """Raise UsageError for what is no address, and for one beyond this machine without TLS."""
        try:
            parts = _split(self.text)
            is_address = parts.scheme in _SCHEMES and parts.hostname and parts.port
        except ValueError:
            is_address = None
        if not is_address:
            hint = "as `tcp://127.0.0.1:8786`, or `tls://HOST:8786` for another machine"
            raise UsageError("this is no address of a scheduler", where=self.where, hint=hint)
        check_encrypted(self.host, self.where, encrypted=self.is_encrypted)

    @property
    def host(self) -> str:
        """The host's name or number."""
        return _split(self.text).hostname or ""

    @property
    def is_encrypted(self) -> bool:
        """Whether it is reached by TLS."""
        return _split(self.text).scheme == _ENCRYPTED


def _split(text: str) -> SplitResult:
    from urllib.parse import urlsplit  # not for every `tk --help`

    return urlsplit(text)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, which nobody else reaches under that name."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_encrypted(host: str, where: str, *, encrypted: bool) -> None:
    """Raise UsageError for a host beyond this machine that is to be reached without TLS."""
    if not is_loopback(host) and not encrypted:
        raise UsageError(
            "beyond this machine a cluster needs TLS",
            where=where,
            why="who reaches a scheduler or a worker may run code there",
            hint=f"use `tls://HOST:PORT`, and {_CERTIFICATES}; or a tunnel to 127.0.0.1",
        )


def security_of(tls: TlsFiles, where: str, *, encrypted: bool) -> Security:
    """Dask's record of the encryption; raises HostError where it lacks certificates."""
    from distributed import Security

    given: dict[str, Any] = {"tls_ca_file": tls.ca}
    for part in _PARTS:
        given |= {f"tls_{part}_cert": tls.cert, f"tls_{part}_key": tls.key}
    words = {name: str(path) for name, path in given.items() if path is not None}
    make: Any = Security  # its fields have no types
    made = make(require_encryption=encrypted, **words)
    if encrypted and not (made.tls_ca_file and made.tls_client_cert):
        raise HostError(
            "TLS needs certificates",
            where=where,
            why="neither options nor Dask's configuration (distributed.comm.tls) name them",
            hint=_CERTIFICATES,
        )
    return cast("Security", made)
