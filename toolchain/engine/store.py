"""The images that tk built, as an engine keeps them: find, list, pull, push, remove, and sweep up."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler import BuildError, HostError, TkError
from toolchain.engine import failures, labels
from toolchain.engine.client import Engine
from toolchain.images.plan import Plan

if TYPE_CHECKING:
    from toolchain.images.lock.uses import LockUse

_NONE = "<none>"


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image of ours: its names, id, size in bytes, creation (seconds since 1970) and labels.

    `name` is the canonical name of its recipe and `plan` the key of its plan; `stand_in` is the base that
    stood in for the recipe's, or empty.
    """

    id: str
    references: tuple[str, ...]
    size: int
    created: int
    name: str
    plan: str
    stand_in: str
    labels: Mapping[str, str]

    @property
    def state(self) -> str:
        """`built`, `stand-in` when built on another base, `untagged` when a later build took its name."""
        if not self.references:
            return "untagged"
        return "stand-in" if self.stand_in else "built"


def list_images(engine: Engine, *, untagged: bool = False) -> tuple[StoredImage, ...]:
    """All images of ours on an engine, the newest first.

    untagged: with those that lost their name to a later build, and podman's layers of builds that failed.
    """
    with engine.guard("list images"):
        found = engine.api.images(filters={"label": labels.PLAN})
    stored = (_stored(one) for one in found if not labels.is_step(one.get("Labels") or {}))
    kept = (one for one in stored if one.references or untagged)
    return tuple(sorted(kept, key=lambda one: (-one.created, one.id)))


def find_image(engine: Engine, plan: Plan) -> StoredImage | None:
    """The image that was built from exactly this plan, on exactly this base when that is a stand-in."""
    return _of_plan(engine, plan, plan.reference)


def _of_plan(engine: Engine, plan: Plan, reference: str) -> StoredImage | None:
    facts = engine.image(reference)
    own: Mapping[str, str] = ((facts or {}).get("Config") or {}).get("Labels") or {}
    if facts is None or own.get(labels.PLAN) != plan.key:
        return None
    if plan.base.stand_in and own.get(labels.BASE_ID) != (engine.image(plan.base.reference) or {}).get("Id"):
        return None
    with engine.guard("list images"):
        found = engine.api.images(filters={"label": f"{labels.PLAN}={plan.key}"})
    same = [one for one in found if one["Id"] == facts["Id"]]
    return _stored(same[0]) if same else None


def _stored(facts: Mapping[str, Any]) -> StoredImage:
    own: Mapping[str, str] = facts.get("Labels") or {}
    tags = [short(str(one)) for one in facts.get("RepoTags") or () if not str(one).startswith(_NONE)]
    return StoredImage(
        id=str(facts["Id"]),
        references=tuple(sorted(tags)),
        size=int(facts.get("Size") or 0),
        created=int(facts.get("Created") or 0),
        name=own.get(labels.NAME, ""),
        plan=own.get(labels.PLAN, ""),
        stand_in=own.get(labels.STAND_IN, ""),
        labels=dict(own),
    )


def short(reference: str) -> str:
    """A reference without what engines put in front: `docker.io/library/x` and `localhost/x` are `x`."""
    for prefix in ("docker.io/library/", "docker.io/", "localhost/"):
        if reference.startswith(prefix):
            return reference.removeprefix(prefix)
    return reference


def registry_reference(registry: str, plan: Plan) -> str:
    """What the plan's image is called in a registry (`host[:port][/path]`)."""
    return f"{registry.rstrip('/')}/{plan.reference}"


def push_image(engine: Engine, plan: Plan, registry: str) -> str:
    """Push the plan's image to a registry and return its digest there; see `push_reference`."""
    return push_reference(engine, plan.reference, registry_reference(registry, plan))


def push_reference(engine: Engine, reference: str, target: str) -> str:
    """Push an image under the name `target` and return its digest there, `sha256:...`.

    Raises HostError when the registry or the engine refuses.
    """
    repository, _, tag = target.rpartition(":")
    named = contextlib.nullcontext() if reference == target else _tagged(engine, reference, target)
    with engine.guard(f"push {target}"), named:
        digest = ""
        for one in engine.api.push(repository, tag=tag, stream=True, decode=True):
            if "error" in one:
                raise HostError(f"cannot push {target}", why=str(one["error"]), hint=_login_hint(target))
            digest = str((one.get("aux") or {}).get("Digest") or digest)
        digest = digest or _digest_of(engine, target)
    if not digest:
        raise HostError(f"{target} was pushed, but the engine does not say its digest")
    return digest


def pull_image(engine: Engine, plan: Plan, registry: str, digest: str = "") -> StoredImage | None:
    """Pull the plan's image from a registry under the plan's name; see `pull_reference`."""
    return pull_reference(engine, plan, registry_reference(registry, plan), digest)


def pull_reference(engine: Engine, plan: Plan, reference: str, digest: str = "") -> StoredImage | None:
    """Pull the plan's image as `reference`, by `digest` when one is known, and give it the plan's name.

    None when the registry does not have it. Raises HostError when it cannot be reached, or when the image is
    of a stand-in base that this engine does not have, and BuildError when what came has another digest or was
    built from another plan. What was there under the plan's name stays until the new one was checked.
    """
    repository, tag = split_reference(reference)
    source = f"{repository}@{digest}" if digest else f"{repository}:{tag}"
    if not _pulled(engine, repository, digest or tag):
        return None
    try:
        _check_pulled(engine, plan, source, digest)
    except TkError:
        _untag(engine, source)
        raise
    with engine.guard(f"name the image {plan.reference}"):
        name, _, version = plan.reference.rpartition(":")
        engine.api.tag(source, name, version, force=True)
        if not digest:
            engine.api.remove_image(source, noprune=True)
    return _of_plan(engine, plan, plan.reference)


def pull_published(engine: Engine, plan: Plan, registry: str = "") -> tuple[StoredImage | None, str]:
    """The plan's image from where it lies ready, and how it came; else None, and why it could not be had.

    It is pulled by the digest that the lock names, and then in no other way, as a tag may have been moved;
    without one by name from `registry`, unless that is not wanted or its base is a local one. Raises
    BuildError when what came is another image.
    """
    there = plan.published
    by_name = bool(registry) and there.by_name and not plan.base.stand_in
    if not there.digest and not by_name:
        return None, ""
    try:
        if not there.digest:
            found = pull_image(engine, plan, registry)
            return found, "" if found is None else f"pulled from {registry}"
        found = pull_reference(engine, plan, there.reference, there.digest)
    except HostError as error:
        return None, " ".join(str(error).split())
    source = f"{split_reference(there.reference)[0]}@{there.digest}"
    return found, f"pulled {source}" if found else f"the registry has no {source}, which tk.lock names"


def split_reference(reference: str) -> tuple[str, str]:
    """`registry:5000/name:tag` as (`registry:5000/name`, `tag`); the tag is `latest` where none is named."""
    folder, slash, last = reference.rpartition("/")
    name, _, tag = last.partition(":")
    return f"{folder}{slash}{name}", tag or "latest"


def _check_pulled(engine: Engine, plan: Plan, source: str, digest: str) -> None:
    facts = engine.image(source) or {}
    own: Mapping[str, str] = (facts.get("Config") or {}).get("Labels") or {}
    found = {str(one).rpartition("@")[2] for one in facts.get("RepoDigests") or ()}
    if digest and digest not in found:
        said = f"the engine knows it as {', '.join(sorted(found)) or 'none'}"
        raise BuildError(f"what came for {source} has another digest", why=said, hint="check the registry")
    if own.get(labels.PLAN) != plan.key:
        raise BuildError(
            f"what {source} holds was not built from this plan",
            why=f"its label {labels.PLAN} is not {plan.key}",
            hint="build it here, and push that",
        )
    base = plan.base
    if base.stand_in and own.get(labels.BASE_ID) != (engine.image(base.reference) or {}).get("Id"):
        raise HostError(
            f"{source} was built on another {base.reference} than this engine has",
            hint=f"get the image {base.reference} that it was built on, or build here",
        )


def pull_base(engine: Engine, reference: str) -> None:
    """Pull an image by its reference, with the credentials of Docker's helpers; raises HostError."""
    if not _has_pulled(engine, reference):
        raise HostError(f"cannot pull {reference}: its registry has no such image; check the name")


def _has_pulled(engine: Engine, reference: str) -> bool:
    """Pull an image by its reference; False when its registry has none."""
    repository, _, tag = reference.rpartition("@" if "@" in reference else ":")
    return _pulled(engine, repository, tag)


def _pulled(engine: Engine, repository: str, tag: str) -> bool:
    import docker.errors

    with engine.guard(f"pull {repository} {tag}"):
        try:
            for one in engine.api.pull(repository, tag=tag, stream=True, decode=True):
                if "error" in one:
                    if _is_missing(str(one["error"])):
                        return False
                    raise _not_pulled(engine, repository, tag, str(one["error"]))
        except docker.errors.APIError as error:
            if _is_missing(str(error)):
                return False
            raise
    return True


def _not_pulled(engine: Engine, repository: str, tag: str, why: str) -> HostError:
    """The error for what an engine says while it pulls: a server, the login or the engine is the trouble."""
    what = f"cannot pull {repository} {tag}"
    if found := failures.beyond(engine.endpoint, why):
        return type(found)(what, why=found.what, hint=found.hint)
    is_refused = re.search(r"unauthorized|denied|authentication|toomanyrequests|credential", why)
    hint = _login_hint(repository) if is_refused else f"see the log of the engine at {engine.endpoint}"
    return HostError(what, why=why, hint=hint)


def registry_digest(engine: Engine, reference: str) -> str:
    """The digest that an image has in its registry; empty when that says that it has no such image.

    With podman, whose socket cannot ask, the image is pulled, and nothing is said of its digest.
    """
    import docker.errors

    if engine.kind == "podman":
        _has_pulled(engine, reference)
        return ""
    with engine.guard(f"ask the registry for the digest of {reference}"):
        try:
            found = engine.api.inspect_distribution(reference)
        except docker.errors.APIError as error:
            if _is_missing(str(error)):
                return ""
            raise
    return str((found.get("Descriptor") or {}).get("digest") or "")


def _is_missing(why: str) -> bool:
    return any(one in why for one in ("manifest unknown", "not found", "does not exist", "name unknown"))


def _login_hint(registry: str) -> str:
    server = registry.partition("/")[0]
    is_named = "." in server or ":" in server or server == "localhost"  # else it is Docker Hub
    return f"check its address and `{f'docker login {server}' if is_named else 'docker login'}`"


@contextlib.contextmanager
def _tagged(engine: Engine, reference: str, target: str) -> Iterator[None]:
    """One more name for an image, taken away at the end."""
    repository, _, tag = target.rpartition(":")
    engine.api.tag(reference, repository, tag, force=True)
    try:
        yield
    finally:
        _untag(engine, target)


def _untag(engine: Engine, reference: str) -> None:
    import docker.errors

    with engine.guard(f"remove the name {reference}"), contextlib.suppress(docker.errors.NotFound):
        engine.api.remove_image(reference, noprune=True)


def _digest_of(engine: Engine, reference: str) -> str:
    repository = short(reference.rpartition(":")[0])
    for one in (engine.image(reference) or {}).get("RepoDigests") or ():
        name, _, digest = str(one).partition("@")
        if short(name) == repository:
            return digest
    return ""


def remove_images(engine: Engine, images: Iterable[StoredImage], *, force: bool = False) -> list[str]:
    """Remove images with all their names; returns the names (of nameless ones the ids).

    Raises HostError when a container uses one, unless `force`.
    """
    removed: list[str] = []
    for image in images:
        with engine.guard(f"remove the image {image.references[0] if image.references else image.id}"):
            for name in image.references or (image.id,):
                engine.api.remove_image(name, force=force)
                removed.append(name)
        for name in (engine.image(image.id) or {}).get("RepoDigests") or ():
            _untag(engine, str(name))  # of a pull by digest
    return removed


def unused_images(engine: Engine, keep: Iterable[str] = ()) -> tuple[StoredImage, ...]:
    """Images of ours that are superseded: nameless ones, and older builds of a name whose newest stays.

    `keep` are keys of plans that stay. Images that a container uses stay, too.
    """
    with engine.guard("list containers"):
        used = {str(one.get("ImageID")) for one in engine.api.containers(all=True)}
    kept = set(keep)
    newest: set[str] = set()
    found = []
    images = list_images(engine, untagged=True)
    named = {image.id: _when_named(engine, image) for image in images}
    for image in sorted(images, key=lambda one: named[one.id], reverse=True):
        is_newest = bool(image.references) and image.name not in newest
        if image.references:
            newest.add(image.name)
        if not is_newest and image.id not in used and image.plan not in kept:
            found.append(image)
    return tuple(found)


def used_by(images: Sequence[StoredImage], locks: Iterable[LockUse]) -> dict[str, Path]:
    """Ids of images that locks stand for, each with one of these.

    By their plans; where a lock's recipe was planned and none of its images is here, by the recipe.
    """
    found: dict[str, Path] = {}
    for lock in locks:
        exact = [one for one in images if one.plan in lock.plans]
        planned = {one.labels.get(labels.RECIPE) for one in exact}
        by_recipe = lock.recipes - planned
        others = [one for one in images if one.labels.get(labels.RECIPE) in by_recipe]
        found |= {one.id: lock.path for one in (*exact, *others)}
    return found


def _when_named(engine: Engine, image: StoredImage) -> tuple[str, int]:
    """When an image got its name, by which the latest build is known; podman tells only when it was made.

    An image whose steps were all cached keeps the date of the first build, so that alone would not do.
    """
    facts = engine.image(image.id) or {}
    return str((facts.get("Metadata") or {}).get("LastTagTime") or ""), image.created


def unused_steps(engine: Engine) -> list[str]:
    """Ids of nameless layers that builds without BuildKit left and no image is based on."""
    with engine.guard("look for layers without use"):
        found = engine.api.images(filters={"label": labels.PLAN, "dangling": True})
    return [str(one["Id"]) for one in found if labels.is_step(one.get("Labels") or {})]


def remove_steps(engine: Engine, identities: Iterable[str]) -> None:
    """Remove such layers; one that something has come to use stays."""
    import docker.errors

    for one in identities:
        with engine.guard("remove a layer"), contextlib.suppress(docker.errors.NotFound):
            engine.api.remove_image(one)


def abandoned_containers(engine: Engine) -> list[str]:
    """Names of containers whose process has died without removing them."""
    with engine.guard("list containers"):
        found = engine.api.containers(all=True)
    named = (
        (str((one.get("Names") or [one["Id"]])[0]).lstrip("/"), one.get("Labels") or {}) for one in found
    )
    return [name for name, own in named if labels.is_abandoned(labels.owner_of(name, own))]


def abandoned_volumes(engine: Engine) -> list[str]:
    """Names of volumes whose process has died without removing them."""
    with engine.guard("look for what was left behind"):
        found = engine.api.volumes().get("Volumes") or ()
    named = ((str(one["Name"]), one.get("Labels") or {}) for one in found)
    return [name for name, own in named if labels.is_abandoned(labels.owner_of(name, own))]


def sweep(engine: Engine) -> list[str]:
    """Remove containers and volumes whose process has died without doing so; returns their names."""
    import docker.errors

    containers = abandoned_containers(engine)
    for name in containers:
        engine.remove_container(name)
    volumes = abandoned_volumes(engine)
    for name in volumes:
        with engine.guard("remove a volume"), contextlib.suppress(docker.errors.NotFound):
            engine.api.remove_volume(name, force=True)
    return [*containers, *volumes]
