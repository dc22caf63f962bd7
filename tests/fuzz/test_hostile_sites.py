"""Hostile site files: refused with file:line, or exactly what they say reaches the build, as data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compiler import BadInputError
from toolchain.site import load_site

REFUSED = {
    "a tag": "registry: !!python/object/apply:os.system [ls]\n",
    "a local tag": "registry: !x y\n",
    "a tagged mapping": "!!set {a, b}\n",
    "an anchor": "proxy: &p {http: http://a:1}\n",
    "an alias": "proxy: &p {http: http://a:1}\nmirrors: *p\n",
    "a merge key": "proxy: {<<: {http: http://a:1}}\n",
    "a duplicate key": "registry: a.example\nregistry: b.example\n",
    "a duplicate nested key": "proxy:\n  http: http://a:1\n  http: http://b:1\n",
    "an unknown key": "registrys: a.example\n",
    "an unknown nested key": "proxy:\n  ftp: http://a:1\n",
    "an unknown mirror": "mirrors: {npm: []}\n",
    "two documents": "registry: a.example\n---\nregistry: b.example\n",
    "a directive": "%YAML 1.1\n---\nregistry: a.example\n",
    "no YAML": "registry: [a\n",
    "a tab": "proxy:\n\thttp: http://a:1\n",
    "an empty file": "",
    "only a comment": "# nothing\n",
    "a list": "- registry\n",
    "a scalar": "registry\n",
    "a list for a text": "registry: [a.example]\n",
    "a text for a list": "allow: one\n",
    "a mapping for a text": "registry: {a: b}\n",
    "a list as key": "? [a]\n: b\n",
    "a byte order mark": "\ufeffregistry: a.example\n",
    "a control character": "registry: a\x07b\n",
    "an escaped control character": 'registry: "a\\x07b"\n',
    "a right-to-left override": "registry: a\u202eb\n",
    "an escaped newline": 'registry: "a.example\\nb"\n',
    "a folded newline": "proxy:\n  http: |\n    http://a:1\n    https://b:2\n",
    "no UTF-8": b"registry: \xff\xfe\n",
    "a nul byte": b"registry: a\x00b\n",
    "a huge file": "# " + "x" * 300_000 + "\nregistry: a.example\n",
    "a huge value": "registry: " + "a" * 5000 + "\n",
    "a deep nest": "mirrors: " + "[" * 40 + "]" * 40 + "\n",
    "very many values": "allow: [" + "a," * 30_000 + "]\n",
    "a password in a URL": "mirrors: {pip: {index: 'https://me:secret@pip.example.com/simple'}}\n",
    "a user in a URL": "proxy: {http: 'http://me@proxy.example.com:1'}\n",
    "a password in a mirror": "mirrors: {git: [{original: 'https://a/', mirror: 'https://x:y@b/'}]}\n",
    "a password field": "registry: a.example\npassword: x\n",
    "a user field": "proxy: {http: 'http://a:1', username: me}\n",
    "a token field": "mirrors: {pip: {index: 'https://a/simple', token: abc}}\n",
    "an auth field": "auth: {registry.example.com: abc}\n",
    "command substitution": "registry: $(id).example\n",
    "command substitution in a URL": "mirrors: {pip: {index: 'https://a/$(id)'}}\n",
    "backticks": "proxy: {http: 'http://`id`:1'}\n",
    "a variable": "proxy: {http: 'http://${HOST}:1'}\n",
    "a template": "registry: '{{ config }}'\n",
    "a template statement": "allow: ['{% raw %}']\n",
    "an option": "allow: [--privileged]\n",
    "an option as registry": "registry: --insecure\n",
    "an option as path": "ca_bundle: --help\n",
    "a semicolon": "mirrors: {apt: [{original: 'http://a/u', mirror: 'http://b/u;id'}]}\n",
    "a pipe": "mirrors: {apt: [{original: 'http://a/u|', mirror: 'http://b/u'}]}\n",
    "an ampersand": "mirrors: {apt: [{original: 'http://a/u', mirror: 'http://b/&'}]}\n",
    "a blank in a URL": "mirrors: {url: [{original: 'http://a/', mirror: 'http://b/ http://c/'}]}\n",
    "a quote": "mirrors: {git: [{original: 'https://a/', mirror: 'https://b\"/'}]}\n",
    "a bracket for gitconfig": "mirrors: {git: [{original: 'https://a/]', mirror: 'https://b/'}]}\n",
    "a backslash": "ca_bundle: 'a\\b'\n",
    "a hash": "mirrors: {pip: {index: 'https://a/simple#b'}}\n",
    "a query": "mirrors: {pip: {index: 'https://a/simple?b=c'}}\n",
    "a file URL": "mirrors: {url: [{original: 'https://a/', mirror: 'file:///etc/'}]}\n",
    "a git transport": "mirrors: {git: [{original: 'https://a/', mirror: 'ext::sh -c id/'}]}\n",
    "an ssh option": "mirrors: {git: [{original: 'https://a/', mirror: 'ssh://-oProxyCommand=id/'}]}\n",
    "a URL without host": "proxy: {https: 'http://'}\n",
    "a port that is none": "proxy: {https: 'http://a:123456'}\n",
    "half a mirror": "mirrors: {url: [{original: 'https://a/'}]}\n",
    "a slash on one side": "mirrors: {url: [{original: 'https://a/', mirror: 'https://b/c'}]}\n",
    "a registry with a scheme": "registry: https://a.example\n",
    "a registry with a tag": "registry: a.example/b:1\n",
    "a registry that climbs": "registry: a.example/../b\n",
    "capitals in a registry": "registry: a.example/Team\n",
    "a device as bundle": "ca_bundle: /dev/zero\n",
    "a folder as bundle": "ca_bundle: .\n",
    "a bundle without certificates": "ca_bundle: site.yaml\n",
    "another user's home": "ca_bundle: ~root/ca.pem\n",
    "a missing recipe folder": "recipes: [nowhere]\n",
    "a waiver with a path": "allow: [../../x]\n",
    "a comma in no_proxy": "proxy: {no_proxy: ['a,b=c']}\n",
    "a newline in no_proxy": 'proxy: {no_proxy: ["a\\nhttp_proxy=b"]}\n',
}  # fmt: skip

ACCEPTED = {
    "scalars as written": ("registry: 3.10\n", b""),
    "no as a text": ("allow: [no]\n", b""),
    "percent signs": ("mirrors: {pip: {index: 'https://a/%24(x'}}\n".replace("(x", ""), b"PIP_INDEX_URL=https://a/%24\n"),
    "a comment that ends a value": ("proxy: {http: http://a:1} # $(id)\n", b"http_proxy=http://a:1\n"),
    "a folded line": ("proxy:\n  http:\n    http://a:1\n", b"http_proxy=http://a:1\n"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_from_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "SSL_CERT_FILE", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "site.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_its_line(tmp_path: Path, case: str) -> None:
    path = write(tmp_path, REFUSED[case])
    with pytest.raises(BadInputError) as caught:
        load_site(path)
    assert re.fullmatch(re.escape(str(path)) + r":\d+", caught.value.where)
    assert caught.value.why
    assert "a recipe" not in str(caught.value)


def test_enough_of_them() -> None:
    assert len(REFUSED) >= 75


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted_as_it_stands(tmp_path: Path, case: str) -> None:
    text, settings = ACCEPTED[case]
    assert load_site(write(tmp_path, text)).build_settings() == settings


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "unreadable"])
def test_no_regular_file(tmp_path: Path, kind: str) -> None:
    import os

    path = tmp_path / "site.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadInputError) as caught:
        load_site(path)
    assert str(path) in caught.value.where
