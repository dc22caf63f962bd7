"""`tk image build`: from a recipe to an image on an engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from compiler import UsageError, did_you_mean
from toolchain import console, options
from toolchain.commands.image import common, target

if TYPE_CHECKING:
    from toolchain.engine.build import BuiltImage
    from toolchain.engine.client import Engine
    from toolchain.images.plan import Plan

_NETWORKS = ("default", "none", "host")
Builder = Annotated[
    str,
    typer.Option("--builder", metavar="NAME", help="auto, buildkit, or classic (without BuildKit)."),
]


def build_command(
    name: common.Name,
    base: common.Base = None,
    engine: options.EngineName = None,
    docker_host: options.DockerHost = None,
    site: options.Site = None,
    arch: common.Archs = None,
    allow: common.Allow = None,
    with_apt: common.WithApt = None,
    with_pip: common.WithPip = None,
    with_file: common.WithFile = None,
    locked: options.Locked = False,
    frozen: options.Frozen = False,
    trust_on_first_use: options.TrustOnFirstUse = False,
    builder: Builder = "auto",
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Run every step, also when the image is there.")
    ] = False,
    cache_from: Annotated[
        list[str] | None,
        typer.Option("--cache-from", metavar="SOURCE", help="Docker's: an image or cache; repeatable."),
    ] = None,
    cache_to: Annotated[
        list[str] | None,
        typer.Option("--cache-to", metavar="TARGET", help="Docker's: where the cache goes; repeatable."),
    ] = None,
    network: Annotated[
        str, typer.Option("--network", metavar="NAME", help="Of every step: default, none or host.")
    ] = "default",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Build an image, its components first; at once when nothing has changed.

    What no lock pins is locked first: in the project's tk.lock, or in your own outside of a project. An image
    that the lock names is pulled by its digest instead, and checked, when it is of the same plan. Its
    reference goes to standard output. The exit code is 5 when a step of the build fails.
    """
    from toolchain.engine.build import BuildOptions
    from toolchain.engine.builders import BUILDERS
    from toolchain.obtain import obtain

    chosen = next((one for one in BUILDERS if one == builder), None)
    if chosen is None:
        hint = did_you_mean(builder, BUILDERS) or ", ".join(BUILDERS)
        raise UsageError(f"no builder is called `{builder}`", where="--builder", hint=hint)
    if network not in _NETWORKS:
        raise UsageError(
            f"no network is called `{network}`", where="--network", hint=did_you_mean(network, _NETWORKS)
        )
    connected = target.connect(docker_host, engine)
    named = target.planned(
        name, site=site, archs=arch or (), allow=allow or (), base=base, locked=locked, frozen=frozen,
        additions=common.additions(with_apt, with_pip, with_file),
        locks=not dry_run,
    )  # fmt: skip
    if dry_run:
        _show_intent(connected, named.plan, json=json)
        return
    how = BuildOptions(
        no_cache=no_cache,
        cache_from=tuple(cache_from or ()),
        cache_to=tuple(cache_to or ()),
        network="" if network == "default" else network,
    )
    made = obtain(connected, named, trust_first_use=trust_on_first_use, builder=chosen, options=how)
    _show(made.image, json=json)


def _show(result: BuiltImage, *, json: bool) -> None:
    if json:
        console.data_json(result)
        return
    for one in (*result.needs, result):
        if one.note:
            console.warn(one.note)
    mark = f", stand-in for its base: {result.stand_in}" if result.stand_in else ""
    console.talk(f"{result.reference}: {result.how} in {result.seconds:.1f} s{mark}")
    if result.log is not None:
        console.talk(f"log: {result.log}")
    console.data(result.reference)


def _show_intent(engine: Engine, plan: Plan, *, json: bool) -> None:
    from toolchain.engine.builders import find_buildkit

    client, reasons = find_buildkit()
    with_what = "podman" if engine.kind == "podman" else f"{client.program}" if client else "classic builder"
    rows = [
        {
            "reference": one.reference,
            "name": one.name,
            "base": one.base.pinned,
            "state": _state(engine, one),
            "unresolved": [missing.what for missing in one.unresolved()],
        }
        for one in _in_order(plan)
    ]
    if json:
        facts = {"engine": str(engine.endpoint), "kind": engine.kind, "version": engine.version}
        console.data_json({**facts, "builder": with_what, "not_used": reasons, "images": rows})
        return
    console.talk(f"{engine.kind} {engine.version} at {engine.endpoint}, builds with {with_what}")
    for reason in reasons:
        console.talk(f"note: {reason}")
    header = ("image", "state", "base", "unresolved")
    cells = [(one["reference"], one["state"], one["base"], len(one["unresolved"])) for one in rows]
    console.data(console.table(header, cells))


def _state(engine: Engine, plan: Plan) -> str:
    from toolchain.engine.store import find_image

    if find_image(engine, plan):
        return "there"
    return "to be pulled" if plan.published.digest else "to be built"


def _in_order(plan: Plan) -> Iterator[Plan]:
    for need in plan.needs:
        yield from _in_order(need)
    yield plan
