"""A library that was made once is handed out again: when it may be, when it may not, and what it costs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.core.cache_space import cache_usage, prune_cache
from compiler.core.settings import load_settings
from compiler.stages.finished import FinishedLibraries, finished_key, package_digest
from tests.support.command import tk
from tests.support.onnx_models import model

pytestmark = pytest.mark.usefixtures("empty_cache")
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def product(path: Path, factor: float, *, external: bool = False) -> Path:
    """Writes y = x * weights."""
    weights = np.full((3, 4), factor, np.float32)
    proto = model([helper.make_node("Mul", ["x", "w"], ["y"])], {"x": X}, ["y"], {"w": weights})
    onnx.save(proto, path, save_as_external_data=external, location="weights.bin", size_threshold=0)
    return path


def compiled(path: Path, output: Path, **options: Any) -> compiler.CompileReport:
    return compiler.compile_model(path, compiler.CompileOptions(output=output, **options))


def result(library: Path) -> np.ndarray:
    with compiler.load(library) as loaded:
        return loaded.run({"x": X})["y"]


def test_the_second_compile_hands_out_the_same_bytes(tmp_path: Path) -> None:
    path = product(tmp_path / "m.onnx", 2)
    first, second = compiled(path, tmp_path / "1.so"), compiled(path, tmp_path / "2.so")
    assert (first.cached, second.cached) == (False, True)
    assert (tmp_path / "1.so").read_bytes() == (tmp_path / "2.so").read_bytes()
    assert os.access(tmp_path / "2.so", os.X_OK)
    assert second.path == tmp_path / "2.so"
    assert second.library_bytes == first.library_bytes == (tmp_path / "2.so").stat().st_size
    same = ("kernels", "constant_bytes", "peak_memory", "arch", "target")
    assert all(getattr(first, name) == getattr(second, name) for name in same)


def test_a_copy_does_not_change_with_the_other(tmp_path: Path) -> None:
    path = product(tmp_path / "m.onnx", 2)
    for name in ("1.so", "2.so", "3.so"):
        compiled(path, tmp_path / name)
    for name in ("1.so", "2.so"):
        with (tmp_path / name).open("r+b") as stream:
            stream.truncate(10)
    np.testing.assert_array_equal(result(tmp_path / "3.so"), X * 2)
    compiled(path, tmp_path / "4.so")
    np.testing.assert_array_equal(result(tmp_path / "4.so"), X * 2)


def test_another_model_is_another_library(tmp_path: Path) -> None:
    compiled(product(tmp_path / "m.onnx", 2), tmp_path / "m.so")
    assert not compiled(product(tmp_path / "m.onnx", 3), tmp_path / "m.so").cached
    np.testing.assert_array_equal(result(tmp_path / "m.so"), X * 3)


@pytest.mark.parametrize(
    "options", [{"threads": 1}, {"threads": 2}, {"arch": "x86-64-v2"}, {"shapes": {"x": (3, 4)}}]
)
def test_options_matter(tmp_path: Path, options: dict[str, Any]) -> None:
    path = product(tmp_path / "m.onnx", 2)
    compiled(path, tmp_path / "m.so")
    assert not compiled(path, tmp_path / "m.so", **options).cached
    assert compiled(path, tmp_path / "m.so", **options).cached


def test_looking_closer_compiles(tmp_path: Path) -> None:
    path = product(tmp_path / "m.onnx", 2)
    compiled(path, tmp_path / "m.so")
    assert not compiled(path, tmp_path / "m.so", dump=tmp_path / "dump").cached
    assert (tmp_path / "dump" / "00-import.txt").exists()


def test_external_data_matters(tmp_path: Path) -> None:
    path = product(tmp_path / "m.onnx", 2, external=True)
    compiled(path, tmp_path / "m.so")
    assert compiled(path, tmp_path / "m.so").cached
    before = path.read_bytes()
    (tmp_path / "weights.bin").unlink()
    product(path, 3, external=True)
    assert path.read_bytes() == before  # only the data changed
    assert not compiled(path, tmp_path / "m.so").cached
    np.testing.assert_array_equal(result(tmp_path / "m.so"), X * 3)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(compiler.BadInputError, match=r"weights\.bin"):
        compiled(path, tmp_path / "m.so")


def test_a_damaged_library_is_not_handed_out(tmp_path: Path, empty_cache: Path) -> None:
    path = product(tmp_path / "m.onnx", 2)
    compiled(path, tmp_path / "m.so")
    (kept,) = (empty_cache / "libraries").glob("*.so")
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.unlink()
    kept.write_bytes(content)
    (tmp_path / "m.so").write_bytes(b"old")
    assert not compiled(path, tmp_path / "m.so").cached
    np.testing.assert_array_equal(result(tmp_path / "m.so"), X * 2)
    assert compiled(path, tmp_path / "m.so").cached


def test_a_damaged_record_is_no_record(tmp_path: Path, empty_cache: Path) -> None:
    path = product(tmp_path / "m.onnx", 2)
    compiled(path, tmp_path / "m.so")
    (record,) = (empty_cache / "libraries").glob("*.json")
    for text in ("", "{}", "[]", '{"version": 1, "sha256": 3}', "\0"):
        record.write_text(text)
        assert not compiled(path, tmp_path / "m.so").cached
        assert compiled(path, tmp_path / "m.so").cached


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, empty_cache: Path) -> None:
    (empty_cache / "libraries").write_text("a file where a directory should be")
    report = compiled(product(tmp_path / "m.onnx", 2), tmp_path / "m.so")
    assert any("not kept in the cache" in text for text in report.warnings)
    np.testing.assert_array_equal(result(tmp_path / "m.so"), X * 2)


def test_a_library_that_is_handed_out_is_used(tmp_path: Path) -> None:
    libraries = FinishedLibraries(tmp_path / "libraries", limit=1000)
    for number in range(3):
        (tmp_path / "made").write_bytes(bytes([number]) * 1000)
        libraries.keep(finished_key(str(number)), tmp_path / "made", {}, {})
        (tmp_path / "made").unlink()
    for kept in libraries.root.iterdir():
        os.utime(kept, (1000, 1000))
    found = libraries.find(finished_key("1"))
    assert found is not None
    assert libraries.take(found, tmp_path / "taken")
    assert prune_cache(tmp_path, unused_seconds=60).removed_entries == 4  # libraries and their records
    known = [libraries.find(finished_key(str(number))) for number in range(3)]
    assert [one is not None and libraries.take(one, tmp_path / "taken") for one in known] == [
        False,
        True,
        False,
    ]


def test_a_compile_makes_room(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (empty_cache / "objects").unlink()  # those of other tests
    monkeypatch.setenv("TK_CACHE_SIZE", "200 kB")
    for number in (2, 3):
        library = tmp_path / f"{number}.so"
        compiled(product(tmp_path / "m.onnx", number), library)
        np.testing.assert_array_equal(result(library), X * number)
        assert cache_usage(load_settings()).bytes <= 200_000
    assert compiled(tmp_path / "m.onnx", tmp_path / "again.so").cached


def test_a_library_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    libraries = FinishedLibraries(tmp_path / "libraries", limit=250)
    for name, size in (("small", 250), ("large", 251)):
        (tmp_path / "made").write_bytes(b"x" * size)
        libraries.keep(finished_key(name), tmp_path / "made", {}, {})
        (tmp_path / "made").unlink()
    assert libraries.find(finished_key("large")) is None
    assert libraries.find(finished_key("small")) is not None


def test_keys_tell_all_options_apart() -> None:
    parts = [
        (), (1,), (True,), (1.0,), ("1",), ([1],), ((1, 2),), ({"a": 1},), ({"a": "1"},), ({"b": 1},),
        (np.zeros(2),), (np.zeros((1, 2)),), (np.zeros(2, np.float32),), (None,), (frozenset({"a"}),), (1, 2),
    ]  # fmt: skip
    assert len({finished_key("m", *one) for one in parts}) == len(parts)
    assert finished_key("m", {"a": 1, "b": 2}) == finished_key("m", {"b": 2, "a": 1})
    assert finished_key("m", frozenset("abcdef")) == finished_key("m", frozenset("fedcba"))


def test_the_sources_of_the_compiler_are_part_of_the_key(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    first = package_digest(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("1")
    assert package_digest(tmp_path) == first
    (tmp_path / "a.py").write_text("2")
    assert package_digest(tmp_path) != first


def test_the_command_line_says_so_and_imports_nothing_large(tmp_path: Path) -> None:
    product(tmp_path / "m.onnx", 2)
    assert "in the cache" not in tk("compile", "m.onnx", cwd=tmp_path).out
    again = tk("compile", "m.onnx", cwd=tmp_path, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert again.code == 0
    assert "the library was in the cache" in again.out
    loaded = {line.rpartition("|")[2].strip() for line in again.err.splitlines()}
    assert "compiler.stages.finished" in loaded
    assert not loaded & {"numpy", "onnx", "compiler.pipeline"}


def test_a_hit_is_quick(tmp_path: Path) -> None:
    path = product(tmp_path / "m.onnx", 2)
    compiled(path, tmp_path / "m.so")
    started = time.process_time()
    assert compiled(path, tmp_path / "m.so").cached
    assert time.process_time() - started < 0.3
