"""The bundled compiler as one tar: pinned, complete and the same every time."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from compiler import BadInputError, HostError, sha256_file
from toolchain.containers import packages


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pinned wheel that is in the cache already, so that nothing is fetched."""
    made = tmp_path / "thing-1-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("thing/__init__.py", "x = 1\n")
        archive.writestr("thing-1.data/purelib/more.py", "y = 2\n")
        archive.writestr("thing-1.data/scripts/thing", "#!python\n")
        archive.writestr("../outside.py", "z = 3\n")
    pins = tmp_path / "3.11.txt"
    pins.write_text(f"thing==1 --hash=sha256:{sha256_file(made)}\n")
    monkeypatch.setattr(packages, "pinned_packages", lambda _python, _extra="": pins)
    store = packages.load_settings().cache_dir / "wheels" / sha256_file(pins)
    store.mkdir(parents=True, exist_ok=True)
    return made.rename(store / made.name)


def bundle() -> bytes:
    stream = io.BytesIO()
    packages.write_bundle("3.11", stream)
    return stream.getvalue()


@pytest.mark.usefixtures("wheel")
def test_the_bundle_is_complete_and_the_same_every_time() -> None:
    data = bundle()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = archive.getnames()
        assert {(entry.uid, entry.mtime) for entry in archive} == {(0, 0)}
    assert {"packages/thing/__init__.py", "packages/more.py", "source/compiler/pipeline.py"} <= set(names)
    assert "source/compiler/runtime/include/tk_model.h" in names
    assert not [name for name in names if "outside" in name or "scripts" in name or "__pycache__" in name]
    assert bundle() == data


def test_a_damaged_wheel_in_the_cache_is_not_used(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel.write_bytes(wheel.read_bytes() + b"!")
    monkeypatch.setattr(packages.sys, "executable", "/nonexistent/python")
    with pytest.raises(HostError):
        packages.fetch_wheels("3.11", packages.pinned_packages("3.11"))


def test_the_key_follows_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = packages.bundle_key("3.11")
    changed = tmp_path / "x.py"
    changed.write_text("pass\n")
    files = [*packages._sources(), ("compiler/x.py", changed)]
    monkeypatch.setattr(packages, "_sources", lambda: iter(files))
    assert packages.bundle_key("3.11") != before


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_package_is_pinned_by_a_digest(python: str) -> None:
    lines = [line for line in packages.pinned_packages(python).read_text().splitlines() if line[0] != "#"]
    assert {line.partition("==")[0] for line in lines} >= {"numpy", "onnx", "onnxruntime", "typer"}
    assert all(packages._HASH.search(line) for line in lines)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_what_a_search_needs_is_pinned_besides(python: str) -> None:
    """Its packages, which are larger than all others together, go to searches only."""
    text = packages.pinned_packages(python, "tune").read_text()
    lines = [line for line in text.splitlines() if line[0] != "#"]
    assert {line.partition("==")[0] for line in lines} == {"scipy", "sqlalchemy", "xgboost-cpu"}
    assert all(packages._HASH.search(line) for line in lines)
    assert packages.bundle_key(python, "tune") != packages.bundle_key(python)


def test_another_python_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"Python 2\.7 has no pinned packages"):
        packages.pinned_packages("2.7")
