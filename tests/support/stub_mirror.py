"""One HTTP server in place of the whole internet: apt repositories, a Python index, git trees and downloads.

Everything in it is a stub that was made here. `https://host/path` is served as `/apt/host/path`,
`/url/host/path` and `/git/host/path`, which a site's mirrors name; the Python index is `/pypi/simple/`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import io
import os
import subprocess
import tarfile
import threading
import urllib.parse
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.stub_programs import CMAKE
from toolchain.site import Mirror, SiteConfig

_PACKAGES = "main/binary-amd64/Packages"


@dataclass(slots=True)
class StubMirror:
    """What is served: `downloads` by URL, apt packages and wheels by name, git trees by URL.

    `installed` are packages that a base has for real: their stubs are older, so that they stay; all others
    are newer than what real packages break. `newer` are those of which the archives have another version by
    now; `past` has what was offered below a path when a snapshot was taken: package -> (version, bytes).
    """

    folder: Path
    port: int = 0
    downloads: dict[str, bytes] = field(default_factory=dict)
    packages: dict[str, bytes] = field(default_factory=dict)
    wheels: dict[str, bytes] = field(default_factory=dict)
    commits: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    installed: frozenset[str] = frozenset()
    newer: set[str] = field(default_factory=set)
    past: dict[str, dict[str, tuple[str, bytes]]] = field(default_factory=dict)

    def site(self, host: str) -> SiteConfig:
        """The site that has nothing but this mirror, which it reaches as `host`."""
        here = f"http://{host}:{self.port}"

        def instead(kind: str) -> tuple[Mirror, ...]:
            return (Mirror("https://", f"{here}/{kind}/"),)

        return SiteConfig(
            apt_mirrors=instead("apt"),
            url_mirrors=instead("url"),
            git_mirrors=instead("git"),
            pip_index=f"{here}/pypi/simple/",
        )

    def sha256(self, url: str) -> str:
        return hashlib.sha256(self.downloads[url]).hexdigest()

    def version(self, package: str) -> str:
        if package in self.newer:
            return "99.1~stub"
        return "0~stub" if package in self.installed else "99~stub"

    def take_snapshot(self, path: str) -> None:
        """From now on what is below `path`, without `https://`, stays as it is."""
        self.past[path] = dict(self._offered(""))

    def supersede(self, name: str) -> None:
        """The archives get another version of a package, and have the old one no longer."""
        self.newer.add(name)
        del self.packages[name]
        self.add_packages([name])

    def add_packages(self, names: Iterable[str]) -> None:
        """Empty Debian packages."""
        for name in sorted({one.partition("=")[0] for one in names} - set(self.packages)):
            root = self.folder / "deb" / name
            (root / "DEBIAN").mkdir(parents=True, exist_ok=True)
            (root / "DEBIAN" / "control").write_text(
                f"Package: {name}\nVersion: {self.version(name)}\nArchitecture: all\n"
                "Maintainer: nobody <nobody@invalid>\nDescription: stub\n"
            )
            target = root.with_suffix(".deb") if "." not in name else root.parent / f"{name}.deb"
            _call("dpkg-deb", "--build", "--root-owner-group", "-Zgzip", "-z1", root, target)
            self.packages[name] = target.read_bytes()

    def add_wheels(self, requirements: Iterable[str]) -> None:
        """Wheels with nothing in them; that of cmake has a program that notes what it is asked."""
        for requirement in set(requirements):
            name, _, version = requirement.partition("==")
            scripts = {"cmake": CMAKE} if name == "cmake" else {}
            stem = f"{name.replace('-', '_')}-{version or '1'}"
            self.wheels[f"{stem}-py3-none-any.whl"] = _wheel(name, version or "1", stem, scripts)

    def add_tree(self, url: str, ref: str, files: Mapping[str, str]) -> None:
        """A git repository with one commit, that `ref` names as branch and as tag alike."""
        work = self.folder / "work" / hashlib.sha256(f"{url} {ref}".encode()).hexdigest()[:12]
        for name, text in files.items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text)
        bare = self._bare(url)
        git = functools.partial(_call, "git", "-C", work, "-c", "user.name=n", "-c", "user.email=n@invalid")
        git("init", "--quiet", "--initial-branch", "stub")
        git("add", ".")
        git("commit", "--quiet", "--message", f"stub of {ref}")
        if not bare.exists():
            _call("git", "init", "--quiet", "--bare", bare)
        git("push", "--quiet", bare, f"stub:refs/heads/{ref}")
        _call("git", "-C", bare, "update-server-info")
        self.commits[f"{url} {ref}"] = git("rev-parse", "HEAD").strip()

    def _bare(self, url: str) -> Path:
        return self.folder / "git" / url.removeprefix("https://")

    def answer(self, path: str) -> bytes | None:
        """The bytes behind a path; None when nothing is there."""
        self.asked.append(path)
        kind, _, rest = urllib.parse.unquote(path.partition("?")[0]).lstrip("/").partition("/")
        if kind == "url":
            return self.downloads.get(f"https://{rest}")
        if kind == "apt":
            return self._apt(rest)
        if kind == "pypi":
            return self._pypi(rest)
        file = self.folder / "git" / rest
        return file.read_bytes() if kind == "git" and ".." not in rest and file.is_file() else None

    def _pypi(self, rest: str) -> bytes | None:
        if rest.startswith("files/"):
            return self.wheels.get(rest.removeprefix("files/"))
        name = rest.removeprefix("simple/").strip("/").replace("_", "-")
        own = [one for one in self.wheels if one.partition("-")[0].replace("_", "-") == name]
        links = "".join(f'<a href="/pypi/files/{one}">{one}</a>' for one in own)
        return f"<!DOCTYPE html><html><body>{links}</body></html>".encode() if own else None

    def _apt(self, rest: str) -> bytes | None:
        offered = self._offered(rest)
        if rest.endswith(".deb"):
            found = offered.get(rest.rpartition("/")[2].removesuffix(".deb"))
            return None if found is None else found[1]
        if rest.endswith(_PACKAGES):
            return _list(offered)
        if rest.endswith("/InRelease"):
            return self._release(rest.rpartition("/dists/")[2].removesuffix("/InRelease"), offered)
        return None

    def _offered(self, path: str) -> Mapping[str, tuple[str, bytes]]:
        """The packages below a path of an archive or of its snapshot."""
        for start, packages in self.past.items():
            if path.startswith(start):
                return packages
        return {name: (self.version(name), data) for name, data in self.packages.items()}

    def _release(self, suite: str, offered: Mapping[str, tuple[str, bytes]]) -> bytes:
        listed = _list(offered)
        until = "Valid-Until: Thu, 08 Jan 2026 00:00:00 UTC\n" if offered in self.past.values() else ""
        text = (
            f"Origin: stub\nSuite: {suite}\nCodename: {suite}\nArchitectures: amd64\nComponents: main\n"
            f"Date: Thu, 01 Jan 2026 00:00:00 UTC\n{until}SHA256:\n"
            f" {hashlib.sha256(listed).hexdigest()} {len(listed)} {_PACKAGES}\n"
        )
        return self._gpg("--clearsign", "--output", "-", text=text)

    def public_key(self) -> bytes:
        """The key that signs every apt repository here, as text."""
        return self._gpg("--armor", "--export")

    def fingerprint(self) -> str:
        """The fingerprint of that key."""
        self.public_key()
        listed = self._gpg("--with-colons", "--list-keys").decode()
        return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))

    def _gpg(self, *arguments: str, text: str = "") -> bytes:
        home = self.folder / "gnupg"
        if not home.exists():
            home.mkdir(mode=0o700)
            self._gpg("--passphrase", "", "--quick-generate-key", "stub", "ed25519", "sign", "never")
        options = ["--homedir", str(home), "--batch", "--quiet", "--pinentry-mode", "loopback"]
        done = subprocess.run(
            ["gpg", *options, *arguments], input=text.encode(), capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    """Stages are built side by side: more of them knock at once than the usual five that may wait."""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[StubMirror]:
    """A mirror that answers on all of this machine's addresses until the block ends."""
    mirror = StubMirror(folder)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = mirror.answer(self.path)
            self.send_response(200 if body is not None else 404)
            kind = "text/html" if "/simple/" in self.path else "text/plain"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: Any) -> None:
            """Nothing: what was asked is in `asked`."""

    server = _Server(("0.0.0.0", 0), Handler)
    mirror.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield mirror
    finally:
        server.shutdown()
        server.server_close()
        subprocess.run(
            ["gpgconf", "--homedir", str(folder / "gnupg"), "--kill", "all"], capture_output=True, check=False
        )


def _list(offered: Mapping[str, tuple[str, bytes]]) -> bytes:
    lines = []
    for name, (version, data) in sorted(offered.items()):
        digest = hashlib.sha256(data).hexdigest()
        lines.append(
            f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
            f"Maintainer: nobody\nFilename: pool/{name}.deb\nSize: {len(data)}\nSHA256: {digest}\n"
            "Description: stub\n"
        )
    return "\n".join(lines).encode()


def archive(files: Mapping[str, str]) -> bytes:
    """A tar.gz with these programs below one top folder."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"top/{name}")
            info.size, info.mode = len(text.encode()), 0o755
            tar.addfile(info, io.BytesIO(text.encode()))
    return stream.getvalue()


def _wheel(name: str, version: str, stem: str, scripts: Mapping[str, str]) -> bytes:
    files = {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **{f"{stem}.data/scripts/{one}": text for one, text in scripts.items()},
    }
    record = f"{stem}.dist-info/RECORD"
    files[record] = "".join(f"{one},,\n" for one in (*files, record))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive_:
        for one, text in files.items():
            archive_.writestr(one, text)
    return stream.getvalue()


def _call(*argv: object) -> str:
    environment = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
