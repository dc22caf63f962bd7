"""What was slow, or an internal error, before it was refused."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from compiler import BadInputError
from compiler.frontend.onnx import import_proto
from tests.promises.hostile import MODELS
from tests.promises.seeds import SEEDS


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("input of a million dimensions", "1,000,000 dimensions; 32 are possible"),
        ("Unsqueeze 100,000 times", "names 100,000 axes; a tensor can have 32"),
        ("Split into 2^40", "split into 1099511627776 parts and has 1 outputs"),
        ("negative input", "an extent is -3"),
        ("external data with digits of another script", "its length is"),
        ("name of 64 MB", "a name in it has 67,108,864 characters"),
    ],
)
def test_models_to_harm(name: str, why: str, tmp_path: Path) -> None:
    made = MODELS[name]()
    assert isinstance(made, onnx.ModelProto)
    with pytest.raises(BadInputError) as caught:
        import_proto(made, tmp_path, {}, {})
    assert why in str(caught.value)


@pytest.mark.parametrize("old", [b"Own", b"mine", b"\x01a", b"\x01b"])
def test_names_of_functions_that_are_no_text(old: bytes, tmp_path: Path) -> None:
    data = SEEDS["function"]().SerializeToString()
    assert old in data
    broken = onnx.ModelProto.FromString(data.replace(old, old[:-1] + b"\xff"))
    with pytest.raises(BadInputError, match="valid ONNX model"):
        import_proto(broken, tmp_path, {}, {})
