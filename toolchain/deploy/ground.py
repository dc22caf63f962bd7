"""What a package's image stands on: a base with a vendor's runtime, and what its container is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler import DynamicNeeds, UsageError, stream_atomic, visible
from toolchain.deploy.base import BaseContents, SavedImage, contents_of, read_base
from toolchain.deploy.library import PackagedLibrary
from toolchain.deploy.texts import filled
from toolchain.devices.arch import Vendor
from toolchain.devices.elsewhere import option_words, options_elsewhere
from toolchain.devices.options import RunOption
from toolchain.devices.privileges import TEMPORARY
from toolchain.engine.client import Engine
from toolchain.images.named import plan_named
from toolchain.provision.present import need_present

ENGINES = ("docker", "podman")
WRITABLE = TEMPORARY
"""Home and place for temporary files of the model's container: a file system in memory."""
_LEAST = (
    RunOption("network", "none", "the model needs no network"),
    RunOption("read-only", "", "nothing in the image is written to"),
    RunOption("cap-drop", "ALL", "neither model nor runtime needs a capability of root"),
    RunOption("security-opt", "no-new-privileges", "no program in the image makes its user root"),
    RunOption(
        "tmpfs", f"{WRITABLE}:rw,nosuid,nodev,exec,mode=1777", "drivers keep kernels that they compile there"
    ),
)


@dataclass(frozen=True, slots=True)
class Runtime:
    """Of a library's target: whose accelerators it runs on, None for the processor, and the image to take."""

    vendor: Vendor | None
    image: str


@dataclass(frozen=True, slots=True)
class Ground:
    """A base, and whose accelerators a container on it is given; None for those of nobody."""

    base: SavedImage
    vendor: Vendor | None

    def options(self, engine: str) -> tuple[RunOption, ...]:
        """All that a container needs, of `docker` or `podman`; values are words for a shell."""
        return (*_LEAST, *options_elsewhere(self.vendor, engine))

    def commands(self) -> Mapping[str, str]:
        """The options by engine, as words for a shell; once where they are the same."""
        said = {one: " ".join(option_words(option) for option in self.options(one)) for one in ENGINES}
        return said if len({*said.values()}) > 1 else {ENGINES[0]: said[ENGINES[0]]}


def read_ground(
    text: str, runtime: Runtime, architecture: str, folder: Path, engine: Engine | None
) -> Ground:
    """The base that `--base` names: an archive, a layout, an image of the engine, or one of `tk image list`.

    An image of an engine is saved to `folder`. Raises HostError where the engine has none, BadInputError for
    a file that is no image, UsageError for one of another machine.
    """
    path = Path(text)
    if engine is None:
        base = read_base(path, path.name, architecture)
    else:
        reference = text if engine.image(text) is not None else _of_recipe(engine, text)
        base = read_base(_saved(engine, reference, folder / "base.tar"), reference, architecture)
    if base.architecture != architecture:
        raise UsageError(
            "the base is for another machine than the library",
            where=f"--base {text}",
            why=f"it is for {base.architecture or 'an unnamed one'}, the library for {architecture}",
            hint="name a base for the same machine, or compile for that of the base",
        )
    return Ground(base, runtime.vendor)


def is_file(text: str) -> bool:
    """Whether a base is an archive or a layout, for which no engine is needed."""
    return Path(text).exists()


def _of_recipe(engine: Engine, name: str) -> str:
    return need_present(engine, plan_named(name)).reference


def _saved(engine: Engine, reference: str, path: Path) -> Path:
    with engine.guard(f"save the image {reference}"), stream_atomic(path) as stream:
        for chunk in engine.api.get_image(reference):
            stream.write(chunk)
    return path


def image_readme(library: PackagedLibrary, ground: Ground, reference: str, *, has_sample: bool) -> str:
    """What stands in the image of how it is run."""
    last = " --check" if has_sample else " --describe"
    commands = ground.commands()
    rows = [
        f"| `{option_words(one)}` | {one.reason} | {one.source} |"
        for engine in commands
        for one in ground.options(engine)
    ]
    words = {
        "BASE": visible(ground.base.name).replace("`", "'"),
        "DIGEST": ground.base.digest,
        "COMMANDS": "\n".join(
            f"    {one} run --rm {said} {reference}{last}" for one, said in commands.items()
        ),
        "OPTIONS": "\n".join(["| option | why | source |", "|---|---|---|", *dict.fromkeys(rows)]),
    }
    return filled("README.image.md.in", library, words)


def check_ground(ground: Ground, library: PackagedLibrary, runner: DynamicNeeds) -> None:
    """Raise UsageError with everything that library and runner need and the base lacks."""
    contents = contents_of(ground.base)
    if contents.complete and (lacks := list(_lacks(contents, (library.needs, runner)))):
        raise UsageError(
            "the base lacks what the library needs",
            where=f"--base {ground.base.name}",
            why="\n".join(lacks),
            hint="name a newer base; or compile in an image like it (`tk compile --image`) and package there",
        )


def _lacks(contents: BaseContents, needs: Sequence[DynamicNeeds]) -> Iterator[str]:
    for name in sorted({name for one in needs for name in one.libraries} - contents.names):
        yield f"it has no {name}"
    wanted: dict[str, tuple[int, ...]] = {}
    for one in needs:
        for family, version in one.versions.items():
            wanted[family] = max(version, wanted.get(family, ()))
    for family, version in sorted(wanted.items()):
        offered = contents.versions.get(family)
        if offered is not None and offered < version:
            yield f"it has {family} {_text(offered)}, the library needs {_text(version)}"


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
