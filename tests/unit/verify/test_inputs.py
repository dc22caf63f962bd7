"""Inputs from files, and random ones that are the same everywhere."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from compiler.core.diagnostics import BadInputError, TkError, UsageError
from compiler.runtime.specs import TensorSpec
from compiler.verify.inputs import read_feeds

X = TensorSpec("x", "float32", (2, 3), 24)
EQUALS = TensorSpec("a=b", "int64", (2,), 16)
SPECS = (X, EQUALS)
ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_random_inputs_are_fixed_forever() -> None:
    """A change of these numbers changes every verification that somebody noted down."""
    feeds = read_feeds(SPECS, (), seed=0)
    assert [(name, a.shape, str(a.dtype)) for name, a in feeds.items()] == [
        ("x", (2, 3), "float32"),
        ("a=b", (2,), "int64"),
    ]
    digest = hashlib.sha256(feeds["x"].tobytes()).hexdigest()
    assert digest == hashlib.sha256(read_feeds((X,), (), seed=0)["x"].tobytes()).hexdigest()
    generator = np.random.default_rng([0, 0, 2363233923])  # the CRC-32 of "x"
    assert np.array_equal(feeds["x"], generator.standard_normal((2, 3), np.float32))


def test_seed_and_run_change_the_numbers() -> None:
    one, two = read_feeds((X,), (), 0), read_feeds((X,), (), 1)
    other_run = read_feeds((X,), (), 0, run=1)
    assert not np.array_equal(one["x"], two["x"])
    assert not np.array_equal(one["x"], other_run["x"])


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("bool", 0, 1), ("int64", 0, 1), ("int32", 0, 1), ("uint8", 0, 255), ("int8", -128, 127)],
)
def test_ranges_of_whole_numbers(dtype: str, low: int, high: int) -> None:
    array = read_feeds((TensorSpec("x", dtype, (10_000,), 0),), (), 0)["x"]
    assert array.dtype == np.dtype(dtype)
    assert (int(array.min()), int(array.max())) == (low, high)


@pytest.mark.parametrize("kind", ["npy", "npz by name", "npz with one array", "npz alone", "raw"])
def test_files(tmp_path: Path, kind: str) -> None:
    text = write(tmp_path, kind)
    assert np.array_equal(read_feeds((X,), (text,), 0)["x"], ARRAY)


def write(directory: Path, kind: str) -> str:
    if kind == "npy":
        np.save(directory / "x.npy", ARRAY)
        return f"x={directory / 'x.npy'}"
    if kind == "raw":
        (directory / "x.bin").write_bytes(ARRAY.tobytes())
        return f"x={directory / 'x.bin'}"
    names = {"other": ARRAY * 2, "x": ARRAY} if kind == "npz by name" else {"x": ARRAY}
    if kind == "npz with one array":
        names = {"something": ARRAY}
    np.savez(directory / "x.npz", **names)
    return f"{'' if kind == 'npz alone' else 'x='}{directory / 'x.npz'}"


def test_a_name_with_an_equals_sign(tmp_path: Path) -> None:
    np.save(tmp_path / "c=d.npy", np.array([1, 2], np.int64))
    feeds = read_feeds(SPECS, (f"a=b={tmp_path}/c=d.npy",), 0)
    assert feeds["a=b"].tolist() == [1, 2]


def test_numbers_are_converted_only_without_loss(tmp_path: Path) -> None:
    np.save(tmp_path / "i.npy", np.array([1, 2], np.int32))
    assert read_feeds((EQUALS,), (f"a=b={tmp_path}/i.npy",), 0)["a=b"].dtype == np.int64
    np.save(tmp_path / "f.npy", np.array([1, 2], np.float32))
    with pytest.raises(BadInputError, match="wrong type") as caught:
        read_feeds((EQUALS,), (f"a=b={tmp_path}/f.npy",), 0)
    assert "astype('int64')" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("file.npy", UsageError, "expected NAME=FILE"),
        ("y=file.npy", UsageError, "no input `y`"),
        ("x=missing.npy", BadInputError, "cannot read an input"),
        ("x=missing.raw", BadInputError, "cannot read an input"),
        ("x=shape.npy", BadInputError, "wrong shape"),
        ("x=short.raw", BadInputError, "wrong size"),
        ("x=broken.npy", BadInputError, "cannot read an input"),
        ("x=broken.npz", BadInputError, "cannot read an input"),
        ("x=objects.npy", BadInputError, "cannot read an input"),
        ("x=two.npz", BadInputError, "holds no array `x`"),
        ("two.npz", BadInputError, "no input `p`"),
    ],
)
def test_what_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: type[TkError], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("shape.npy", ARRAY.T)
    np.savez("two.npz", p=ARRAY, q=ARRAY)
    np.save("objects.npy", np.array([{}], object), allow_pickle=True)
    Path("short.raw").write_bytes(b"123")
    Path("broken.npy").write_bytes(b"\x93NUMPY\x01\x00garbage")
    Path("broken.npz").write_bytes(b"PK\x03\x04garbage")
    with pytest.raises(error, match=message):
        read_feeds((X,), (text,), 0)


def test_an_input_given_twice(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", ARRAY)
    with pytest.raises(UsageError, match="twice"):
        read_feeds((X,), (f"x={tmp_path}/x.npy", f"x={tmp_path}/x.npy"), 0)


def test_raw_and_npy_scalars(tmp_path: Path) -> None:
    scalar = TensorSpec("s", "float32", (), 4)
    np.save(tmp_path / "s.npy", np.float32(1.5))
    assert read_feeds((scalar,), (f"s={tmp_path}/s.npy",), 0)["s"].shape == ()
