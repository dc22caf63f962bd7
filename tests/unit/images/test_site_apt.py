"""apt's steps of site.sh with this machine's apt, in folders of their own: nothing here is installed."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import stub_mirror
from tests.support.stub_mirror import StubMirror
from toolchain.data import data_directory
from toolchain.images.lock.apt import lock_files
from toolchain.images.plan import Deb, Pins
from toolchain.provision.resolving import parse_uris
from toolchain.recipes.schema import Archive

SCRIPT = data_directory("dockerfiles") / "tk" / "site.sh"
ARCHIVE = Archive(
    original="*.debian.org/debian", snapshot="http://snapshot.debian.org/archive/debian", source="a test"
)
LOCKED = "20260101T000000Z"
LATER = "20260102T000000Z"
ONE_LINE = "deb [trusted=yes] http://ftp.debian.org/debian/ stub main\n"
PLAIN = "deb http://ftp.debian.org/debian stub main\n"
STANZAS = """\
# A list as Debian's images have it.
Types: deb
# http://snapshot.debian.org/archive/debian/20260101T000000Z
URIs: http://ftp.debian.org/debian
Suites: stub
Components: main
Trusted: yes

Types: deb
URIs: http://vendor.example.com/apt
Suites: stub
Components: main
Trusted: yes
"""

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-get", "dpkg-deb", "gpg"))), reason="no apt on this machine"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A machine of folders: site.sh sees these in place of the machine's own."""

    root: Path
    mirror: StubMirror

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["sh", str(self.root / "site.sh"), "apt", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)

    def install(self, *packages: str) -> subprocess.CompletedProcess[str]:
        """Update, then fetch packages without installing them."""
        assert self.run("update").returncode == 0
        return self.run("install", "--download-only", *packages)

    def lock(self, pins: Pins) -> None:
        for one in lock_files(pins, (ARCHIVE,)):
            (self.root / "run" / one.path.rpartition("/")[2]).write_bytes(one.data)

    @property
    def fetched(self) -> list[str]:
        return sorted(one.name for one in (self.root / "cache" / "archives").glob("*.deb"))

    @property
    def snapshots(self) -> set[str]:
        """The times of the snapshots that were asked."""
        return set(re.findall(r"/archive/debian/(\w+)/", " ".join(self.mirror.asked)))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    root = tmp_path / "root"
    for folder in ("etc/sources.list.d", "run", "secrets", "state/lists/partial", "cache/archives/partial"):
        (root / folder).mkdir(parents=True)
    (root / "status").touch()
    own = f'Dir::State "{root}/state";\nDir::State::status "{root}/status";\nDir::Cache "{root}/cache";\n'
    own += 'APT::Sandbox::User "root";\nAPT::Architecture "amd64";\n'
    text, removed = re.subn(r"rm -rf /var/log/apt .*", ":", SCRIPT.read_text())
    assert removed == 1, "the machine's own logs stay"
    for before, after in (
        ("/etc/apt/", f"{root}/etc/"),
        ("/run/tk/", f"{root}/run/"),
        ("secrets=/run/secrets", f"secrets={root}/secrets"),
        ("/var/cache/apt/archives/", f"{root}/cache/archives/"),
        ('Dpkg::Use-Pty "0";\n', f'Dpkg::Use-Pty "0";\n{own}'),
    ):
        assert before in text
        text = text.replace(before, after)
    (root / "site.sh").write_text(text)
    with stub_mirror.serving(tmp_path / "mirror") as mirror:
        mirror.add_packages(["alpha", "beta"])
        mirrors = f"apt_mirror=http:// http://127.0.0.1:{mirror.port}/apt/\n"
        (root / "secrets" / "tk-site").write_text(mirrors)
        (root / "etc" / "sources.list").write_text(ONE_LINE)
        yield Place(root, mirror)


def superseded(place: Place, *times: str) -> None:
    """A lock of alpha and beta, and an archive that has another alpha since."""
    place.lock(Pins(apt={"alpha": "99~stub", "beta": "99~stub"}, snapshot=LOCKED))
    for time in times:
        place.mirror.take_snapshot(f"snapshot.debian.org/archive/debian/{time}/")
    place.mirror.supersede("alpha")


def test_a_locked_version_that_the_archive_has_comes_from_there(place: Place) -> None:
    place.lock(Pins(apt={"alpha": "99~stub", "beta": "99~stub"}, snapshot=LOCKED))
    done = place.install("alpha", "beta")
    assert done.returncode == 0, done.stderr
    assert place.snapshots == set()
    assert place.fetched == ["alpha_99~stub_all.deb", "beta_99~stub_all.deb"]


@pytest.mark.parametrize("lists", [pytest.param("one line", marks=pytest.mark.slow), "plain", "stanzas"])
def test_one_that_is_gone_comes_from_the_snapshot(place: Place, lists: str) -> None:
    superseded(place, LOCKED)
    if lists == "stanzas":
        (place.root / "etc" / "sources.list").unlink()
        (place.root / "etc" / "sources.list.d" / "debian.sources").write_text(STANZAS)
    elif lists == "plain":
        key = place.root / "etc" / "key.asc"
        key.write_bytes(place.mirror.public_key())
        signed = PLAIN.replace("deb http", f"deb [ arch=amd64 signed-by={key} ] http")
        (place.root / "etc" / "sources.list").write_text(signed)
    done = place.install("alpha", "beta")
    assert done.returncode == 0, done.stderr
    assert "looking in their snapshots" in done.stdout
    assert place.fetched == ["alpha_99~stub_all.deb", "beta_99~stub_all.deb"]


def test_what_was_published_just_before_is_in_the_snapshot_of_a_day_later(place: Place) -> None:
    place.mirror.past[f"snapshot.debian.org/archive/debian/{LOCKED}/"] = {}
    superseded(place, LATER)
    done = place.install("alpha", "beta")
    assert done.returncode == 0, done.stderr
    assert place.snapshots == {LOCKED, LATER}


def test_without_a_snapshot_it_is_not_installable(place: Place) -> None:
    place.lock(Pins(apt={"alpha": "99~stub", "beta": "99~stub"}))
    place.mirror.supersede("alpha")
    done = place.install("alpha", "beta")
    assert done.returncode != 0
    assert place.fetched == []


def test_a_snapshot_without_it_makes_it_another_version_never(place: Place) -> None:
    superseded(place)  # the snapshots offer what the archive does
    done = place.install("alpha", "beta")
    assert done.returncode != 0
    assert "has no installation candidate" in done.stderr
    assert place.fetched == []


def test_a_site_s_mirror_of_the_snapshots_is_asked(place: Place) -> None:
    superseded(place, LOCKED)
    here = f"http://127.0.0.1:{place.mirror.port}/apt"
    mirrors = {"http://ftp.debian.org/": f"{here}/own/", "http://snapshot.debian.org/": f"{here}/kept/"}
    lines = [f"apt_mirror={original} {mirror}\n" for original, mirror in mirrors.items()]
    (place.root / "secrets" / "tk-site").write_text("".join(lines))
    place.mirror.past[f"kept/archive/debian/{LOCKED}/"] = place.mirror.past.popitem()[1]
    done = place.install("alpha", "beta")
    assert done.returncode == 0, done.stderr
    assert any(one.startswith(f"/apt/kept/archive/debian/{LOCKED}/") for one in place.mirror.asked)


def test_mirrors_that_hold_the_address_of_another_are_not_replaced_again(place: Place) -> None:
    """A site's proxy has the original's address in its own."""
    here = f"http://127.0.0.1:{place.mirror.port}/apt"
    (place.root / "etc" / "sources.list").write_text(
        "deb [trusted=yes] http://deb.example.com/one stub main\n"
    )
    mirrors = {
        "http://deb.example.com/one": f"{here}/http://deb.example.com",
        "http://deb.example.com": "http://127.0.0.1:9/wrong",
    }
    lines = [f"apt_mirror={original} {mirror}\n" for original, mirror in mirrors.items()]
    (place.root / "secrets" / "tk-site").write_text("".join(lines))
    done = place.run("update")
    assert done.returncode == 0, done.stderr
    assert any(one.startswith("/apt/http://deb.example.com/") for one in place.mirror.asked), (
        place.mirror.asked
    )
    assert "wrong" not in done.stdout + done.stderr


def test_a_vendor_s_package_that_was_changed_is_refused(place: Place) -> None:
    right = hashlib.sha256(place.mirror.packages["alpha"]).hexdigest()
    url = "http://vendor.example.com/pool/alpha.deb"
    for sha256, code in ((right, 0), ("0" * 64, 1)):
        place.lock(Pins(apt={"alpha": "99~stub"}, debs={"alpha": Deb(url, sha256)}))
        done = place.install("alpha")
        assert done.returncode == code, done.stderr
    assert f"error: alpha_99~stub_all.deb has sha256 {right}, expected {'0' * 64}" in done.stderr
    assert place.fetched == []


def test_what_an_earlier_build_kept_from_elsewhere_is_fetched_again(place: Place) -> None:
    url = "http://vendor.example.com/pool/"
    names = ("alpha", "beta")
    debs = {one: Deb(url + one, hashlib.sha256(place.mirror.packages[one]).hexdigest()) for one in names}
    place.lock(Pins(apt=dict.fromkeys(names, "99~stub"), debs=debs))
    archives = place.root / "cache" / "archives"
    for one in names:
        (archives / f"{one}_99~stub_all.deb").write_bytes(b"of another mirror")
    done = place.install("alpha")
    assert done.returncode == 0, done.stderr
    assert place.fetched == ["alpha_99~stub_all.deb"]


def test_what_apt_lists_at_locking_is_understood(place: Place) -> None:
    site = place.mirror.site("127.0.0.1")
    vendor = "deb [trusted=yes] https://vendor.example.com/apt stub main\n"
    (place.root / "etc" / "sources.list").write_text(vendor)
    (place.root / "secrets" / "tk-site").write_bytes(site.build_settings())
    assert place.run("update").returncode == 0
    done = place.run("install", "-o", "Acquire::ForceHash=SHA256", "--print-uris", "alpha")
    found = parse_uris(done.stdout, {"alpha": "99~stub"}, (ARCHIVE,), site.original_apt_url)
    digest = hashlib.sha256(place.mirror.packages["alpha"]).hexdigest()
    assert found == {"alpha": Deb("https://vendor.example.com/apt/pool/alpha.deb", digest)}
