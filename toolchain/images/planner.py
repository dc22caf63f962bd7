"""From a resolution to a plan: which stages, in which order, with which steps.

Stages: `system` is the base with its operating system's packages; `fetched` has the downloads; `packages` the
Python environment; `image` is the result. Components with a build are images of their own, whose plans are
in `needs` (see components.py) and which the last stage copies from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from toolchain.images import steps
from toolchain.images.lock import apt
from toolchain.images.plan import (
    UNRESOLVED,
    BaseImage,
    Cmd,
    ContextFile,
    Copy,
    Download,
    Entrypoint,
    EnvPath,
    From,
    Instruction,
    Label,
    Pins,
    Plan,
    Stage,
    User,
    Workdir,
    settled,
)
from toolchain.images.probes import probe_files, smoke_tests
from toolchain.recipes.schema import Layer, Release, Selector

if TYPE_CHECKING:
    from toolchain.recipes.additions import Additions
    from toolchain.recipes.resolve import Component, Resolution

SYSTEM_PYTHON = "/usr/bin/python3"
_PYTHON = "tk-python"
_MAKER = "python3-venv"
_REQUIREMENTS = "tk/requirements.txt"


class ImageMirrors(Protocol):
    """What a plan asks of a site: where an image is fetched from."""

    def mirrored_image(self, reference: str) -> str:
        """The same image at this site's mirror; empty when it has none."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What all plans of one resolution have in common."""

    resolution: Resolution
    base: BaseImage
    mirror: str

    @property
    def system(self) -> str:
        """The operating system, as `debian-12`."""
        return f"{self.resolution.system.system}-{self.resolution.system.version}"

    @property
    def interpreter(self) -> str:
        """The Python (3.11 or newer) that every image has."""
        return f"{self.resolution.prefixes[_PYTHON]}/bin/python3"


@dataclass(frozen=True, slots=True)
class OwnedLayer:
    """One layer of an image: `name` says whose it is."""

    name: str
    layer: Layer


@dataclass(frozen=True, slots=True)
class Assembly:
    """Stages and steps that put parts on a base, and what these read."""

    stages: tuple[Stage, ...]
    steps: tuple[Instruction, ...]
    files: tuple[ContextFile, ...]
    downloads: tuple[Download, ...]
    apt: tuple[str, ...]
    pip: tuple[str, ...]


def plan_image(
    resolution: Resolution,
    *,
    site: ImageMirrors | None = None,
    lock: Pins | None = None,
    base: str | None = None,
) -> Plan:
    """The plan of an image.

    lock: what a lock fixes; without it packages are those that the base's sources offer. base: a stand-in for
    the recipe's base, already in the engine; whoever builds checks that its system is the same. Raises
    BadInputError when the recipe asks for a probe that does not exist.
    """
    from toolchain.images.components import component_plans

    pins = lock or Pins()
    resolution = resolution if base is not None else with_base(resolution, pins.base_reference)
    start = _base(resolution, pins, base)
    mirror = site.mirrored_image(start.pinned) if site and base is None else ""
    setting = Setting(resolution, start, mirror)
    return _plan(setting, pins, component_plans(setting, pins))


def with_base(resolution: Resolution, reference: str) -> Resolution:
    """The resolution on the fallback of its base that is called so; as it is when none is."""
    for one in resolution.fallbacks:
        if one.base.reference == reference:
            return replace(resolution, base=one.base, stack=replace(resolution.stack, layer=one.layer))
    return resolution


def _base(resolution: Resolution, pins: Pins, stand_in: str | None) -> BaseImage:
    system = f"{resolution.system.system}-{resolution.system.version}"
    if stand_in is not None:
        return BaseImage(stand_in, os=system, stand_in=True)
    return BaseImage(resolution.base.reference, settled(resolution.base.digest, pins.base_digest), system)


def _plan(setting: Setting, pins: Pins, needs: tuple[Plan, ...]) -> Plan:
    resolution = setting.resolution
    parts = [OwnedLayer(f"{resolution.stack.kind} {resolution.stack.version}", resolution.stack.layer)]
    parts += [part_of(one) for one in resolution.components]
    parts += _added(resolution.additions)
    scripts, script_files = steps.scripts(resolution.additions.scripts)
    assembly = assemble(setting, parts, pins, setting.interpreter)
    layers = [resolution.system_layer, *(one.layer for one in parts)]
    probes = probe_files(layers, resolution.name)
    labels = _labels(setting)
    last: list[Instruction] = [From("system", "image"), *assembly.steps]
    for need in needs:
        last += [Copy((path,), path, need.reference) for path in need.provides]
    if probes:
        last.append(Copy(tuple(one.path for one in probes), f"{steps.PROBES}/"))
    last += steps.environment(layers)
    last += steps.device_selectors(_selectors(resolution), resolution.vendor)
    last += [EnvPath("PYTHONPATH", (one,)) for need in needs for one in need.python_paths]
    last += [*scripts, Label(labels), User(f"{steps.USER_ID}:{steps.USER_ID}")]
    # Nothing of a vendor's own stands between who runs the image and its program: NVIDIA's prints a banner.
    last += [Workdir(steps.USER_HOME), Entrypoint(()), Cmd(("bash",))]
    return Plan(
        name=resolution.name,
        repository=f"tk/{resolution.stack.kind}",
        tag=_tag(resolution),
        base=setting.base,
        stages=(*assembly.stages, Stage("image", tuple(last), f"The image: {resolution.title}")),
        files=(*assembly.files, *probes, *script_files),
        downloads=assembly.downloads,
        apt=assembly.apt,
        pip=assembly.pip,
        smoke=smoke_tests(layers),
        needs=needs,
        labels=labels,
        resolution=resolution,
    )


def _added(wanted: Additions) -> list[OwnedLayer]:
    """What a user adds beside the recipe, as one more layer."""
    if not wanted.apt and not wanted.pip:
        return []
    path = (f"{steps.VENV}/bin",) if wanted.pip else ()
    return [OwnedLayer("what --with adds", Layer(apt=wanted.apt, pip=wanted.pip, path=path))]


def part_of(component: Component) -> OwnedLayer:
    """The layer of a component."""
    return OwnedLayer(f"{component.kind} {component.version}", component.layer)


def assemble(setting: Setting, parts: Sequence[OwnedLayer], pins: Pins, interpreter: str) -> Assembly:
    """What puts `parts` on the base: package sources, packages, downloads and the Python environment.

    interpreter: the Python that the environment is made with.
    """
    layers = [setting.resolution.system_layer, *(one.layer for one in parts)]
    downloads = tuple(one for layer in layers for one in layer.downloads)
    wanted = tuple(dict.fromkeys(one for layer in layers for one in layer.pip))
    sources = [one for layer in layers for one in layer.repositories]
    source_steps, source_files, keys = steps.repositories(sources, pins)
    fetch_steps, fetched = steps.fetched_files(downloads, pins)
    requirements = _requirements(wanted, pins)
    scripts = ["site.sh", *(["link_duplicates.py"] if wanted else [])]
    stages = [_system_stage(setting, pins)]
    if keys or downloads:
        stages.append(_fetched_stage(setting, pins, keys, fetch_steps))
    makers = (_MAKER,) if wanted and interpreter == SYSTEM_PYTHON else ()
    readers = (steps.KEY_READER,) if any(one.fingerprint for one in keys) else ()
    if wanted:
        own = [one for one in downloads if one.path == interpreter.removesuffix("/bin/python3")]
        first = [*steps.copy_fetched(own), *_apt(setting, pins, makers, "What makes Python environments")]
        stages.append(_packages_stage(wanted, requirements, interpreter, first))
    done: list[Instruction] = list(source_steps)
    for part in parts:
        if part.layer is not setting.resolution.stack.layer:  # the system's stage has done that
            done += steps.remove(part.layer.remove)
        done += _apt(setting, pins, part.layer.apt, f"Packages of {part.name}")
        done += steps.rpm(part.layer.rpm, f"Packages of {part.name}")
    done += steps.copy_fetched(downloads)
    done += steps.install_fetched(downloads, setting.system)
    if wanted:
        done.append(Copy((steps.VENV,), steps.VENV, "packages"))
    locked = apt.lock_files(pins, setting.resolution.system.archives)
    return Assembly(
        stages=tuple(apt.obeying_stage(one, locked) for one in stages),
        steps=apt.obeying(done, locked),
        files=(*map(steps.step_script, scripts), *requirements, *source_files, *locked),
        downloads=(*keys, *fetched),
        apt=tuple(dict.fromkeys((*(one for layer in layers for one in layer.apt), *makers, *readers))),
        pip=wanted,
    )


def _selectors(resolution: Resolution) -> list[Selector]:
    rows = [one.row for one in resolution.components]
    return [row.selector for row in rows if isinstance(row, Release) and row.selector is not None]


def _system_stage(setting: Setting, pins: Pins) -> Stage:
    layer = setting.resolution.system_layer
    done: list[Instruction] = [From(setting.base.pinned, "system", setting.mirror)]
    done += steps.remove(setting.resolution.stack.layer.remove)
    done += _apt(setting, pins, layer.apt, f"Packages of every image on {setting.system}")
    return Stage("system", (*done, steps.user()), f"The base: {setting.base.reference}")


def _fetched_stage(
    setting: Setting, pins: Pins, keys: Sequence[Download], fetch_steps: Sequence[Instruction]
) -> Stage:
    first: list[Instruction] = [From("system", "fetched")]
    if keys:
        first += steps.fetched_keys(keys, pins, setting.system)
    return Stage("fetched", (*first, *fetch_steps), "Downloads, each checked by its sha256")


def _apt(setting: Setting, pins: Pins, packages: Sequence[str], why: str) -> list[Instruction]:
    return steps.apt(steps.pinned(packages, pins), setting.system, why)


def _packages_stage(
    packages: Sequence[str],
    requirements: Sequence[ContextFile],
    interpreter: str,
    first: Sequence[Instruction],
) -> Stage:
    path = requirements[0].path if requirements else ""
    done = steps.install_python_packages(interpreter, packages, path)
    return Stage(
        "packages", (From("system", "packages"), *first, *done), "The image's own Python environment"
    )


def _requirements(wanted: Sequence[str], pins: Pins) -> tuple[ContextFile, ...]:
    """Every locked package with its hashes, as pip checks them; nothing when there is no lock."""
    if not wanted or not pins.pip:
        return ()
    lines = [
        " ".join([f"{name}=={version}", *(f"--hash=sha256:{one}" for one in sorted(hashes))])
        for name, (version, hashes) in sorted(pins.pip.items())
    ]
    return (ContextFile(_REQUIREMENTS, "".join(f"{line}\n" for line in lines).encode()),)


def _tag(resolution: Resolution) -> str:
    """What follows `tk/<stack>:`: version and components, and the archs where something bakes them."""
    own = [resolution.stack.version, *(f"{one.kind}-{one.version}" for one in visible(resolution))]
    added = [f"with-{resolution.additions.digits}"] if resolution.additions else []
    return "-".join([*own, *added, *resolution.baked_archs])


def visible(resolution: Resolution) -> list[Component]:
    """The components that somebody asked for; others come by themselves and are not in names."""
    return [one for one in resolution.components if f"+{one.kind}" in resolution.name]


def _labels(setting: Setting) -> tuple[tuple[str, str], ...]:
    resolution = setting.resolution
    parts = [resolution.stack, *resolution.components]
    digest = () if setting.base.digest == UNRESOLVED else (("base.digest", setting.base.digest),)
    standard = (
        ("title", resolution.name),
        ("description", resolution.title),
        ("base.name", setting.base.reference),
        *digest,
    )
    own = (
        ("tk.recipe", resolution.recipe_hash),
        ("tk.components", " ".join(f"{one.kind}={one.version}" for one in parts)),
        *((("tk.archs", " ".join(resolution.baked_archs)),) if resolution.baked_archs else ()),
        *((("tk.allowed", " ".join(resolution.allowed)),) if resolution.allowed else ()),
        *((("tk.with", resolution.additions.label),) if resolution.additions else ()),
    )
    return (*((f"org.opencontainers.image.{name}", text) for name, text in standard), *own)
