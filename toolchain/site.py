"""What differs from site to site: CA bundle, proxy, mirrors, registry, own recipes, waived rules.

Read from `site.yaml` of the user (in the configuration folder that platformdirs names) and of the project
(beside `tk.lock`), or from the one file that `--site` names. Nothing in it decides what an image contains:
it says where the same things are fetched, and reaches build steps as secrets that no layer keeps. Credentials
are refused: `docker login` and its helpers keep those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from compiler import BadInputError, HostError
from toolchain.settings import certificate_settings

if TYPE_CHECKING:
    from toolchain.recipes.strict_yaml import YamlNode
    from toolchain.site_schema import SiteFile

T = TypeVar("T")

FILE_NAME = "site.yaml"
LOCK_NAME = "tk.lock"

_SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine
)
_MOST_BUNDLE_BYTES = 8 << 20
_CREDENTIAL_KEY = re.compile(
    r"(user(name)?|login|pass(word|wd)?|token|secret|auth|api_?key|credentials?)$", re.IGNORECASE
)
_CREDENTIAL_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]*@", re.IGNORECASE)
_HUB = "docker.io"


@dataclass(frozen=True, slots=True)
class Mirror:
    """What begins with `original` is fetched from `mirror` instead."""

    original: str
    mirror: str


@dataclass(frozen=True, slots=True)
class Proxy:
    """URLs of proxies, and hosts that are reached without one; empty where there is none."""

    http: str = ""
    https: str = ""
    no_proxy: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SiteConfig:
    """Everything that a site says; the default says nothing.

    `ca_bundle` is a file in PEM form and `ca_source` where its name comes from; `url_mirrors` are for
    downloads; `registry` is where the team's own images are pushed to and pulled from (`host[:port][/path]`),
    `registry_private` says that it is not open to everybody; `files` are those that were read; `local_images`
    and `offline` never are: builds from a bundle use them.
    """

    ca_bundle: Path | None = None
    ca_source: str = ""
    proxy: Proxy = field(default_factory=Proxy)
    apt_mirrors: tuple[Mirror, ...] = ()
    url_mirrors: tuple[Mirror, ...] = ()
    git_mirrors: tuple[Mirror, ...] = ()
    registry_mirrors: tuple[Mirror, ...] = ()
    local_images: tuple[Mirror, ...] = ()
    pip_index: str = ""
    pip_extra_indexes: tuple[str, ...] = ()
    registry: str = ""
    registry_private: bool = False
    recipe_folders: tuple[Path, ...] = ()
    allow: tuple[str, ...] = ()
    offline: bool = False
    files: tuple[Path, ...] = ()

    def mirrored_image(self, reference: str) -> str:
        """Where this site gets an image, with the same tag or digest; empty when it has no mirror for it."""
        for one in self.local_images:
            if one.original == reference:
                return one.mirror
        full = _full_reference(reference)
        for one in self.registry_mirrors:
            if full == one.original or full.startswith(f"{one.original}/"):
                return f"{one.mirror}{full.removeprefix(one.original)}"
        return ""

    def mirrored_url(self, url: str) -> str:
        """Where this site gets a download; the URL itself when it has no mirror for it."""
        for one in self.url_mirrors:
            if url.startswith(one.original):
                return f"{one.mirror}{url.removeprefix(one.original)}"
        return url

    def original_apt_url(self, url: str) -> str:
        """What a URL of one of this site's apt mirrors stands for; the URL itself when it is of none."""
        fitting = [one for one in self.apt_mirrors if url.startswith(one.mirror)]
        if not fitting:
            return url
        longest = max(fitting, key=lambda one: len(one.mirror))
        return f"{longest.original}{url.removeprefix(longest.mirror)}"

    def build_settings(self) -> bytes:
        """Proxy and mirrors as the `NAME=value` lines that build steps read from the secret `tk-site`."""
        indexes = [url for url in (self.pip_index, *self.pip_extra_indexes) if url.startswith("http://")]
        pairs = [
            ("http_proxy", self.proxy.http),
            ("https_proxy", self.proxy.https),
            ("no_proxy", ",".join(self.proxy.no_proxy)),
            ("PIP_INDEX_URL", self.pip_index),
            ("PIP_EXTRA_INDEX_URL", " ".join(self.pip_extra_indexes)),
            ("PIP_TRUSTED_HOST", " ".join(dict.fromkeys(urlsplit(url).netloc for url in indexes))),
            ("offline", "yes" if self.offline else ""),
            *_mirror_pairs("apt_mirror", self.apt_mirrors),
            *_mirror_pairs("url_mirror", self.url_mirrors),
            *_mirror_pairs("git_mirror", self.git_mirrors),
        ]
        return "".join(f"{name}={value}\n" for name, value in pairs if value).encode()

    def ca_certificates(self) -> bytes:
        """The CA bundle for the secret `tk-ca`; empty when there is none.

        Raises HostError when the file cannot be read or holds no certificate.
        """
        if self.ca_bundle is None:
            return b""
        try:
            data = self.ca_bundle.read_bytes()
        except OSError as error:
            raise _bad_bundle(self.ca_bundle, self.ca_source, error.strerror or str(error)) from error
        if problem := _bundle_problem(data):
            raise _bad_bundle(self.ca_bundle, self.ca_source, problem)
        return data


def load_site(option: Path | None = None, *, start: Path | None = None) -> SiteConfig:
    """The site that `option` (of `--site`) names, else the user's `site.yaml` with the project's on top.

    The project's single values replace the user's, its lists come first. `start` (by default the current
    folder) is where the project is looked for. Raises BadInputError with every problem and its file:line.
    """
    from toolchain.site_schema import problems_error

    files = [option] if option is not None else [one for one in _usual_files(start) if one.exists()]
    problems: list[tuple[str, str]] = []
    site = SiteConfig()
    for path in files:
        site = _over(site, _read(path, problems))
    if problems:
        raise problems_error(problems)
    return site if site.ca_bundle else replace(site, **_default_bundle())


def find_project(start: Path | None = None) -> Path | None:
    """The nearest folder from `start` upwards with a `tk.lock`, else with a `site.yaml`, else the repository.

    Nothing above a repository is looked at; None where there is nothing of this.
    """
    here = (start or Path.cwd()).absolute()
    seen: list[Path] = []
    for folder in (here, *here.parents):
        seen.append(folder)
        if (folder / ".git").exists():
            break
    for name in (LOCK_NAME, FILE_NAME, ".git"):
        for folder in seen:
            if (folder / name).exists():
                return folder
    return None


def project_directory(start: Path | None = None) -> Path:
    """The project's folder; `start` where there is none."""
    return find_project(start) or (start or Path.cwd()).absolute()


def user_file() -> Path:
    """The user's own `site.yaml`, whether or not it exists."""
    from platformdirs import user_config_path

    return user_config_path("tk", appauthor=False) / FILE_NAME


def _usual_files(start: Path | None) -> Iterator[Path]:
    yield user_file()
    yield project_directory(start) / FILE_NAME


def _read(path: Path, problems: list[tuple[str, str]]) -> SiteConfig:
    """One file; what is wrong is added to `problems`."""
    from toolchain.recipes.strict_yaml import read_strict
    from toolchain.site_schema import read_site_file

    try:
        node = read_strict(path)
    except BadInputError as error:
        what = error.what.replace("a recipe", "the site's configuration")
        problems.append((error.where, ": ".join(part for part in (what, error.why, error.hint) if part)))
        return SiteConfig()
    credentials = list(_credentials(node))
    if credentials:
        problems.extend(credentials)
        return SiteConfig()
    record = read_site_file(node, problems)
    return SiteConfig() if record is None else _config(path, node, record, problems)


def _credentials(node: YamlNode) -> Iterator[tuple[str, str]]:
    advice = "no credentials here: `docker login` keeps those of a registry, ~/.netrc those of pip and git"
    if isinstance(node.content, str):
        if _CREDENTIAL_URL.match(node.content):
            yield node.where, f"a URL with a user or password; {advice}"
        return
    for one in node.items():
        yield from _credentials(one)
    for key, one in node.entries().items():
        if _CREDENTIAL_KEY.search(key):
            yield f"{node.file}:{node.key_lines.get(key, node.line)}", f"`{key}`; {advice}"
        yield from _credentials(one)


def _config(path: Path, node: YamlNode, record: SiteFile, problems: list[tuple[str, str]]) -> SiteConfig:
    bundle, source = None, ""
    if record.ca_bundle:
        bundle, source = _local(path, record.ca_bundle), _where(node, "ca_bundle")
        if problem := _unusable_bundle(bundle):
            problems.append((source, f"`ca_bundle`: {bundle}: {problem}"))
    folders = tuple(_local(path, one) for one in record.recipes)
    lines = node.entries()["recipes"].items() if record.recipes else ()
    for folder, one in zip(folders, lines, strict=False):
        if not folder.is_dir():
            problems.append((one.where, f"`recipes`: {folder} is not a folder"))
    mirrors = record.mirrors
    return SiteConfig(
        ca_bundle=bundle,
        ca_source=source,
        proxy=Proxy(record.proxy.http, record.proxy.https, tuple(record.proxy.no_proxy)),
        apt_mirrors=tuple(Mirror(one.original, one.mirror) for one in mirrors.apt),
        url_mirrors=tuple(Mirror(one.original, one.mirror) for one in mirrors.url),
        git_mirrors=tuple(Mirror(one.original, one.mirror) for one in mirrors.git),
        registry_mirrors=tuple(Mirror(one.original, one.mirror) for one in mirrors.registry),
        pip_index=mirrors.pip.index,
        pip_extra_indexes=tuple(mirrors.pip.extra),
        registry=record.registry.address,
        registry_private=record.registry.private,
        recipe_folders=folders,
        allow=tuple(record.allow),
        files=(path,),
    )


def _local(path: Path, text: str) -> Path:
    """A path of a site file: `~` is the user's home, relative ones begin at the file."""
    return (path.parent / Path(text).expanduser()).absolute()


def _where(node: YamlNode, key: str) -> str:
    return f"{node.file}:{node.key_lines.get(key, node.line)}"


def _over(below: SiteConfig, above: SiteConfig) -> SiteConfig:
    own = bool(above.ca_bundle)
    return SiteConfig(
        ca_bundle=above.ca_bundle if own else below.ca_bundle,
        ca_source=above.ca_source if own else below.ca_source,
        proxy=Proxy(
            above.proxy.http or below.proxy.http,
            above.proxy.https or below.proxy.https,
            _joined(above.proxy.no_proxy, below.proxy.no_proxy),
        ),
        apt_mirrors=_mirrors(above.apt_mirrors, below.apt_mirrors),
        url_mirrors=_mirrors(above.url_mirrors, below.url_mirrors),
        git_mirrors=_mirrors(above.git_mirrors, below.git_mirrors),
        registry_mirrors=_mirrors(above.registry_mirrors, below.registry_mirrors),
        pip_index=above.pip_index or below.pip_index,
        pip_extra_indexes=_joined(above.pip_extra_indexes, below.pip_extra_indexes),
        registry=above.registry or below.registry,
        registry_private=above.registry_private or (below.registry_private and not above.registry),
        recipe_folders=_joined(above.recipe_folders, below.recipe_folders),
        allow=_joined(above.allow, below.allow),
        files=(*below.files, *above.files),
    )


def _joined(first: Sequence[T], second: Sequence[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _mirrors(first: Sequence[Mirror], second: Sequence[Mirror]) -> tuple[Mirror, ...]:
    """One for each address; the longest first, as that is the one that counts of several that fit."""
    own = {one.original: one for one in reversed((*first, *second))}
    return tuple(own[original] for original in sorted(own, key=lambda one: (-len(one), one)))


def _mirror_pairs(name: str, mirrors: Sequence[Mirror]) -> list[tuple[str, str]]:
    return [(name, f"{one.original} {one.mirror}") for one in mirrors]


def _full_reference(reference: str) -> str:
    """`ubuntu:20.04` as Docker reads it: `docker.io/library/ubuntu:20.04` (distribution/reference)."""
    first, slash, rest = reference.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return f"{_HUB}/{rest}" if first == "index.docker.io" else reference
    return f"{_HUB}/{reference}" if slash else f"{_HUB}/library/{reference}"


def _default_bundle() -> dict[str, Any]:
    """What the environment or the system says, for a site whose files name no CA bundle."""
    for name, path in certificate_settings():
        return {"ca_bundle": path, "ca_source": name}
    for text in _SYSTEM_BUNDLES:
        if Path(text).is_file():
            return {"ca_bundle": Path(text), "ca_source": "the system's"}
    return {}


def _unusable_bundle(path: Path) -> str:
    """Why a file cannot serve as CA bundle; empty when it can."""
    try:
        if not path.is_file():
            return "there is no such file"
        return _bundle_problem(path.read_bytes())
    except OSError as error:
        return error.strerror or str(error)


def _bundle_problem(data: bytes) -> str:
    if len(data) > _MOST_BUNDLE_BYTES:
        return f"it has {len(data):,} bytes; the limit is {_MOST_BUNDLE_BYTES:,}"
    if b"PRIVATE KEY-----" in data:
        return "it holds a private key"
    return "" if b"-----BEGIN CERTIFICATE-----" in data else "it holds no certificate in PEM form"


def _bad_bundle(path: Path, source: str, why: str) -> HostError:
    return HostError(
        "cannot use the CA bundle",
        where=f"{path} ({source})",
        why=why,
        hint="name a file in PEM form: `ca_bundle` in site.yaml, or SSL_CERT_FILE",
    )
