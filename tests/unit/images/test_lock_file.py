"""tk.lock as a file: the same bytes for the same content, read strictly, each problem with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler import BadInputError, HostError
from toolchain.images.lock.file import (
    Lock,
    LockedBuild,
    LockedImage,
    lock_text,
    parse_lock,
    read_lock,
    update_lock,
    write_lock,
)
from toolchain.images.plan import Deb, Pins

A, B = "a" * 64, "b" * 64
PINS = Pins(
    base_digest=f"sha256:{A}",
    base_reference="nvcr.io/nvidia/cuda:11.2.2-devel-ubuntu20.04",
    snapshot="20261122T203000Z",
    debs={
        "hip-dev": Deb("https://repo.radeon.com/rocm/apt/5.4.3/pool/main/h/hip-dev/hip-dev_5.4_amd64.deb", B)
    },
    apt={"gcc": "4:12.2.0-3", "libc6:amd64": "2.36-9+deb12u9", "a-package": "1"},
    pip={"numpy": ("1.26.4", (B, A)), "zlib-ng": ("0.5.1", ())},
    git={"https://github.com/intel/llvm": "c" * 40},
    downloads={"https://example.com/x.tar.gz": B},
    needs={
        "dpcpp": Pins(
            apt={"ninja-build": "1.11.1-2~deb12u1"}, git={"https://github.com/intel/llvm": "d" * 40}
        )
    },
)
BUILT = LockedBuild("registry.example.com:5000/team/tk/rocm:5.4.3-aaaaaaaaaaaa", f"sha256:{B}", A)
LOCK = Lock(
    {
        "rocm-5.4.3+dpcpp-2022-12": LockedImage(A, "rocm/dev-ubuntu-20.04:5.4.3", PINS, built=BUILT),
        "tvm-sycl-rocm@gfx906,gfx90a": LockedImage(A, "rocm/dev-ubuntu-20.04:5.4.3", PINS),
        "cpu": LockedImage(B, "tk-test/debian:bookworm", Pins(apt={"gcc": "4:12.2.0-3"}), stand_in=True),
    }
)


def test_round_trip() -> None:
    text = lock_text(LOCK)
    again = parse_lock(text.encode(), "tk.lock")
    assert lock_text(again) == text
    assert again.images["cpu"] == LOCK.images["cpu"]
    pins = again.images["rocm-5.4.3+dpcpp-2022-12"].pins
    assert (pins.apt, pins.git, pins.downloads) == (PINS.apt, PINS.git, PINS.downloads)
    assert (pins.debs, pins.snapshot, pins.base_reference) == (
        PINS.debs, PINS.snapshot, PINS.base_reference,
    )  # fmt: skip
    assert pins.pip["numpy"] == ("1.26.4", (A, B))
    assert pins.needs["dpcpp"].apt == {"ninja-build": "1.11.1-2~deb12u1"}
    assert again.images["rocm-5.4.3+dpcpp-2022-12"].built == BUILT
    assert again.images["cpu"].built is None
    assert "tvm-sycl-rocm@gfx906,gfx90a" in again.images


def test_locks_of_before_there_were_snapshots_are_read() -> None:
    text = f'format = 1\n[image.cpu]\nrecipe = "{A}"\nbase = "a:1"\n[image.cpu.apt]\ngcc = "1"\n'
    lock = parse_lock(text.encode(), "tk.lock")
    assert lock.images["cpu"].pins == Pins(apt={"gcc": "1"})
    assert "snapshot" not in lock_text(lock)


def test_order_does_not_count() -> None:
    turned = Lock(dict(reversed(list(LOCK.images.items()))))
    assert lock_text(turned) == lock_text(LOCK)


def test_one_entry_a_line_and_sorted() -> None:
    lines = lock_text(LOCK).splitlines()
    start = lines.index('[image."rocm-5.4.3+dpcpp-2022-12".apt]')
    assert lines[start + 1 : start + 4] == [
        'a-package = "1"',
        'gcc = "4:12.2.0-3"',
        '"libc6:amd64" = "2.36-9+deb12u9"',
    ]


def test_versions_stay_as_written() -> None:
    lock = Lock({"cpu": LockedImage(A, "a:1", Pins(pip={"x": ("3.10", ())}, apt={"yy": "1e3"}))})
    pins = parse_lock(lock_text(lock).encode(), "l").images["cpu"].pins
    assert (pins.pip["x"][0], pins.apt["yy"]) == ("3.10", "1e3")


def test_written_only_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "tk.lock"
    assert write_lock(path, LOCK)
    before = path.stat().st_mtime_ns, path.stat().st_ino
    assert not write_lock(path, LOCK)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert read_lock(path) is not None


def test_no_file_is_no_lock(tmp_path: Path) -> None:
    assert read_lock(tmp_path / "tk.lock") is None


GOOD = lock_text(Lock({"cpu": LockedImage(A, "a:1", PINS, built=BUILT)}))


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ("format = 1", "format = 2", "format is 2"),
        ("format = 1", "", "format is None"),
        ('gcc = "4:12.2.0-3"', 'gcc = "4:12.2.0-3"\ngcc = "5"', "Cannot overwrite"),
        ('gcc = "4:12.2.0-3"', '<<<<<<< HEAD\ngcc = "4:12.2.0-3"', "a merge that was not finished"),
        ('gcc = "4:12.2.0-3"', "gcc = 12", "image.cpu.apt.gcc"),
        ('gcc = "4:12.2.0-3"', 'gcc = "1 && id"', "image.cpu.apt.gcc"),
        ('gcc = "4:12.2.0-3"', 'gcc = "-o=x"', "image.cpu.apt.gcc"),
        ('gcc = "4:12.2.0-3"', 'gcc = "1\\nRUN x"', "image.cpu.apt.gcc"),
        ('gcc = "4:12.2.0-3"', '"--gcc" = "1"', "image.cpu.apt.--gcc"),
        ('gcc = "4:12.2.0-3"', '"$(id)" = "1"', "image.cpu.apt.$(id)"),
        ('version = "1.26.4"', 'version = "1.26.4 --hash=x"', "image.cpu.pip.numpy.version"),
        (f'recipe = "{A}"', 'recipe = "1"', "image.cpu.recipe"),
        (f'recipe = "{A}"\n', "", "image.cpu.recipe"),
        ('base = "a:1"', 'base = "a:1"\nbases = "b:1"', "unknown key"),
        ('base = "a:1"', 'base = "a b"', "image.cpu.base"),
        (f'base_digest = "sha256:{A}"', f'base_digest = "{A}"', "image.cpu.base_digest"),
        ('snapshot = "20261122T203000Z"', 'snapshot = "yesterday"', "image.cpu.snapshot"),
        ('base_reference = "nvcr', 'base_reference = "--nvcr', "image.cpu.base_reference"),
        (f"_amd64.deb#sha256={B}", "_amd64.deb", "image.cpu.debs.hip-dev"),
        ('hip-dev = "https://', 'hip-dev = "file://', "image.cpu.debs.hip-dev"),
        ('"https://example.com/x.tar.gz"', '"file:///etc/passwd"', "image.cpu.downloads"),
        ("c" * 40, "main", "image.cpu.git"),
        (f'digest = "sha256:{B}"', 'digest = "latest"', "image.cpu.built.digest"),
        (f'digest = "sha256:{B}"', 'digest = ""', "image.cpu.built.digest"),
        ('reference = "registry', 'reference = "--registry', "image.cpu.built.reference"),
        (f'plan = "{A}"', 'plan = "1"', "image.cpu.built.plan"),
        (f'plan = "{A}"', f'plan = "{A}"\nid = "{A}"', "unknown key"),
    ],
)
def test_broken_files_name_the_line(before: str, after: str, part: str) -> None:
    assert before in GOOD
    text = GOOD.replace(before, after, 1)
    with pytest.raises(BadInputError) as caught:
        parse_lock(text.encode(), "tk.lock")
    assert part in caught.value.why
    file, _, line = caught.value.where.rpartition(":")
    assert file == "tk.lock"
    shown = text.splitlines()[int(line) - 1]
    changed = set(text.splitlines()) - set(GOOD.splitlines())
    assert shown in changed or not changed or part in ("format is None", "image.cpu.recipe") or "gcc" in shown


@pytest.mark.parametrize("data", [b"\xff", b"[" * 100_000, b"format = 1\n#" + b"x" * (9 << 20), b""])
def test_hopeless_files(data: bytes) -> None:
    with pytest.raises(BadInputError):
        parse_lock(data, "tk.lock")


@pytest.mark.parametrize("name", ["cpu@", "cpu@gfx906,", "cpu@$(id)", "cpu@a@b", "@gfx906", "cpu b"])
def test_names_of_sections(name: str) -> None:
    text = lock_text(Lock({name: LockedImage(A, "a:1", PINS)}))
    with pytest.raises(BadInputError) as caught:
        parse_lock(text.encode(), "tk.lock")
    assert name in caught.value.why
    assert text.splitlines()[int(caught.value.where.rpartition(":")[2]) - 1].startswith(f'[image."{name}"]')


def test_without_a_cache_it_is_the_hosts_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps other processes waiting is in the cache; that it cannot be written is no defect of ours."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("TK_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(HostError, match="other processes") as caught:
        update_lock(tmp_path / "tk.lock", lambda _lock: LOCK)
    assert "TK_CACHE_DIR" in caught.value.hint
    assert not (tmp_path / "tk.lock").exists()
