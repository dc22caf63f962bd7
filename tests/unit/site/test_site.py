"""site.yaml: what it may say, where it is looked for, what comes out for build steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compiler import BadInputError, HostError
from toolchain.site import SiteConfig, find_project, load_site, user_file

PEM = b"-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
FULL = """
ca_bundle: ca.pem
proxy:
  http: http://proxy.example.com:3128
  https: http://proxy.example.com:3128
  no_proxy: [localhost, .example.com, 10.0.0.0/8]
mirrors:
  apt:
    - {original: "http://archive.ubuntu.com/ubuntu", mirror: "http://apt.example.com/ubuntu"}
  url:
    - {original: "https://repo.radeon.com/", mirror: "https://files.example.com/radeon/"}
  git:
    - {original: "https://github.com/", mirror: "https://git.example.com/github/"}
  registry:
    - {original: docker.io, mirror: "registry.example.com:5000/hub"}
    - {original: nvcr.io/nvidia, mirror: registry.example.com/nv}
  pip:
    index: http://pip.example.com:8080/simple
    extra: [https://wheels.example.com/simple]
registry: registry.example.com:5000/team
recipes: [recipes]
allow: [cuda-floor-dpcpp]
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without configuration and an environment that names no certificates."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "SSL_CERT_FILE", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def whole(folder: Path) -> Path:
    (folder / "recipes").mkdir(parents=True)
    (folder / "ca.pem").write_bytes(PEM)
    return write(folder / "site.yaml", FULL)


def test_everything_that_can_be_said(tmp_path: Path) -> None:
    site = load_site(whole(tmp_path / "at"))
    assert site.ca_bundle == tmp_path / "at" / "ca.pem"
    assert site.ca_source.endswith("site.yaml:2")
    assert site.recipe_folders == (tmp_path / "at" / "recipes",)
    assert (site.registry, site.allow) == ("registry.example.com:5000/team", ("cuda-floor-dpcpp",))
    assert site.ca_certificates() == PEM
    assert site.build_settings().decode().splitlines() == [
        "http_proxy=http://proxy.example.com:3128",
        "https_proxy=http://proxy.example.com:3128",
        "no_proxy=localhost,.example.com,10.0.0.0/8",
        "PIP_INDEX_URL=http://pip.example.com:8080/simple",
        "PIP_EXTRA_INDEX_URL=https://wheels.example.com/simple",
        "PIP_TRUSTED_HOST=pip.example.com:8080",
        "apt_mirror=http://archive.ubuntu.com/ubuntu http://apt.example.com/ubuntu",
        "url_mirror=https://repo.radeon.com/ https://files.example.com/radeon/",
        "git_mirror=https://github.com/ https://git.example.com/github/",
    ]


@pytest.mark.parametrize(
    ("user", "project", "expected"),
    [
        ("r.example/team", None, ("r.example/team", False)),
        ("{address: r.example/team, private: true}", None, ("r.example/team", True)),
        ("{address: r.example/team, private: true}", "other.example", ("other.example", False)),
        ("r.example/team", "{private: true}", ("r.example/team", True)),
        ("{address: r.example/team}", None, ("r.example/team", False)),
    ],
)
def test_a_registry_that_is_said_to_be_private(
    user: str, project: str | None, expected: tuple[str, bool], home: Path, tmp_path: Path
) -> None:
    write(home / ".config/tk/site.yaml", f"registry: {user}\n")
    if project is not None:
        write(tmp_path / "site.yaml", f"registry: {project}\n")
    site = load_site(start=tmp_path)
    assert (site.registry, site.registry_private) == expected


@pytest.mark.parametrize(
    "text", ["{address: 'https://r.example'}", "{private: perhaps}", "[a.example]", "{host: a}"]
)
def test_a_registry_that_is_none(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as caught:
        load_site(write(tmp_path / "site.yaml", f"registry: {text}\n"))
    assert "site.yaml:1" in caught.value.where
    assert "registry" in caught.value.why


def test_nothing_said() -> None:
    assert SiteConfig().build_settings() == b""
    assert SiteConfig().ca_certificates() == b""


@pytest.mark.parametrize(
    ("reference", "mirrored"),
    [
        ("ubuntu:20.04", "registry.example.com:5000/hub/library/ubuntu:20.04"),
        ("rocm/dev-ubuntu-20.04:5.2.3", "registry.example.com:5000/hub/rocm/dev-ubuntu-20.04:5.2.3"),
        ("docker.io/a/b@sha256:00", "registry.example.com:5000/hub/a/b@sha256:00"),
        ("nvcr.io/nvidia/cuda:11.2.2", "registry.example.com/nv/cuda:11.2.2"),
        ("nvcr.io/nvidia-more/cuda:1", ""),
        ("ghcr.io/a/b:1", ""),
        ("localhost:5000/a:1", ""),
    ],
)
def test_images_from_a_mirror(tmp_path: Path, reference: str, mirrored: str) -> None:
    assert load_site(whole(tmp_path / "at")).mirrored_image(reference) == mirrored


def test_downloads_from_a_mirror(tmp_path: Path) -> None:
    site = load_site(whole(tmp_path / "at"))
    assert site.mirrored_url("https://repo.radeon.com/a.gpg") == "https://files.example.com/radeon/a.gpg"
    assert site.mirrored_url("https://example.com/a") == "https://example.com/a"


def test_of_mirrors_that_overlap_the_longest_counts(tmp_path: Path, home: Path) -> None:
    """Whatever their order and file; for one address the project's counts. Apt's steps go by the order."""
    write(
        home / ".config/tk/site.yaml",
        "mirrors:\n"
        "  url:\n    - {original: 'https://a/', mirror: 'https://m/'}\n"
        "    - {original: 'https://a/b/', mirror: 'https://n/'}\n"
        "  registry: [{original: docker.io, mirror: m}, {original: docker.io/nvidia, mirror: n}]\n"
        "  apt:\n    - {original: 'http://a/x', mirror: 'http://user'}\n"
        "    - {original: 'http://a/x/y', mirror: 'http://m/y'}\n",
    )
    write(tmp_path / "site.yaml", "mirrors: {apt: [{original: 'http://a/x', mirror: 'http://m'}]}\n")
    site = load_site(start=tmp_path)
    assert site.mirrored_url("https://a/b/c") == "https://n/c"
    assert site.mirrored_image("nvidia/cuda:1") == "n/cuda:1"
    assert "apt_mirror=http://a/x/y http://m/y\napt_mirror=http://a/x http://m\n" in (
        site.build_settings().decode()
    )
    turned = replace(site, apt_mirrors=site.apt_mirrors[::-1])
    for one in (site, turned):
        assert one.original_apt_url("http://m/y/pool/z.deb") == "http://a/x/y/pool/z.deb"
        assert one.original_apt_url("http://m/pool/z.deb") == "http://a/x/pool/z.deb"


def test_the_project_is_on_top_of_the_user(tmp_path: Path, home: Path) -> None:
    write(
        home / ".config/tk/site.yaml",
        "registry: user.example.com\nallow: [one, two]\nproxy: {http: http://u:1}\n",
    )
    project = tmp_path / "project"
    write(project / "tk.lock", "")
    write(project / "site.yaml", "registry: project.example.com\nallow: [three, one]\n")
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    site = load_site(start=below)
    assert (site.registry, site.allow) == ("project.example.com", ("three", "one", "two"))
    assert site.proxy.http == "http://u:1"
    assert site.files == (user_file(), project / "site.yaml")


def test_the_option_stands_alone(tmp_path: Path, home: Path) -> None:
    write(home / ".config/tk/site.yaml", "registry: user.example.com\n")
    other = write(tmp_path / "other.yaml", "allow: [x]\n")
    site = load_site(other, start=tmp_path)
    assert (site.registry, site.files) == ("", (other,))


def test_the_option_must_exist(tmp_path: Path) -> None:
    with pytest.raises(BadInputError):
        load_site(tmp_path / "none.yaml")


def test_a_repository_ends_the_search(tmp_path: Path) -> None:
    write(tmp_path / "tk.lock", "")
    inner = tmp_path / "repository" / "src"
    inner.mkdir(parents=True)
    (inner.parent / ".git").mkdir()
    assert find_project(inner) == inner.parent
    assert find_project(tmp_path / "repository" / "..") == tmp_path / "repository" / ".."


def test_certificates_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = tmp_path / "env.pem"
    bundle.write_bytes(PEM)
    monkeypatch.setenv("PIP_CERT", str(bundle))
    assert (load_site(start=tmp_path).ca_bundle, load_site(start=tmp_path).ca_source) == (bundle, "PIP_CERT")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gone.pem"))
    site = load_site(start=tmp_path)
    with pytest.raises(HostError) as caught:
        site.ca_certificates()
    assert "SSL_CERT_FILE" in caught.value.where


def test_the_sites_own_certificates_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gone.pem"))
    assert load_site(whole(tmp_path / "at")).ca_certificates() == PEM


def test_all_problems_at_once_each_with_its_line(tmp_path: Path, home: Path) -> None:
    user = write(home / ".config/tk/site.yaml", "registri: x\n")
    project = write(
        tmp_path / "site.yaml", "proxy:\n  http: nonsense\nallow:\n  - A B\nca_bundle: missing.pem\n"
    )
    with pytest.raises(BadInputError) as caught:
        load_site(start=tmp_path)
    text = caught.value.why
    for part in (f"{user}:1: unknown key `registri`; did you mean 'registry'?", f"{project}:2: `proxy.http`",
                 f"{project}:4: `allow.0`"):  # fmt: skip
        assert part in text
    assert caught.value.where == f"{user}:1"


def test_files_that_do_not_exist(tmp_path: Path) -> None:
    path = write(tmp_path / "s.yaml", "ca_bundle: missing.pem\nrecipes:\n  - here\n  - there\n")
    with pytest.raises(BadInputError) as caught:
        load_site(path)
    for part in (f"{path}:1: `ca_bundle`", f"{path}:3: `recipes`", f"{path}:4: `recipes`"):
        assert part in caught.value.why


def test_a_key_is_no_certificate(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(PEM + b"-----BEGIN RSA PRIVATE KEY-----\n")
    with pytest.raises(BadInputError, match="problem") as caught:
        load_site(write(tmp_path / "s.yaml", "ca_bundle: key.pem\n"))
    assert "private key" in caught.value.why
