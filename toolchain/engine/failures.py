"""What goes wrong between us and an engine, as one line with the fix: exit code 4."""

from __future__ import annotations

import contextlib
import errno
import http.client
import re
import socket
import ssl
from collections.abc import Iterator

from compiler import HostError
from toolchain.engine.endpoint import DEFAULT_DOCKER, Endpoint
from toolchain.web import UnreachableError

_OTHERS = "name another engine with --docker-host or DOCKER_HOST"

_TLS = "check DOCKER_TLS_VERIFY=1, and ca.pem, cert.pem and key.pem in DOCKER_CERT_PATH (or in the context)"

_ASKED = r"(?:Get|Head|Put|Post) \"?https?://(?P<server>[^/\s\"]+).*"
_MIRROR = "name a mirror in site.yaml (`mirrors.registry`)"
_BEYOND: tuple[tuple[type[HostError], re.Pattern[str], str, str], ...] = (
    (
        UnreachableError,
        re.compile(r"lookup (?P<server>[^\s:]+)(?: on \S+)?: "),
        "finds no address for {server} (known cause no-name-resolution)",
        f"check the name, and that machine's name server and proxy, or {_MIRROR}, or use --base",
    ),
    (
        HostError,
        re.compile(rf"{_ASKED}x509: "),
        "does not trust the certificate of {server} (known cause certificate-not-trusted)",
        "give that machine the CA of the registry, or of the proxy before it, and restart the engine",
    ),
    (
        UnreachableError,
        re.compile(rf"{_ASKED}(?:dial tcp|connection|[Tt]imeout|deadline exceeded|EOF)"),
        "cannot reach {server}",
        f"check that machine's network and proxy, or {_MIRROR}",
    ),
)
"""What engines say, in the words of Go's library, when a server that they ask is the trouble: which error, a
pattern, what it means for the engine's machine, and what to do."""


def is_timeout(error: BaseException) -> bool:
    """Whether an error of the SDK says that the engine did not answer in time."""
    import requests
    import urllib3

    kinds = (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
    refused = (urllib3.exceptions.NewConnectionError, requests.ConnectionError)  # some of them are both
    return any(isinstance(one, kinds) and not isinstance(one, refused) for one in _chain(error))


@contextlib.contextmanager
def guarded(endpoint: Endpoint, doing: str, seconds: float) -> Iterator[None]:
    """Turn what the SDK raises into a HostError that says what could not be done, why, and what to do.

    `doing` completes "cannot ..."; `seconds` is the time limit of one answer.
    """
    import docker.errors
    import requests
    import urllib3

    failures = (
        docker.errors.DockerException,
        requests.RequestException,
        urllib3.exceptions.HTTPError,
        http.client.HTTPException,
        OSError,
    )
    try:
        yield
    except failures as error:
        raise diagnose(endpoint, doing, error, seconds) from error


def diagnose(endpoint: Endpoint, doing: str, error: BaseException, seconds: float) -> HostError:
    """The HostError, in one line, for an error of the SDK."""
    what, fix = cause(endpoint, error, seconds)
    found = beyond(endpoint, what)  # the engine's own words are among them
    kind = HostError if found is None else type(found)
    return kind(f"cannot {doing}: {what}; {fix}")


def beyond(endpoint: Endpoint, said: str) -> HostError | None:
    """What is the matter when an engine says that a server which it asks is the trouble; else None."""
    for kind, pattern, meaning, fix in _BEYOND:
        if found := pattern.search(said):
            what = meaning.format(server=found["server"])
            return kind(f"the machine of the engine at {endpoint} {what}: {said}", hint=fix)
    return None


def cause(endpoint: Endpoint, error: BaseException, seconds: float) -> tuple[str, str]:
    """What an error of the SDK says of the engine, and what to do; `seconds` limited the answer."""
    import docker.errors

    chain = list(_chain(error))
    answers = [one for one in chain if isinstance(one, docker.errors.APIError)]
    if answers:
        return _answered(endpoint, answers[0])
    if any(isinstance(one, ssl.SSLError) for one in chain):
        reason = next(_flat(one) for one in chain if isinstance(one, ssl.SSLError))
        return f"the engine at {endpoint} is not trusted, or does not trust us: {reason}", _TLS
    for one in chain:
        if isinstance(one, OSError) and (found := _system_error(endpoint, one)):
            return found
    if is_timeout(error):
        return (
            f"the engine at {endpoint} does not answer within {seconds:g} s",
            f"restart it (`sudo systemctl restart docker`), or {_OTHERS}",
        )
    if any(isinstance(one, http.client.HTTPException) for one in chain):
        return f"the engine at {endpoint} dropped the connection", f"see its log, restart it, or {_OTHERS}"
    return f"the engine at {endpoint}: {_flat(chain[-1])}", f"check that it runs, or {_OTHERS}"


def _answered(endpoint: Endpoint, error: BaseException) -> tuple[str, str]:
    status = getattr(getattr(error, "response", None), "status_code", 0)
    explanation = _flat(getattr(error, "explanation", None) or error)
    if found := beyond(endpoint, explanation):
        return found.what, found.hint
    if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
        return (
            f"the engine at {endpoint} answers {status}: {explanation}",
            f"see its log (`journalctl -u docker`), restart it, or {_OTHERS}",
        )
    fix = _TLS if "HTTPS server" in explanation else "correct what it names"
    return f"the engine at {endpoint} refuses with {status}: {explanation}", fix


def _system_error(endpoint: Endpoint, error: OSError) -> tuple[str, str] | None:
    if isinstance(error, socket.gaierror):
        return f"the host of the engine at {endpoint} has no address", f"check its name, or {_OTHERS}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return (
            f"this user may not use the engine at {endpoint}",
            "add the user to the socket's group (`sudo usermod -aG docker $USER`, then log in again)",
        )
    if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH):
        return f"no container engine answers at {endpoint}", _how_to_start(endpoint)
    if error.errno in (errno.ECONNRESET, errno.EPIPE):
        return f"the engine at {endpoint} dropped the connection", f"see its log, restart it, or {_OTHERS}"
    return None


def _how_to_start(endpoint: Endpoint) -> str:
    if not endpoint.is_local:
        return f"start it there, check the address, or {_OTHERS}"
    if "podman" in endpoint.url:
        return f"start podman's (`systemctl --user start podman.socket`), or {_OTHERS}"
    start = "start Docker (`sudo systemctl start docker`; install it with `sudo apt-get install docker.io`)"
    return (
        f"{start}, or {_OTHERS}" if endpoint.socket == DEFAULT_DOCKER else f"start the engine, or {_OTHERS}"
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, what it was raised from, and what its arguments carry, each once."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        inner = [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
        waiting += [part for part in inner if isinstance(part, BaseException)]


def _flat(value: object) -> str:
    return " ".join(str(value).split())
