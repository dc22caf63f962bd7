"""`tk image lock`: write down what an image is built from."""

from __future__ import annotations

from typing import Annotated

import typer

from compiler import UsageError
from toolchain import console, options
from toolchain.commands.image import common

Update = Annotated[
    bool, typer.Option("--update", help="Ask for everything anew; otherwise pins that still exist are kept.")
]


def lock_command(
    name: common.Name,
    update: Update = False,
    arch: common.Archs = None,
    allow: common.Allow = None,
    base: common.Base = None,
    site: options.Site = None,
    docker_host: options.DockerHost = None,
    engine_name: options.EngineName = None,
    json: options.Json = False,
) -> None:
    """Resolve what an image's recipe leaves open and write it into the project's tk.lock.

    The base's digest, the versions of all packages (asked of apt and pip inside the base), commits and the
    sha256 of downloads. Nothing is asked when the section is up to date, unless --update is given.
    """
    from toolchain.engine.build import check_base
    from toolchain.engine.client import open_engine
    from toolchain.engine.endpoint import resolve_endpoint
    from toolchain.images.lock import Lock, consult, lock_path, read_lock, write_lock
    from toolchain.images.locking import changes, lock_plan
    from toolchain.images.named import plan_named
    from toolchain.images.planner import plan_image

    named = plan_named(name, site_file=site, archs=arch or (), allow=allow or (), base=base, lock=None)
    resolution = named.plan.resolution
    if resolution is None:
        raise UsageError(f"{name} has no recipe")
    for warning in named.warnings:
        console.warn(warning)
    path = lock_path()
    lock = read_lock(path) or Lock()
    section = lock.images.get(named.plan.name)
    if section is not None and not update and consult(named.plan, lock).pins is not None:
        _tell((), path_text=str(path), json=json, written=False)
        return
    engine = open_engine(resolve_endpoint(docker_host, kind=engine_name), kind=engine_name)
    check_base(engine, named.plan)
    new = lock_plan(
        engine,
        named.plan,
        named.site,
        lambda pins: plan_image(resolution, site=named.site, base=base, lock=pins),
        keep=None if update or section is None else section.pins,
        say=lambda text: console.talk(f"resolving {text}"),
    )
    written = write_lock(path, lock.with_image(named.plan.name, new))
    _tell(
        changes(section.pins if section else None, new.pins), path_text=str(path), json=json, written=written
    )


def _tell(found: tuple[object, ...], *, path_text: str, json: bool, written: bool) -> None:
    if json:
        console.data_json({"lock": path_text, "written": written, "changes": found})
        return
    rows = [
        (getattr(one, "what", ""), getattr(one, "name", ""), getattr(one, "before", "") or "-",
         getattr(one, "after", "") or "-")
        for one in found
    ]  # fmt: skip
    if rows:
        console.data(console.table(("what", "name", "before", "after"), rows))
    console.talk(f"{path_text}: {len(rows)} changes" if written else f"{path_text} is up to date")
