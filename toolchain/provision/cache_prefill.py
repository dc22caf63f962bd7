"""Putting a bundle's files into the build caches of an engine, where a build without network finds them.

The caches are those that the plan's own steps mount: apt's archives and lists, pip's, and that of downloads.
A small build of nothing, on the bundle's base and without network, copies into them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import BuildError, HostError
from toolchain.images.plan import ContextFile, Mount, Pins, Plan
from toolchain.provision.bundle import (
    MANIFEST,
    Bundle,
    Say,
    bundle_folder,
    imported_bundle,
    load_images,
    normal_project,
    offline_site,
    wheels,
)

if TYPE_CHECKING:
    from toolchain.engine.client import Engine
    from toolchain.site import SiteConfig

_PIP_FOLDER = "/var/cache/tk-pip"
PIP_INDEX = f"file://{_PIP_FOLDER}/bundle/simple"
"""Where pip finds the bundle's wheels, as a static index (PEP 503)."""
_MOST_BYTES = 256 << 20
"""Of files in one build: they pass through memory."""
_PLACES = {
    "apt/archives": "/var/cache/apt/archives",
    "apt/lists": "/var/lib/apt/lists",
    "downloads": "/var/cache/tk-downloads",
}


def plan_offline(
    engine: Engine, plan: Plan, pins: Pins | None, site: SiteConfig, *, say: Say = lambda _text: None
) -> tuple[Plan, SiteConfig]:
    """The plan and the site for a build without network: those of the bundle that was imported for the plan.

    The engine gets the bundle's images, and its caches what the build fetches. Without such a bundle both are
    as given: what the caches have from earlier builds may do. Raises HostError and BadInputError.
    """
    from toolchain.engine.store import find_image
    from toolchain.images.planner import plan_image

    if plan.resolution is None or not (bundle_folder(plan) / MANIFEST).exists():
        return plan, site
    bundle = imported_bundle(plan)
    offline = offline_site(site, bundle)
    base = plan.base.reference if plan.base.stand_in else None
    again = plan_image(plan.resolution, site=offline, lock=pins, base=base)
    load_images(engine, bundle, say=say)
    if find_image(engine, again) is None:
        say(f"filling the engine's build caches from {bundle.folder}")
        prefill_caches(engine, again, bundle)
    return again, offline


def prefill_caches(engine: Engine, plan: Plan, bundle: Bundle) -> None:
    """Fill the engine's caches for a build of `plan`.

    Raises HostError without BuildKit, whose caches these are, and BuildError when the copying fails.
    """
    from toolchain.engine import builders

    client, reasons = builders.find_buildkit()
    if engine.kind != "docker" or client is None:
        raise HostError(
            "building from a bundle needs BuildKit, whose caches it fills",
            why="; ".join(reasons) or f"the engine is {engine.kind}",
            hint="use Docker, and install docker-buildx-plugin",
        )
    reference = f"tk-bundle/prefill:{plan.key[:12]}"
    try:
        for part in _parts(bundle):
            files = (ContextFile("Dockerfile", _dockerfile(plan, bundle, part).encode()), *part)
            request = builders.BuildRequest(reference=reference, files=files, no_cache=True, network="none")
            log: list[str] = []
            failure = builders.build_with_buildkit(engine, client, request, lambda _event: None, log)
            if failure is not None:
                raise BuildError(
                    "cannot fill the engine's build caches", why="\n".join([*log[-8:], failure.why])
                )
    finally:
        _forget(engine, reference)


def _forget(engine: Engine, reference: str) -> None:
    if engine.image(reference) is not None:
        with engine.guard(f"remove the image {reference}"):
            engine.api.remove_image(reference, force=True)


def _dockerfile(plan: Plan, bundle: Bundle, part: tuple[ContextFile, ...]) -> str:
    """Copies each folder of the context's `prefill` to its path, where a cache of the plan is mounted."""
    caches = _caches(plan)
    targets = sorted({f"/{one.path.removeprefix('prefill/').rpartition('/')[0]}" for one in part})
    used = [mount for mount in caches if any(target.startswith(mount.target) for target in targets)]
    mounts = [_option(mount) for mount in used]
    copies = [
        f"mkdir -p {shlex.quote(one)} && cp -R {shlex.quote(f'/prefill{one}/.')} {shlex.quote(f'{one}/')}"
        for one in targets
        if _is_cached(one, used)
    ]
    words = " ".join(
        [*mounts, "--mount=type=bind,source=prefill,target=/prefill", " && ".join(copies) or "true"]
    )
    return f"FROM {bundle.manifest.base_image.reference}\nRUN {words}\n"


def _option(mount: Mount) -> str:
    sharing = "shared" if mount.shared else "locked"
    return f"--mount=type=cache,id={mount.id},sharing={sharing},target={mount.target}"


def _is_cached(target: str, caches: list[Mount]) -> bool:
    return any(target == one.target or target.startswith(f"{one.target}/") for one in caches)


def _caches(plan: Plan) -> list[Mount]:
    """The caches that the plan's steps mount, each once."""
    found = {one.target: one for run in plan.runs() for one in run.mounts if one.kind == "cache"}
    return list(found.values())


def _parts(bundle: Bundle) -> Iterator[tuple[ContextFile, ...]]:
    """The bundle's files at their places in the caches, in parts that fit into memory."""
    part: list[ContextFile] = []
    size = 0
    for place, path in _placed(bundle):
        data = path.read_bytes()
        if part and size + len(data) > _MOST_BYTES:
            yield tuple(part)
            part, size = [], 0
        part.append(ContextFile(f"prefill{place}", data))
        size += len(data)
    index = tuple(_index(bundle))
    if part or index:
        yield (*part, *index)


def _placed(bundle: Bundle) -> Iterator[tuple[str, Path]]:
    for folder, place in _PLACES.items():
        for path in sorted((bundle.folder / folder).rglob("*")):
            if path.is_file():
                yield f"{place}/{path.relative_to(bundle.folder / folder).as_posix()}", path
    for path in wheels(bundle):
        yield f"{_PIP_FOLDER}/bundle/wheels/{path.name}", path


def _index(bundle: Bundle) -> Iterator[ContextFile]:
    """A page for each project that links to its files."""
    projects: dict[str, list[str]] = {}
    for path in wheels(bundle):
        projects.setdefault(normal_project(path.name), []).append(path.name)
    for name, files in sorted(projects.items()):
        links = "".join(f'<a href="../../wheels/{file}">{file}</a>\n' for file in sorted(files))
        page = f"<!DOCTYPE html>\n<html><body>\n{links}</body></html>\n"
        yield ContextFile(f"prefill{_PIP_FOLDER}/bundle/simple/{name}/index.html", page.encode())
