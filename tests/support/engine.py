"""Container engines for tests: one that runs already, or one that is installed, started and stopped here.

Fixtures, each for the whole session: `docker_engine`, `podman_engine`, `registry`, and `remote_engine`, a
Docker engine on a TCP port in a mount namespace where this machine's temporary folder, home and checkout are
empty, so that nothing can rely on shared files. These engines have `base`, a minimal Debian made with
debootstrap, as the stand-in for `debian:bookworm`; `small_docker` is `docker_engine` with a base of a few
programs of this machine, which is made in a second. What cannot be had is skipped with the reason, which the
closing summary repeats.

Everything lives in a private folder; archives of the base, and of the base with more packages (`base_with`),
are kept in the project's cache, as making one takes half a minute and more. TK_TEST_DOCKER names a socket
that is to be used whatever else runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from compiler import TkError, load_settings
from compiler.core.files import private_directory, remove_abandoned_directories
from tests.support.command import ROOT
from tests.support.small_base import write_small_base
from toolchain.engine.client import Engine, open_engine
from toolchain.engine.endpoint import Endpoint, resolve_endpoint

BASE = "tk-test/debian:bookworm"
SMALL_BASE = "tk-test/programs:here"
_SUITE = "bookworm"
_PREFIX = "tk-test-engine"
_START_SECONDS = 60.0
_INSTALL_SECONDS = 600.0  # packages and the base come from the network
_PACKAGES = {
    "dockerd": "docker.io",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "iptables": "iptables",
    "podman": "podman",
    "runc": "runc",
    "catatonit": "catatonit",  # podman's init
    "docker-registry": "docker-registry",
}
_DOCKER = ("dockerd", "ip", "iptables")
_PODMAN = ("podman", "runc", "catatonit", "debootstrap")
_CACHE = load_settings().cache_dir / "test-engine"  # before the session gets a cache of its own
_said: dict[str, str] = {}
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class TestEngine:
    """An engine under test; `private`: started here, so that its images and containers are nobody else's."""

    __test__ = False

    url: str
    kind: str
    base: str
    private: bool
    pid: int = 0

    def open(self) -> Engine:
        return open_engine(Endpoint(self.url, "tests"))


class CannotStartError(Exception):
    """Why there is no such engine here."""


@pytest.fixture(scope="session")
def docker_without_base() -> Iterator[TestEngine]:
    """Docker on a local socket: a running one, else one of our own."""
    with _provided("docker", _running_docker(), with_base=False) as engine:
        yield engine


@pytest.fixture(scope="session")
def docker_engine(docker_without_base: TestEngine) -> TestEngine:
    """The same with the base."""
    try:
        _import_base(docker_without_base)
    except (CannotStartError, TkError) as error:
        _skip("docker", str(error))
    return docker_without_base


@pytest.fixture(scope="session")
def small_docker(docker_without_base: TestEngine, tmp_path_factory: pytest.TempPathFactory) -> TestEngine:
    """The same with a base of a few programs, for what needs no Debian."""
    archive = tmp_path_factory.mktemp("small-base") / "base.tar"
    try:
        _import_archive(docker_without_base, SMALL_BASE, lambda: write_small_base(archive))
    except (CannotStartError, TkError) as error:
        _skip("docker", str(error))
    return replace(docker_without_base, base=SMALL_BASE)


@pytest.fixture(scope="session")
def remote_engine() -> Iterator[TestEngine]:
    """Docker on tcp://127.0.0.1 which sees none of this machine's files that a test may use."""
    with _provided("docker on tcp", None, hidden=True) as engine:
        yield engine


@pytest.fixture(scope="session")
def podman_engine() -> Iterator[TestEngine]:
    """Podman's socket."""
    with _provided("podman", None) as engine:
        yield engine


@pytest.fixture(scope="session")
def registry() -> Iterator[str]:
    """Debian's docker-registry on a free port: `127.0.0.1:<port>`, empty at the start."""
    with contextlib.ExitStack() as stack:
        try:
            _need(("docker-registry",))
            address = stack.enter_context(_running_registry())
        except CannotStartError as error:
            _skip("registry", str(error))
        _said["registry"] = f"docker-registry, started for the tests at {address}"
        yield address


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which engines the tests ran with, and why others were missing."""
    for name, text in _said.items():
        terminalreporter.write_line(f"container engine: {name}: {text}")


@contextlib.contextmanager
def _provided(
    name: str, running: TestEngine | None, *, hidden: bool = False, with_base: bool = True
) -> Iterator[TestEngine]:
    with contextlib.ExitStack() as stack:
        try:
            engine = running or stack.enter_context(_started(name, hidden=hidden))
            if with_base:
                _import_base(engine)
        except (CannotStartError, TkError) as error:
            _skip(name, str(error))
        version = engine.open().version
        _said[name] = f"{version}, {'started for the tests' if engine.private else 'running'} at {engine.url}"
        yield engine


def _skip(name: str, reason: str) -> None:
    _said[name] = f"NOT TESTED: {reason}"
    pytest.skip(f"no {name} engine: {reason}")


def _running_docker() -> TestEngine | None:
    url = os.environ.get("TK_TEST_DOCKER")
    endpoint = Endpoint(url, "TK_TEST_DOCKER") if url else resolve_endpoint(kind="docker")
    try:
        found = open_engine(endpoint)
    except TkError:
        return None
    return TestEngine(endpoint.url, found.kind, BASE, private=False) if found.kind == "docker" else None


@contextlib.contextmanager
def _started(name: str, *, hidden: bool) -> Iterator[TestEngine]:
    if os.geteuid() != 0:
        raise CannotStartError("none is running, and only root can start one")
    remove_abandoned_directories(_PREFIX)
    _need(_PODMAN if name == "podman" else _DOCKER)
    with private_directory(_PREFIX) as folder:
        start = _podman(folder) if name == "podman" else _dockerd(folder, hidden=hidden)
        with start as engine:
            try:
                yield engine
            finally:
                _remove_containers(engine)


@contextlib.contextmanager
def _dockerd(folder: Path, *, hidden: bool) -> Iterator[TestEngine]:
    url = f"tcp://127.0.0.1:{_free_port()}" if hidden else f"unix://{folder}/docker.sock"
    with _bridge() as bridge:
        state = Path("/mnt") if hidden else folder
        argv = ["dockerd", "-H", url, "--data-root", f"{state}/data", "--exec-root", f"{folder}/exec"]
        argv += ["--pidfile", f"{folder}/pid", "--bridge", bridge, "--log-level", "warn"]
        if hidden:
            argv = _with_files_hidden(argv, folder)
        with contextlib.ExitStack() as stack:
            with _alone(
                "start"
            ):  # two that start at once stumble over each other's chains of the packet filter
                argv = ["unshare", "--mount", "--propagation", "private", *argv]
                pid = stack.enter_context(_program(argv, folder / "log"))
                engine = TestEngine(url, "docker", BASE, private=True, pid=pid)
                _wait_for(engine, folder / "log")
            yield engine


def _with_files_hidden(argv: Sequence[str], folder: Path) -> list[str]:
    """The program with empty folders over this machine's temporary files, home, cache and checkout.

    Its own folder stays, as a second mount: /mnt for the data, a bind mount in place for sockets.
    """
    hidden = {tempfile.gettempdir(), str(Path.home()), str(ROOT), str(_CACHE), str(Path.cwd())} - {"/"}
    outer = sorted(one for one in hidden if not any(one != o and one.startswith(f"{o}/") for o in hidden))
    script = 'mount --bind "$1" /mnt; own=$1; shift; n=$1; shift\n'
    script += 'while [ "$n" -gt 0 ]; do mount -t tmpfs tmpfs "$1"; shift; n=$((n-1)); done\n'
    script += 'mkdir -p "$own"; mount --bind /mnt "$own"; exec "$@"'
    program = shutil.which(argv[0]) or argv[0]
    return ["sh", "-euc", script, "hide", str(folder), str(len(outer)), *outer, program, *argv[1:]]


@contextlib.contextmanager
def _bridge() -> Iterator[str]:
    """A network bridge of our own: two engines on one machine would share and confuse `docker0`.

    Its name has our process id, so that what a killed session left is known and removed. It has a hardware
    address of its own: else it takes one of its ports', and containers that know it by that lose it when
    another container ends.
    """
    listed = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=False).stdout
    for name, pid in re.findall(r"\b(tkt(\d+)-\d+):", listed):
        if not Path(f"/proc/{pid}").exists():
            _remove_bridge(name)
    number = next(_numbers)
    name = f"tkt{os.getpid()}-{number}"
    place = (os.getpid() * 4 + number) % (8 * 256)
    address = f"02:74:6b:00:{place // 256:02x}:{place % 256:02x}"
    _call(["ip", "link", "add", name, "address", address, "type", "bridge"])
    try:
        _call(["ip", "addr", "add", f"10.{213 + place // 256}.{place % 256}.1/24", "dev", name])
        _call(["ip", "link", "set", name, "up"])
        yield name
    finally:
        _remove_bridge(name)


def _remove_bridge(name: str) -> None:
    with _alone("start"):
        subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)
        _forget_rules(name)


def _forget_rules(bridge: str) -> None:
    """Delete the packet filter's rules that the engine made for a bridge."""
    for table in ("nat", "filter"):
        listed = subprocess.run(
            ["iptables", "--wait", "-t", table, "-S"], capture_output=True, text=True, check=False
        )
        for rule in listed.stdout.splitlines():
            if rule.startswith("-A ") and bridge in rule.split():
                argv = ["iptables", "--wait", "-t", table, "-D", *rule.split()[1:]]
                subprocess.run(argv, capture_output=True, check=False)


@contextlib.contextmanager
def _podman(folder: Path) -> Iterator[TestEngine]:
    """Podman's service with storage of its own, set up for machines without systemd and without rlimits."""
    configuration = folder / "containers.conf"
    configuration.write_text(
        '[engine]\ncgroup_manager="cgroupfs"\nruntime="runc"\nevents_logger="file"\n'
        f'tmp_dir="{folder}/tmp"\nvolume_path="{folder}/volumes"\n'
        f'[network]\nnetwork_config_dir="{folder}/networks"\n'
        '[containers]\ninit_path="/usr/bin/catatonit"\ndefault_ulimits=["nofile=4096:4096","nproc=16384:16384"]\n'
    )
    storage = folder / "storage.conf"
    storage.write_text(f'[storage]\ndriver="overlay"\nrunroot="{folder}/run"\ngraphroot="{folder}/data"\n')
    own = {
        "CONTAINERS_CONF": configuration,
        "CONTAINERS_STORAGE_CONF": storage,
        "TMPDIR": folder / "temporary",
    }
    own["TMPDIR"].mkdir()  # it leaves each archive that it imports
    env = {**os.environ, **{name: str(path) for name, path in own.items()}}
    url = f"unix://{folder}/podman.sock"
    argv = ["unshare", "--mount", "--propagation", "private", "podman", "system", "service", "--time=0", url]
    with _program(argv, folder / "log", env) as pid:
        engine = TestEngine(url, "podman", BASE, private=True, pid=pid)
        _wait_for(engine, folder / "log")
        yield engine


@contextlib.contextmanager
def _running_registry() -> Iterator[str]:
    with private_directory(_PREFIX) as folder:
        address = f"127.0.0.1:{_free_port()}"
        configuration = folder / "registry.yml"
        configuration.write_text(
            "version: 0.1\nlog: {level: warn}\n"
            f"storage:\n  filesystem: {{rootdirectory: {folder}/data}}\n  delete: {{enabled: true}}\n"
            f"http: {{addr: '{address}'}}\n"
        )
        with _program(["docker-registry", "serve", str(configuration)], folder / "log") as pid:
            host, _, port = address.partition(":")
            _wait_until(lambda: _listens(host, int(port)), pid, folder / "log", "docker-registry")
            yield address


def _listens(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def _program(argv: Sequence[str], log: Path, env: dict[str, str] | None = None) -> Iterator[int]:
    """A program that ends with this block, or when this process is killed; its output goes to `log`."""
    with log.open("wb") as stream:
        child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *argv],
            stdout=stream, stderr=stream, stdin=subprocess.DEVNULL, env=env, start_new_session=True,
        )  # fmt: skip
    try:
        yield child.pid
    finally:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)  # nothing of it is kept, and its mounts go with it
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _wait_for(engine: TestEngine, log: Path) -> None:
    def answers() -> bool:
        with contextlib.suppress(TkError):
            return bool(engine.open().version)
        return False

    _wait_until(answers, engine.pid, log, engine.kind)


def _wait_until(ready: Any, pid: int, log: Path, name: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if ready():
            return
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            break
        time.sleep(0.1)
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    raise CannotStartError(f"{name} does not start: {' | '.join(lines[-3:])}")


def _remove_containers(engine: TestEngine) -> None:
    with contextlib.suppress(TkError):
        opened = engine.open()
        with opened.guard("list containers"):
            names = [one["Id"] for one in opened.api.containers(all=True)]
        for name in names:
            opened.remove_container(name)


def _import_base(engine: TestEngine) -> None:
    _import_archive(engine, engine.base, base_archive)


def base_with(engine: TestEngine, *packages: str) -> str:
    """The base with more Debian packages, on an engine: its reference there.

    Skips where it cannot be made. The archive is kept as that of the base, so that packages are fetched once.
    """
    reference = "-".join((engine.base, *packages))
    try:
        _import_archive(engine, reference, lambda: base_archive(*packages))
    except (CannotStartError, TkError) as error:
        pytest.skip(f"no base with {', '.join(packages)}: {error}")
    return reference


def _import_archive(engine: TestEngine, reference: str, archive: Callable[[], Path]) -> None:
    opened = engine.open()
    if opened.image(reference) is not None:
        return
    path = archive()
    repository, _, tag = reference.rpartition(":")
    with opened.guard("import the base"):
        answer = opened.api.import_image_from_file(str(path), repository, tag, changes=['CMD ["bash"]'])
        identity = re.search(r"sha256:[0-9a-f]{64}", answer)
        opened.api.tag(identity[0] if identity else repository, repository, tag)  # podman forgets the tag
    if opened.image(reference) is None:
        raise CannotStartError(f"the base was not imported: {answer}")


def base_archive(*packages: str) -> Path:
    """The archive of a minimal Debian with these packages, too, made once.

    Raises CannotStartError when it cannot be made.
    """
    archive = _CACHE / f"{'+'.join((f'{_SUITE}-minbase', *packages))}.tar.gz"
    with _alone("lock"):
        if not archive.exists():
            _make_base(archive, packages)
    return archive


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    """One process of the tests at a time."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_base(archive: Path, packages: Sequence[str]) -> None:
    _need(("debootstrap",))
    with private_directory(_PREFIX) as folder:
        root = folder / "root"
        wanted = [f"--include={','.join(packages)}"] if packages else []
        _call(["debootstrap", "--variant=minbase", *wanted, _SUITE, str(root)])
        for pattern in ("var/cache/apt/archives/*.deb", "var/lib/apt/lists/*_*", "var/log/*.log"):
            for path in root.glob(pattern):
                path.unlink()
        part = archive.with_suffix(".part")
        _call(["tar", "--numeric-owner", "-C", str(root), "-I", "gzip -1", "-cf", str(part), "."])
        part.replace(archive)


def _need(programs: Sequence[str]) -> None:
    """Install what is missing; raises CannotStartError when that cannot be done."""
    missing = [one for one in programs if shutil.which(one) is None]
    if not missing:
        return
    packages = [_PACKAGES[one] for one in missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise CannotStartError(f"missing programs: {', '.join(missing)} (packages {', '.join(packages)})")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with contextlib.suppress(CannotStartError):  # what is missing may be in the lists that are there
        _call(["apt-get", "update", "-qq"], env)
    _call(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages], env)
    if hidden := [one for one in missing if shutil.which(one) is None]:
        raise CannotStartError(f"installed, but not on the PATH: {', '.join(hidden)}")


def _call(argv: Sequence[str], env: dict[str, str] | None = None) -> None:
    command = " ".join(argv[:4])
    try:
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise CannotStartError(f"`{command}` has not ended after {_INSTALL_SECONDS:.0f} s") from None
    if done.returncode:
        said = re.sub(r"\s+", " ", (done.stderr or done.stdout)[-300:]).strip()
        raise CannotStartError(f"`{command}` fails: {said}")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
