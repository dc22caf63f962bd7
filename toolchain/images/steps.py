"""The instructions of which plans are made: one function for each kind of step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolchain.data import data_directory
from toolchain.images.plan import (
    CA_SECRET,
    SITE_SECRET,
    Command,
    ContextFile,
    Copy,
    Download,
    Env,
    EnvPath,
    GitTree,
    Instruction,
    Mount,
    Pins,
    Run,
    settled,
)
from toolchain.recipes.additions import Script
from toolchain.recipes.schema import AptRepository, DownloadFile, Layer, Selector

VENV = "/opt/venv"
"""The image's own Python environment, where a layer's `pip` packages go."""
PROBES = "/usr/local/share/tk/probes"
"""Where the image keeps the programs of its smoke tests."""
FETCHED = "/fetched"
"""Where downloads lie in the stage that fetches them, below it at their final path."""
SITE_SCRIPT = "/run/tk/site.sh"
KEY_READER = "gpg"
"""The package with the program that checks fingerprints, in the stage of downloads only."""
USER_NAME, USER_ID, USER_HOME = "tk", "10000", "/home/tk"
_PACKAGE_FOLDER = f"{FETCHED}/packages"

_SCRIPT = Mount("bind", SITE_SCRIPT, source="tk/site.sh")
_SECRETS = (
    Mount("secret", f"/run/secrets/{CA_SECRET}", id=CA_SECRET),
    Mount("secret", f"/run/secrets/{SITE_SECRET}", id=SITE_SECRET),
)
_PIP_CACHE = Mount("cache", "/var/cache/tk-pip", id="tk-pip", shared=True)
_GIT_CACHE = Mount("cache", "/var/cache/tk-git", id="tk-git")
_DOWNLOADS = Mount("cache", "/var/cache/tk-downloads", id="tk-downloads", shared=True)
_COMPILER_CACHE = Mount("cache", "/var/cache/tk-ccache", id="tk-ccache", shared=True)


def step_script(name: str) -> ContextFile:
    """A program that build steps run: `site.sh` gives them what the site says."""
    path = f"tk/{name}"
    return ContextFile(path, (data_directory("dockerfiles") / path).read_bytes(), 0o755)


def pinned(packages: Sequence[str], pins: Pins) -> list[str]:
    """Packages with the versions that a lock gives them."""
    return [one if "=" in one or one not in pins.apt else f"{one}={pins.apt[one]}" for one in packages]


def site_step(step: str, *words: str) -> Command:
    """A step of site.sh: with the site's CA bundle, proxy and mirrors."""
    return ("sh", SITE_SCRIPT, step, *words)


def networked(commands: Iterable[Command], *mounts: Mount, why: str = "") -> Run:
    """A RUN whose commands may use the network."""
    return Run(tuple(commands), (_SCRIPT, *_SECRETS, *mounts), why)


def remove(paths: Sequence[str]) -> list[Instruction]:
    """Take files of the base away."""
    return (
        [Run((("rm", "-f", *paths),), why="Files of the base that would mislead a later step")]
        if paths
        else []
    )


def apt(packages: Sequence[str], system: str, why: str, *mounts: Mount) -> list[Instruction]:
    """Install packages, with caches that all images on this system share."""
    if not packages:
        return []
    caches = (
        Mount("cache", "/var/cache/apt", id=f"tk-apt-{system}"),
        Mount("cache", "/var/lib/apt/lists", id=f"tk-apt-lists-{system}"),
    )
    commands = (site_step("apt", "update"), site_step("apt", "install", *packages))
    return [networked(commands, *caches, *mounts, why=why)]


def rpm(packages: Sequence[str], why: str) -> list[Instruction]:
    """Install packages on a system that has yum."""
    if not packages:
        return []
    return [
        networked(
            (site_step("run", "yum", "install", "--assumeyes", *packages), ("yum", "clean", "all")), why=why
        )
    ]


def repositories(
    wanted: Sequence[AptRepository], pins: Pins
) -> tuple[list[Instruction], list[ContextFile], list[Download]]:
    """Sources of packages: files for apt, and their keys as downloads."""
    if not wanted:
        return [], [], []
    named = {one.key: one for one in reversed(wanted)}
    keys = [
        Download(
            url,
            settled(one.key_sha256, pins.downloads.get(url)),
            _key_path(one),
            is_key=True,
            fingerprint=one.key_fingerprint or "",
        )
        for url, one in named.items()
    ]
    key_of = {key.url: key.path for key in keys}
    steps: list[Instruction] = [Copy((f"{FETCHED}{key.path}",), key.path, "fetched") for key in keys]
    files = [ContextFile(f"apt/{one.name}.sources", _deb822(one, key_of[one.key]).encode()) for one in wanted]
    files += [
        ContextFile(f"apt/{one.name}.pref", _preference(one).encode()) for one in wanted if one.pin_origin
    ]
    for file in files:
        name = file.path.removeprefix("apt/")
        folder = "sources.list.d" if name.endswith(".sources") else "preferences.d"
        steps.append(Copy((file.path,), f"/etc/apt/{folder}/tk-{name}"))
    return steps, files, keys


def _deb822(one: AptRepository, key: str) -> str:
    fields = [
        ("Types", "deb"),
        ("URIs", one.uri),
        ("Suites", " ".join(one.suites)),
        ("Components", "" if one.suites[0].endswith("/") else " ".join(one.components)),
        ("Architectures", " ".join(one.architectures)),
        ("Signed-By", key),
    ]
    return "".join(f"{name}: {value}\n" for name, value in fields if value)


def _preference(one: AptRepository) -> str:
    return f"Package: *\nPin: release o={one.pin_origin}\nPin-Priority: {one.pin_priority or 600}\n"


def _key_path(one: AptRepository) -> str:
    return f"/etc/apt/keyrings/tk-{one.name}.asc"


def download_step(one: Download, target: str = "") -> Command:
    """Download a file to `target`, by default its place below the folder of fetched files."""
    step, pin = ("key", one.fingerprint) if one.fingerprint else ("fetch", one.sha256)
    return site_step(step, one.url, pin, target or f"{FETCHED}{one.path}")


def fetched_keys(keys: Sequence[Download], pins: Pins, system: str) -> list[Instruction]:
    """Fetch the keys of package sources; what tells one key from another is not in every base."""
    reads = pinned([KEY_READER], pins) if any(one.fingerprint for one in keys) else []
    return [
        *apt(reads, system, "What reads signing keys"),
        networked([download_step(one) for one in keys], _DOWNLOADS, why="Keys of package sources"),
    ]


def fetched_files(files: Sequence[DownloadFile], pins: Pins) -> tuple[list[Instruction], list[Download]]:
    """The RUN that fetches and unpacks the downloads of layers, and what it fetches."""
    downloads = [
        Download(one.url, settled(one.sha256, pins.downloads.get(one.url)), _archive(one)) for one in files
    ]
    commands = [
        command
        for one, download in zip(files, downloads, strict=True)
        for command in (download_step(download), *_unpack(one, f"{FETCHED}{download.path}"))
    ]
    return ([networked(commands, _DOWNLOADS)] if commands else []), downloads


def _archive(one: DownloadFile) -> str:
    return one.path if one.unpack == "no" else f"/packages/{one.url.rpartition('/')[2]}"


def _unpack(one: DownloadFile, archive: str) -> list[Command]:
    if one.unpack != "tar":
        return []
    target = f"{FETCHED}{one.path}"
    options = ("--no-same-owner", f"--strip-components={one.strip}")
    return [
        ("mkdir", "-p", target),
        ("tar", "--extract", f"--file={archive}", f"--directory={target}", *options),
        ("rm", archive),
    ]


def copy_fetched(files: Sequence[DownloadFile]) -> list[Instruction]:
    """Take what was fetched to where it belongs."""
    return [Copy((f"{FETCHED}{one.path}",), one.path, "fetched") for one in files if one.unpack != "deb"]


def install_fetched(files: Sequence[DownloadFile], system: str) -> list[Instruction]:
    """Install packages that were fetched as files."""
    packages = [f"{_PACKAGE_FOLDER}/{one.url.rpartition('/')[2]}" for one in files if one.unpack == "deb"]
    folder = Mount("bind", _PACKAGE_FOLDER, source=_PACKAGE_FOLDER, from_stage="fetched")
    return apt(packages, system, "Packages that were fetched as files", folder)


def install_python_packages(
    interpreter: str, packages: Sequence[str], requirements: str = ""
) -> tuple[Instruction, ...]:
    """The image's Python environment: without pip, and with packages' hashes checked when they are known."""
    pip = f"{VENV}/bin/python"
    mounts = [_PIP_CACHE, Mount("bind", "/run/tk/link_duplicates.py", source="tk/link_duplicates.py")]
    wanted: tuple[str, ...] = tuple(packages)
    if requirements:
        mounts.append(Mount("bind", "/run/tk/requirements.txt", source=requirements))
        wanted = ("--require-hashes", "--no-deps", "--requirement", "/run/tk/requirements.txt")
    commands = (
        site_step("run", interpreter, "-m", "venv", VENV),
        site_step("run", pip, "-m", "pip", "install", *wanted),
        site_step("run", pip, "-m", "pip", "uninstall", "--yes", "pip", "setuptools"),
        (interpreter, "/run/tk/link_duplicates.py", VENV),
    )
    return (networked(commands, *mounts, why="Python packages, in an environment of their own"),)


def python_folder(interpreter: str, folder: str, packages: Sequence[str]) -> Instruction:
    """Python packages in a folder of their own; nothing is installed that is not named."""
    pip = (interpreter, "-m", "pip", "install", "--no-deps", "--target", folder)
    return networked([site_step("run", *pip, *packages)], _PIP_CACHE, why="Python packages that it imports")


def sources(one: GitTree) -> Instruction:
    """A git tree at its commit."""
    return networked((site_step("git", one.url, one.ref, one.commit, one.path),), _GIT_CACHE, why="Sources")


def compiled(commands: Iterable[Command], why: str) -> Instruction:
    """A long build with a compiler cache that lives on when it fails."""
    return networked(commands, _COMPILER_CACHE, why=why)


def environment(layers: Sequence[Layer], first: Sequence[str] = ()) -> list[Instruction]:
    """Variables and search paths; what later layers add comes first in a path, and `first` before all."""
    pairs = {name: value for layer in layers for name, value in layer.env.items()}
    steps: list[Instruction] = [Env(tuple(pairs.items()))] if pairs else []
    for name, attribute in (("PATH", "path"), ("LD_LIBRARY_PATH", "libraries")):
        entries = tuple(first) if name == "PATH" else ()
        entries += tuple(entry for layer in reversed(layers) for entry in getattr(layer, attribute))
        if entries:
            steps.append(EnvPath(name, tuple(dict.fromkeys(entries))))
    return steps


_BACKENDS = {"nvidia": "cuda", "amd": "hip", "hygon": "hip", "intel": "level-zero", "none": "opencl"}


def device_selectors(selectors: Iterable[Selector], vendor: str) -> list[Instruction]:
    """The variable of each compiler's era that makes the stack's own devices the default."""
    backend = _BACKENDS[vendor]
    pairs = [(one.variable, one.values[backend]) for one in selectors if backend in one.values]
    return [Env(tuple(pairs))] if pairs else []


def scripts(own: Sequence[Script]) -> tuple[list[Instruction], tuple[ContextFile, ...]]:
    """Steps that run a user's scripts, one each, and the scripts as files of the context."""
    names = [f"with-{number}-{one.name}" for number, one in enumerate(own, 1)]
    files = tuple(ContextFile(f"tk/{name}", one.data, 0o755) for name, one in zip(names, own, strict=True))
    done: list[Instruction] = [
        networked(
            (site_step("run", f"/run/tk/{name}"),),
            Mount("bind", f"/run/tk/{name}", source=f"tk/{name}"),
            why=f"What --with adds: {one.name}",
        )
        for name, one in zip(names, own, strict=True)
    ]
    return done, files


def user() -> Instruction:
    """The fixed user, for whom no date gets into the image."""
    return Run(
        (site_step("user", USER_NAME, USER_ID, USER_HOME),),
        (_SCRIPT,),
        "A fixed user; who runs a container says at run time as whom",
    )
