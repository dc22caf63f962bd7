"""`tk image pull`: an image that somebody has pushed, by its digest when that is known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from compiler import BadInputError, HostError, UsageError
from toolchain import console, options
from toolchain.commands.image import common, target
from toolchain.progress import progress_bar

if TYPE_CHECKING:
    from toolchain.images.named import Named
    from toolchain.images.plan import Published

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def pull_command(
    name: common.Name,
    registry: target.Registry = None,
    digest: Annotated[
        str, typer.Option("--digest", metavar="sha256:...", help="Exactly this image; as `push` printed it.")
    ] = "",
    selection: common.Selected = common.NO_SELECTION,
    engine: common.Engine = common.ANY_ENGINE,
    json: options.Json = False,
) -> None:
    """Pull an image from a registry: by --digest, by the digest in tk.lock, or by its name.

    Refused when what comes was built from another plan than today's, or has another digest.
    """
    from toolchain.engine.store import pull_reference

    if digest and not _DIGEST.fullmatch(digest):
        raise UsageError(f"`{digest}` is no digest", where="--digest", hint="sha256: and 64 hex digits")
    connected = target.connect(engine)
    made = target.planned(name, selection, ready=not digest)
    where = _source(made, registry, digest)
    shown = f"{where.reference}@{where.digest}" if where.digest else where.reference
    with progress_bar(f"pulling {shown}"):
        found = pull_reference(connected, made.plan, where.reference, where.digest)
    if found is None:
        raise HostError(
            f"the registry has no {shown}",
            hint=f"`tk image build {made.plan.section}` and `tk image push {made.plan.section}` put it there",
        )
    if json:
        console.data_json({"reference": made.plan.reference, "id": found.id, "digest": where.digest})
    else:
        console.data(made.plan.reference)


def _source(made: Named, registry: str | None, digest: str) -> Published:
    """Where the image comes from: what is typed counts more than the lock, and that more than the site."""
    from toolchain.engine.store import registry_reference
    from toolchain.images.plan import Published

    named = made.plan.published
    wanted = digest or named.digest
    if not wanted and not named.by_name:
        raise BadInputError(
            f"the lock names no image of {made.plan.section}, and --frozen was given",
            hint="`tk image push` writes the digest into tk.lock; or name one: --digest sha256:...",
        )
    if wanted and not digest and not registry:
        return named
    return Published(registry_reference(target.registry_of(made.site, registry), made.plan), wanted)
