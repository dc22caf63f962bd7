"""An engine: Docker's Python SDK over one endpoint, for everything but the build."""

from __future__ import annotations

import contextlib
import http
import importlib.util
import io
import re
import socket
import sys
import tarfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from compiler import Companion, HostError
from toolchain.engine import failures, labels, reaper
from toolchain.engine.choice import EngineChoice
from toolchain.engine.endpoint import Endpoint, EngineKind, Tls, resolve_endpoint
from toolchain.engine.watch import PATIENCE, Patience, Watch, WorkLostError, awaited
from toolchain.settings import python_environment

_PODMAN = "Podman Engine"
_REMOVE_TRIES, _REMOVE_PAUSE_SECONDS = 10, 0.2
_NO_PROGRAM = re.compile(
    r"executable file [^:]*not found|exec:? [^:]*: (stat [^:]*: )?no such file or directory", re.IGNORECASE
)
"""How runc and crun say that an image lacks the program."""


def lacks_program(said: str) -> bool:
    """Whether that is why an engine could not start a container, by what it says."""
    return _NO_PROGRAM.search(said) is not None


@dataclass(frozen=True, slots=True)
class Finished:
    """A container that has ended: its exit code and everything that it printed."""

    code: int
    output: str


class Engine:
    """A container engine that has answered.

    `client` and `api` are the SDK's; use them under `guard`, which turns their errors into ours, and whatever
    has no limit on its time under a `watch`.
    """

    def __init__(
        self, endpoint: Endpoint, client: Any, facts: Mapping[str, Any], patience: Patience = PATIENCE
    ) -> None:
        self.endpoint = endpoint
        self.client = client
        self.patience = patience
        weakref.finalize(self, client.close)
        self.api = client.api
        self.version = str(facts.get("Version", ""))
        self.api_version = str(facts.get("ApiVersion", ""))
        names = [str(one.get("Name", "")) for one in facts.get("Components") or ()]
        self.kind: EngineKind = "podman" if _PODMAN in names else "docker"

    @property
    def is_local(self) -> bool:
        """Whether it listens on a socket of this machine."""
        return self.endpoint.is_local

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """What the engine says about itself and its machine (GET /info)."""
        with self.guard("ask the engine about itself"):
            found: Mapping[str, Any] = self.api.info()
            return found

    @property
    def is_rootless(self) -> bool:
        """Whether it runs without root's rights, so that containers' users are mapped."""
        options = [str(one) for one in self.info.get("SecurityOptions") or ()]
        return any("rootless" in one for one in options)

    def guard(self, doing: str, seconds: float | None = None) -> contextlib.AbstractContextManager[None]:
        """Within it errors of the SDK become a HostError "cannot <doing>: ..."."""
        limit = seconds or float(self.api.timeout or self.patience.answer)
        return failures.guarded(self.endpoint, doing, limit)

    def watch(self, doing: str, container: str = "") -> Watch:
        """For waiting without a limit: it finds out when the engine hangs, or `container` no longer runs."""
        return Watch(self.endpoint, doing, self.patience, lambda seconds: self._ask(container, seconds))

    def _ask(self, container: str, seconds: float) -> None:
        """Ask on a connection of its own for a sign of life; raises the SDK's errors and WorkLostError."""
        import docker.errors

        client = _client(self.endpoint, self.api.api_version, seconds)
        try:
            if not container:
                client.ping()
                return
            state = client.inspect_container(container)["State"]
        except docker.errors.NotFound:
            state = {}
        finally:
            client.close()
        if not state.get("Running"):
            raise WorkLostError(f"the container {container} has ended without a word on its connection")

    def image(self, reference: str) -> Mapping[str, Any] | None:
        """What the engine knows of an image (GET /images/{name}/json), or None when it has none."""
        import docker.errors

        with self.guard(f"look up the image {reference}"):
            try:
                found: Mapping[str, Any] = self.api.inspect_image(reference)
            except docker.errors.NotFound:
                return None
            return found

    @contextlib.contextmanager
    def container(self, image: str, argv: Sequence[str], **options: Any) -> Iterator[str]:
        """The name of a new container that was not started, labelled as ours and removed at the end.

        `options` are those of the SDK's `create_container`, host options by name in `host`. With the name
        of a build step's it gets no labels: that says whose it is.
        """
        name = str(options.pop("name", "")) or labels.fresh_name("run")
        host = self.api.create_host_config(**options.pop("host", {}))
        own = {} if name.startswith(labels.STEP_NAME) else labels.owned(options.pop("labels", None))
        self._reaper.tell(f"+{name}")
        try:
            with self.guard(f"create a container of {image}"):
                self.api.create_container(
                    image,
                    list(argv),
                    name=name,
                    host_config=host,
                    labels=own,
                    use_config_proxy=False,
                    **options,
                )
            yield name
        except Exception:
            if self._clean_up(name):
                self._reaper.tell(f"-{name}")
            raise
        except BaseException:  # an interrupt: the engine may be about to create it, so the reaper stays
            self._clean_up(name)
            raise
        else:
            self.remove_container(name)
            self._reaper.tell(f"-{name}")

    def check_alive(self, doing: str) -> None:
        """Raise HostError when the engine is gone: then that is why something broke off."""
        with self.guard(doing):
            self.api.ping()

    def start_reaper(self) -> None:
        """Have somebody who removes our containers and private directories should this process be killed."""
        self._reaper.tell("")

    @cached_property
    def _reaper(self) -> Companion:
        companion = Companion([sys.executable, "-P", "-m", reaper.__name__], python_environment())
        weakref.finalize(self, _dismiss, companion)
        companion.tell(reaper.introduction(self.endpoint))
        return companion

    def _clean_up(self, name: str) -> bool:
        """Remove a container after a failure, which is what the user shall hear of: nothing is raised.

        Not for long, as the engine may be the trouble; what stays is left to the reaper.
        """
        before, self.api.timeout = self.api.timeout, self.patience.clean_up
        try:
            self.remove_container(name)
        except HostError:
            return False
        finally:
            self.api.timeout = before
        return True

    def remove_container(self, name: str) -> None:
        """Remove a container with the volumes that are its own, running or not; none there is no error."""
        import docker.errors

        with self.guard(f"remove the container {name}"), contextlib.suppress(docker.errors.NotFound):
            for tries_left in reversed(range(_REMOVE_TRIES)):
                try:
                    self._remove(name)
                except docker.errors.APIError as error:
                    if not tries_left or not error.is_server_error():
                        raise
                    time.sleep(_REMOVE_PAUSE_SECONDS)  # podman cannot stop what is just ending
                else:
                    break

    def _remove(self, name: str) -> None:
        import docker.errors

        try:
            self.api.remove_container(name, v=True, force=True)
        except docker.errors.NotFound:
            pass
        except docker.errors.APIError as error:
            if error.status_code != http.HTTPStatus.CONFLICT:  # the engine removes it already
                raise
        if name.startswith(labels.STEP_NAME):
            self._remove_volumes(name)

    def _remove_volumes(self, step: str) -> None:
        import docker.errors

        for one in self.api.volumes().get("Volumes") or ():
            if labels.is_volume_of(step, one["Name"]):
                with contextlib.suppress(docker.errors.APIError):  # gone, or swept up later
                    self.api.remove_volume(one["Name"], force=True)

    def run(
        self, image: str, argv: Sequence[str], *, timeout: float | None = None, **options: Any
    ) -> Finished:
        """Run a program in a container of its own, without network unless `host` has `network_mode`.

        The container is removed, also after an interrupt. `timeout` in seconds; without one a live engine is
        waited for. A program that the image has not got ends with 127, as in a shell. Raises HostError.
        """
        import docker.errors

        host = {"network_mode": "none", **options.pop("host", {})}
        entry = [argv[0]] if argv else None
        doing = f"run `{' '.join(argv)}` in {image}"
        with (
            self.container(image, list(argv[1:]), entrypoint=entry, host=host, **options) as name,
            self.guard(doing, timeout),
        ):
            try:
                self.api.start(name)
            except docker.errors.APIError as error:
                if not lacks_program(str(error)):
                    raise
                return Finished(127, f"the image has no program {argv[0]}")
            ended = awaited(lambda: self.api.wait(name, timeout=timeout), self.watch(doing, name))
            code = int(ended["StatusCode"])
            output: bytes = self.api.logs(name)
        return Finished(code, output.decode(errors="backslashreplace"))

    def read_file(self, image: str, path: str) -> bytes | None:
        """The bytes of a file in an image, symbolic links followed; None when it has no such file.

        Nothing of the image is run.
        """
        with self.container(image, ["none"]) as name:
            return self.read_in(name, path)

    def read_in(self, container: str, path: str, depth: int = 0) -> bytes | None:
        """The bytes of a file in a container, as `read_file`; `depth` counts links that were followed."""
        import docker.errors

        with self.guard(f"read {path} of {container}"):
            try:
                parts, _ = self.api.get_archive(container, path)
                data = b"".join(parts)
            except docker.errors.NotFound:
                return None
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            member = next(iter(archive), None)
            if member is not None and member.issym() and depth < 8:
                target = str(_normal(PurePosixPath(path).parent / member.linkname))
                return self.read_in(container, target, depth + 1)
            stream = archive.extractfile(member) if member is not None and member.isfile() else None
            return stream.read() if stream is not None else None


def open_chosen(choice: EngineChoice, *, seconds: float | None = None) -> Engine:
    """Connect to the engine that is chosen, as `open_engine`."""
    endpoint = resolve_endpoint(choice.docker_host, kind=choice.kind)
    return open_engine(endpoint, kind=choice.kind, seconds=seconds)


def open_engine(
    endpoint: Endpoint | None = None,
    *,
    kind: str | None = None,
    seconds: float | None = None,
    patience: Patience | None = None,
) -> Engine:
    """Connect to the engine at `endpoint`, by default what `resolve_endpoint` finds, and wait for its answer.

    `kind` must be what it then says it is; `seconds` limits its first answer, `patience` all others. Raises
    HostError, in one line with the fix, when there is none, or it hangs, drops the connection or answers with
    an error.
    """
    where = endpoint or resolve_endpoint(kind=kind)
    patient = patience or PATIENCE
    limit = seconds or (patient.first if where.is_local else 3 * patient.first)
    with failures.guarded(where, "use the container engine", limit):
        client, facts = _connect(where, limit, patient.answer)
    engine = Engine(where, client, facts, patient)
    if kind is not None and engine.kind != kind:
        raise HostError(
            f"--engine {kind} was asked for, but {engine.kind} {engine.version} answers at {where};"
            f" name {kind}'s socket with --docker-host"
        )
    return engine


def _connect(endpoint: Endpoint, seconds: float, later: float) -> tuple[Any, Mapping[str, Any]]:
    """The SDK's client, and what the engine says of its version; `later` limits answers after that.

    The version is asked for here and not by the SDK, whose client leaves its sockets open when that fails.
    """
    import docker
    from docker.constants import DEFAULT_DOCKER_API_VERSION

    if endpoint.url.startswith("ssh:") and importlib.util.find_spec("paramiko") is None:
        raise HostError(
            f"cannot use the container engine at {endpoint}: Python's ssh package is missing;"
            " install it with `pip install 'docker[ssh]'`"
        )
    _knock(endpoint, seconds)
    probe = _client(endpoint, DEFAULT_DOCKER_API_VERSION, seconds)
    try:
        facts: Mapping[str, Any] = probe.version(api_version=False)
    finally:
        probe.close()
    version = min(str(facts.get("ApiVersion")), DEFAULT_DOCKER_API_VERSION, key=_numbers)
    client = docker.DockerClient(version=version, timeout=later, **_address(endpoint))
    client.api.trust_env = False
    return client, facts


def _dismiss(companion: Companion) -> None:
    """Tell a reaper that we end in order, with nothing left but what it knows of."""
    companion.tell(reaper.FAREWELL)
    companion.dismiss()


def _client(endpoint: Endpoint, version: str, seconds: float) -> Any:
    """The SDK's client for a few questions on a connection of its own."""
    import docker

    client = docker.APIClient(version=version, timeout=seconds, **_address(endpoint))
    client.trust_env = False  # else requests would put REQUESTS_CA_BUNDLE in place of the engine's own CA
    return client


def _address(endpoint: Endpoint) -> dict[str, Any]:
    return {"base_url": endpoint.url, "tls": _tls(endpoint.tls), "use_ssh_client": True}


def _knock(endpoint: Endpoint, seconds: float) -> None:
    """Raise the OSError of a local socket that cannot be used; the SDK would leave its own one open."""
    if endpoint.socket is not None:
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(seconds)
            one.connect(str(endpoint.socket))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


def _tls(tls: Tls | None) -> Any:
    if tls is None:
        return False
    import docker.tls

    pair = (str(tls.cert), str(tls.key)) if tls.cert.exists() and tls.key.exists() else None
    return docker.tls.TLSConfig(
        client_cert=pair, ca_cert=str(tls.ca) if tls.ca.exists() else None, verify=tls.verify
    )


def _normal(path: PurePosixPath) -> PurePosixPath:
    """Resolve `..` within the root."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts = parts[:-1] or ["/"]
        else:
            parts.append(part)
    return PurePosixPath(*parts)
