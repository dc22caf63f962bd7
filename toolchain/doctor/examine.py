"""The list of checks, and this machine as their context."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import HostError, TkError, load_settings, run
from toolchain.doctor import accelerators, engines, host, sites, storage
from toolchain.doctor.row import Check, CheckContext, Row, problem
from toolchain.engine.choice import ANY_ENGINE, EngineChoice

if TYPE_CHECKING:
    from toolchain.devices.detect import Inventory
    from toolchain.engine.client import Engine
    from toolchain.images.named import Named

CHECKS: tuple[Check, ...] = (
    host.system,
    host.processor,
    host.memory,
    host.compilers,
    host.targets,
    engines.engine,
    engines.builder,
    engines.podman,
    engines.leftovers,
    accelerators.devices,
    accelerators.access,
    accelerators.groups,
    accelerators.specifications,
    accelerators.hygon_libraries,
    engines.images,
    accelerators.fit,
    storage.space,
    storage.caches,
    sites.check_site,
    sites.logins,
    sites.lock,
)
"""In the order in which they are shown; a check is a function from a context to rows."""
_PROGRAM_SECONDS = 10.0


def run_checks(context: CheckContext, checks: Sequence[Check] = CHECKS) -> tuple[Row, ...]:
    """All rows; a check that fails itself becomes a row, too."""
    rows: list[Row] = []
    for check in checks:
        try:
            rows += check(context)
        except (TkError, OSError) as error:
            rows.append(_broken(check, error))
    return tuple(rows)


def _broken(check: Check, error: TkError | OSError) -> Row:
    about = check.__name__.replace("_", " ")
    if isinstance(error, TkError):
        return problem(about, error, "warning")
    return Row(about, "warning", "cannot be looked at", error.strerror or str(error), "check the permissions")


def this_machine(
    names: Sequence[str] = (),
    *,
    engine: EngineChoice = ANY_ENGINE,
    site: Path | None = None,
    assumed: Path | None = None,
) -> CheckContext:
    """This machine with its engine; `names` are images that it should fit, by default those of the lock."""
    from toolchain.devices.host_facts import this_caller
    from toolchain.settings import engine_settings

    opened = _engine(engine)
    return CheckContext(
        root=Path("/"),
        engine=opened,
        endpoint=engine.docker_host or "",
        inventory=_inventory(opened, assumed),
        caller=this_caller(),
        settings=engine_settings(),
        cache=load_settings().cache_dir,
        free=lambda folder: shutil.disk_usage(folder).free,
        which=shutil.which,
        version_of=_version,
        images=tuple((one, _named(one, site)) for one in names or _locked()),
        site=site,
    )


def _engine(choice: EngineChoice) -> Engine | TkError:
    from toolchain.engine.client import open_chosen

    try:
        return open_chosen(choice)
    except TkError as error:
        return error


def _inventory(engine: Engine | TkError, assumed: Path | None) -> Inventory | TkError:
    """What the engine's machine has; without an engine, what this one has."""
    from toolchain.containers import host_probe
    from toolchain.devices.detect import detect
    from toolchain.devices.sysroot import capture
    from toolchain.engine.store import list_images

    try:
        if assumed is not None:
            return detect(host_probe.read_captured(assumed))
        if isinstance(engine, TkError) or engine.is_local:
            return detect(capture())
        built = [one.references[0] for one in list_images(engine) if one.references]
        return detect(host_probe.look(engine, built[0] if built else None, None))
    except TkError as error:
        return error


def _named(name: str, site: Path | None) -> Named | TkError:
    from toolchain.images.named import plan_named
    from toolchain.images.selection import Selection

    try:
        return plan_named(name, Selection(site))
    except TkError as error:
        return error


def _locked() -> Sequence[str]:
    """The images of the project's lock; where it has none, of the user's own."""
    from toolchain.images.lock.file import read_lock
    from toolchain.images.lock.pins import lock_path, user_lock

    for path in (lock_path(), user_lock()):
        with contextlib.suppress(TkError):  # the check of the locks says so
            if found := read_lock(path):
                return sorted(found.images)
    return ()


def _version(program: str) -> str:
    try:
        done = run([program, "--version"], timeout=_PROGRAM_SECONDS)
    except (HostError, TkError):
        return "does not start"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0].strip() if lines else "says no version"
