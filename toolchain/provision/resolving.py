"""Finding the versions that a plan would install now: asked of apt and pip in a container of the plan's base.

The steps of the plan that say where packages come from (sources, keys, pins) are done as they stand; then apt
simulates the installation of everything, and pip reports what it would install. Nothing is kept.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler import BuildError, HostError, InternalError, TkError, stream_atomic
from toolchain.engine.watch import awaited
from toolchain.explain.causes import known_causes
from toolchain.images.lock.apt import CHECKSUMS, FOLDER, PREFERENCES, SNAPSHOTS
from toolchain.images.plan import (
    CA_SECRET,
    SITE_SECRET,
    Command,
    Copy,
    Deb,
    Instruction,
    Pins,
    Plan,
    Run,
    Stage,
)
from toolchain.images.steps import FETCHED, KEY_READER, download_step, site_step
from toolchain.provision import origins
from toolchain.recipes.catalog import load_issues
from toolchain.web import UnreachableError

if TYPE_CHECKING:
    from toolchain.engine.client import Engine
    from toolchain.recipes.schema import Archive
    from toolchain.site import SiteConfig

_FOLDER = "/run/tk"
_OUT = f"{_FOLDER}/out"
_SECONDS = 3600.0
_URI = re.compile(
    r"^'(?P<url>https?://[^']+\.deb)' (?P<name>[^_\s]+)_\S+_(?P<arch>[a-z0-9]+)\.deb \d+ "
    r"SHA256:(?P<sha256>[0-9a-f]{64})$",
    re.MULTILINE,
)
_AWAY = re.compile(
    r"Temporary failure (?:in name resolution|resolving)|Could not (?:resolve|connect)|Unable to connect to"
    r"|Failed to establish a new connection|[Nn]etwork is unreachable|Connection timed out"
)
"""How apt, pip, curl and wget say that a server cannot be reached."""
_SIMULATED = re.compile(r"^Inst (?P<name>\S+) (?:\[[^\]]*\] )?\((?P<version>\S+) ", re.MULTILINE)
_KEEP = "/etc/apt/preferences.d/tk-keep.pref"
_CONSTRAINTS = f"{_FOLDER}/constraints.txt"
_PREFERRED = 1001
"""Above 1000 apt takes a version even when it is older than what is installed (apt_preferences(5))."""


@dataclass(frozen=True, slots=True)
class Packages:
    """What would be installed: apt package -> version, Python package -> (version, sha256s).

    `debs` are the files of the apt packages that do not come from the system's own archives.
    """

    apt: Mapping[str, str]
    pip: Mapping[str, tuple[str, tuple[str, ...]]]
    debs: Mapping[str, Deb] = field(default_factory=dict)


def resolve_packages(
    engine: Engine,
    plan: Plan,
    site_config: SiteConfig,
    *,
    archives: Sequence[Archive] = (),
    keep: Pins | None = None,
) -> Packages:
    """The packages that installing `plan` adds or asks for, pulled-in ones included.

    All downloads of the plan must have a sha256. `archives` are the system's own, which keep old versions;
    `keep` are versions that are taken where they still exist.
    Raises BuildError with the last lines when apt or pip find no solution, HostError when the engine fails or
    no package source can be reached.
    """
    if not _asked_of_apt(plan) and not plan.pip:
        return Packages({}, {})
    files = {"constraints.txt": _constraints(keep).encode(), "keep.pref": _preferences(keep).encode()}
    with _asked(engine, plan, site_config, resolving_script(plan), files) as name:
        apt = _apt(engine, name)
        listed = (engine.read_in(name, f"{_OUT}/uris.txt") or b"").decode()
        debs = parse_uris(listed, apt, archives, site_config.original_apt_url)
        return Packages(apt, _pip(engine, name, site_config), debs)


def fetch_packages(engine: Engine, plan: Plan, site_config: SiteConfig, target: Path) -> None:
    """Get the packages of a locked plan: `target` becomes a tar of `out/archives`, `out/lists`, `out/wheels`.

    Raises BuildError when one has vanished, HostError when the engine fails.
    """
    with (
        _asked(engine, plan, site_config, fetching_script(plan), {}) as name,
        engine.guard(f"read the packages of {plan.name}", _SECONDS),
        stream_atomic(target) as stream,
    ):
        parts, _ = engine.api.get_archive(name, _OUT)
        for part in parts:
            stream.write(part)


@contextlib.contextmanager
def _asked(
    engine: Engine, plan: Plan, site_config: SiteConfig, script: str, more: Mapping[str, bytes]
) -> Iterator[str]:
    """A container of the plan's base in which the script has run, with the files of the plan's context."""
    files = {
        **{f"context/{one.path}": one.data for one in plan.files},
        "site.sh": next(one.data for one in plan.files if one.path.endswith("site.sh")),
        **{
            one.path.removeprefix(FOLDER): one.data
            for one in plan.files
            if one.path in (PREFERENCES, SNAPSHOTS, CHECKSUMS)
        },
        "resolve.sh": script.encode(),
        **more,
    }
    secrets = {SITE_SECRET: site_config.build_settings(), CA_SECRET: site_config.ca_certificates()}
    mirror = "" if plan.base.stand_in else site_config.mirrored_image(plan.base.pinned)
    base = mirror or plan.base.pinned
    with engine.container(
        base, [f"{_FOLDER}/resolve.sh"], entrypoint=["sh"], user="0:0",
        host={"network_mode": "bridge", "init": True},
    ) as name:  # fmt: skip
        _send(engine, name, _FOLDER, files)
        _send(engine, name, "/run/secrets", secrets)
        doing = f"ask for the packages of {plan.name}"
        with engine.guard(doing, _SECONDS):
            engine.api.start(name)
            ended = awaited(lambda: engine.api.wait(name, timeout=_SECONDS), engine.watch(doing, name))
            code = int(ended["StatusCode"])
            log = engine.api.logs(name).decode(errors="backslashreplace")
        if code != 0:
            raise _unsolved(plan, log, site_config)
        yield name


def resolving_script(plan: Plan) -> str:
    """The shell script that resolves a plan's packages in a container of its base."""
    lines = ["set -eu", f"mkdir -p {_OUT}", *_script_lines(plan)]
    return "\n".join(lines) + "\n"


def fetching_script(plan: Plan) -> str:
    """The shell script that fetches the packages of a locked plan in a container of its base."""
    lines = ["set -eu", f"mkdir -p {_OUT}/archives {_OUT}/lists {_OUT}/wheels"]
    lines += _source_lines(plan)
    packages, fetches = _packages(plan)
    if packages:
        lines += [*fetches, _line(site_step("apt", "update"))]
        lines.append(_line(site_step("apt", "install", "--download-only", *packages)))
        lines += [
            f"cp /var/cache/apt/archives/*.deb {_OUT}/archives/",
            f"cp -R /var/lib/apt/lists/. {_OUT}/lists/",
        ]
        lines.append(f"rm -rf {_OUT}/lists/partial {_OUT}/lists/lock")
    if plan.pip:
        preparation, install = _python(plan)
        requirements = [word for word in install if word.endswith("requirements.txt")]
        path = next(one.path for one in plan.files if one.path.endswith("requirements.txt"))
        lines += [*preparation, *(f"cp {_FOLDER}/context/{path} {one}" for one in requirements)]
        start = install[: install.index("install")]
        options = [
            word for word in install[install.index("install") + 1 :] if not word.startswith("--progress")
        ]
        lines.append(_line((*start, "download", "--dest", f"{_OUT}/wheels", *options)))
    return "\n".join(lines) + "\n"


def _script_lines(plan: Plan) -> Iterator[str]:
    yield from _source_lines(plan)
    yield f"mkdir -p {_KEEP.rpartition('/')[0]}"
    yield f"if [ -s {_FOLDER}/keep.pref ]; then cp {_FOLDER}/keep.pref {_KEEP}; fi"
    packages, fetches = _packages(plan)
    if packages:
        yield from fetches
        yield _line(site_step("apt", "update"))
        yield f"{_line(site_step('apt', 'install', '--simulate', *packages))} >{_OUT}/apt.txt"
        uris = site_step("apt", "install", "-o", "Acquire::ForceHash=SHA256", "--print-uris", *packages)
        yield f"{_line(uris)} >{_OUT}/uris.txt"
        names = " ".join(shlex.quote(one.partition("=")[0]) for one in _asked_of_apt(plan))
        shown = "dpkg-query --show --showformat='${Package}\\t${Version}\\n'"
        yield f"{shown} {names} >{_OUT}/installed.txt 2>{_OUT}/ignored.txt || true"
    if plan.pip:
        preparation, install = _python(plan)
        yield from preparation
        start = install[: install.index("install") + 1]
        options = ("--dry-run", "--quiet", "--ignore-installed", "--report", f"{_OUT}/pip.json")
        kept = _line((*start, *options, "--constraint", _CONSTRAINTS, *plan.pip))
        yield f"{kept} || {_line((*start, *options, *plan.pip))}"


def _packages(plan: Plan) -> tuple[list[str], list[str]]:
    """Everything that apt is asked for, files included, and the lines that fetch those files."""
    files = [one for one in plan.downloads if one.path.endswith(".deb")]
    fetches = [_line(download_step(one)) for one in files]
    return [*_asked_of_apt(plan), *(f"{FETCHED}{one.path}" for one in files)], fetches


def _instructions(plan: Plan) -> Iterator[Instruction]:
    for stage in plan.stages:
        yield from stage.instructions


def _asked_of_apt(plan: Plan) -> list[str]:
    """Names of packages that any step of the plan installs, files left out."""
    installs = [
        one for stage in plan.stages for one in _commands(stage) if one[:4] == site_step("apt", "install")
    ]
    return list(dict.fromkeys(word for one in installs for word in one[4:] if not word.startswith("/")))


def _source_lines(plan: Plan) -> list[str]:
    """What makes the package sources those of the plan, with what reads their keys before the first."""
    commands = [command for one in _instructions(plan) for command in _source_commands(plan, one)]
    first = next((i for i, one in enumerate(commands) if one[:3] == site_step("key")), len(commands))
    reader = (
        [site_step("apt", "update"), site_step("apt", "install", KEY_READER)] if first < len(commands) else []
    )
    return [_line(one) for one in (*commands[:first], *reader, *commands[first:])]


def _source_commands(plan: Plan, one: Instruction) -> Iterator[Command]:
    """What an instruction does to where packages come from."""
    if isinstance(one, Run):
        yield from (command for command in one.commands if command[:2] == ("rm", "-f"))
    if not isinstance(one, Copy) or not one.target.startswith("/etc/apt/"):
        return
    yield (
        "mkdir",
        "-p",
        one.target.rstrip("/") if one.target.endswith("/") else one.target.rpartition("/")[0],
    )
    if not one.from_stage:
        yield ("cp", *(f"{_FOLDER}/context/{source}" for source in one.sources), one.target)
    for file in plan.downloads:
        if one.from_stage and one.sources == (f"{FETCHED}{file.path}",):
            yield download_step(file, one.target)


def _python(plan: Plan) -> tuple[list[str], Command]:
    """Lines that make the interpreter and environment that the plan makes, and its call of `pip install`."""
    system, packages = _stage(plan, "system"), _stage(plan, "packages")
    lines = ["echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/tk 2>&1 || true"]  # nothing outlives the container
    lines += [_line(command) for command in _commands(system) if command[:4] == site_step("apt", "install")]
    for one in packages.instructions:
        if isinstance(one, Copy) and one.from_stage == "fetched":
            lines += _fetched_lines(plan, one)
    for command in _commands(packages):
        if "pip" in command and "install" in command:
            return lines, command
        lines.append(_line(command))
    raise InternalError(f"the plan of {plan.name} names Python packages and installs none")


def _fetched_lines(plan: Plan, copied: Copy) -> Iterator[str]:
    """Fetch and unpack what the Python stage takes from the stage with the downloads."""
    (source,) = copied.sources
    for one in _stage(plan, "fetched").instructions:
        if isinstance(one, Run) and any(
            word in (source, f"--directory={source}") for c in one.commands for word in c
        ):
            yield from (_line(command) for command in one.commands)
    yield _line(("mkdir", "-p", copied.target.rpartition("/")[0] or "/"))
    yield _line(("cp", "-a", source, copied.target))


def _stage(plan: Plan, name: str) -> Stage:
    return next((one for one in plan.stages if one.name == name), Stage(name, ()))


def _commands(stage: Stage) -> Iterator[Command]:
    for one in stage.instructions:
        if isinstance(one, Run):
            yield from one.commands


def _line(command: Sequence[str]) -> str:
    return shlex.join(command)


def _constraints(keep: Pins | None) -> str:
    return "".join(f"{name}=={version}\n" for name, (version, _) in sorted(keep.pip.items())) if keep else ""


def _preferences(keep: Pins | None) -> str:
    entries = sorted(keep.apt.items()) if keep else []
    return "\n".join(
        f"Package: {name}\nPin: version {version}\nPin-Priority: {_PREFERRED}\n" for name, version in entries
    )


def _send(engine: Engine, container: str, folder: str, files: Mapping[str, bytes]) -> None:
    """Put files into a container that was not started."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(f"{folder.strip('/')}/{path}")
            member.size, member.mode = len(data), 0o755
            archive.addfile(member, io.BytesIO(data))
    with engine.guard(f"send files to the container {container}"):
        engine.api.put_archive(container, "/", buffer.getvalue())


def _apt(engine: Engine, container: str) -> dict[str, str]:
    simulated = (engine.read_in(container, f"{_OUT}/apt.txt") or b"").decode()
    installed = (engine.read_in(container, f"{_OUT}/installed.txt") or b"").decode()
    return parse_apt(simulated, installed)


def parse_apt(simulated: str, installed: str) -> dict[str, str]:
    """Package -> version, from `apt-get --simulate` and what was installed before."""
    found = dict(line.split("\t", 1) for line in installed.splitlines() if re.fullmatch(r"\S+\t\S+", line))
    found.update((match["name"], match["version"]) for match in _SIMULATED.finditer(simulated))
    return dict(sorted(found.items()))


def parse_uris(
    listed: str, apt: Mapping[str, str], archives: Sequence[Archive], original: Callable[[str], str]
) -> dict[str, Deb]:
    """Package -> its file, from `apt-get --print-uris`, without those of `archives`, whose snapshots last.

    original: what a URL of a mirror stands for.
    """
    own = [re.compile(rf"https?://{re.escape(one.original)}/".replace(r"\*", "[^/]+")) for one in archives]
    found: dict[str, Deb] = {}
    for match in _URI.finditer(listed):
        url = original(match["url"])
        name = next((one for one in (f"{match['name']}:{match['arch']}", match["name"]) if one in apt), "")
        if name and not any(one.match(url) for one in own):
            found[name] = Deb(url, match["sha256"])
    return dict(sorted(found.items()))


def _pip(engine: Engine, container: str, site_config: SiteConfig) -> dict[str, tuple[str, tuple[str, ...]]]:
    data = engine.read_in(container, f"{_OUT}/pip.json")
    return parse_pip(json.loads(data), lambda url: origins.download(url, site_config)) if data else {}


def parse_pip(
    report: Mapping[str, Any], checksum: Callable[[str], str]
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Package -> (version, sha256s), from an installation report (pip.pypa.io/en/stable/reference).

    checksum: fetches a URL and gives its sha256, for indexes that do not say it. Raises HostError for a
    package that did not come as a file.
    """
    from packaging.utils import canonicalize_name

    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for one in report.get("install", ()):
        facts, origin = one["metadata"], one.get("download_info", {})
        if "archive_info" not in origin:
            raise HostError(
                f"the Python package {facts['name']} does not come as a file",
                where=str(origin.get("url", "")), hint="take it from an index",
            )  # fmt: skip
        hashes = origin["archive_info"].get("hashes") or {}
        digest = str(hashes.get("sha256") or checksum(str(origin["url"]).partition("#")[0]))
        found[canonicalize_name(facts["name"])] = (str(facts["version"]), (digest,))
    return dict(sorted(found.items()))


def _unsolved(plan: Plan, log: str, site_config: SiteConfig) -> TkError:
    """Why there is no solution: without a network that is no matter of versions."""
    lines = [line for line in log.splitlines() if line.strip()]
    what = f"the packages of {plan.name} cannot be resolved"
    if away := [line for line in lines if _AWAY.search(line)]:
        return UnreachableError(
            what,
            where=plan.base.reference,
            why="\n".join(dict.fromkeys(away[-3:])),
            hint="check the network, or name proxy and mirrors in site.yaml",
        )
    causes = known_causes(lines, load_issues(site_config.recipe_folders))
    return BuildError(
        what,
        where=plan.base.reference,
        why="\n".join(lines[-12:]),
        hint="\n".join(one.advice for one in causes)
        or "check the mirrors in site.yaml; a version that is asked for may have vanished",
    )
