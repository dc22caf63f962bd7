"""Labels that are strings: a library computes their numbers, its manifest has the strings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.core.diagnostics import BadInputError
from compiler.verify.check import verify_here
from compiler.verify.report import VerifyRequest
from tests.support.onnx_models import model, run_onnxruntime

ML = "ai.onnx.ml"
RNG = np.random.default_rng(0)
X = RNG.standard_normal((9, 4)).astype(np.float32)
WORDS = ["owl", "cat", "dog"]
KNOWN = np.asarray([["elk", "cat", "pet", "owl", "bee"]], object)

CLASSIFIER = helper.make_node(
    "LinearClassifier", ["x"], ["found", "scores"], domain=ML, classlabels_strings=WORDS,
    coefficients=RNG.standard_normal(12).tolist(), intercepts=[0.0, 0.1, 0.2],
)  # fmt: skip
KINDS = helper.make_node(
    "LabelEncoder", ["found"], ["kind"], domain=ML, keys_strings=["dog", "owl"],
    values_strings=["pet", "bird"], default_string="other",
)  # fmt: skip
LEGS = helper.make_node(
    "LabelEncoder", ["kind"], ["legs"], domain=ML, keys_strings=["pet", "bird"], values_int64s=[4, 2],
    default_int64=0,
)  # fmt: skip
NODES = [
    CLASSIFIER,
    KINDS,
    LEGS,
    helper.make_node("Constant", [], ["pet"], value_string="pet"),
    helper.make_node("Equal", ["kind", "pet"], ["is_pet"]),
    helper.make_node("Where", ["is_pet", "found", "kind"], ["either"]),
    helper.make_node("ArrayFeatureExtractor", ["known", "legs"], ["picked"], domain=ML),
    helper.make_node("Cast", ["picked"], ["text"], to=onnx.TensorProto.STRING),
    helper.make_node("ZipMap", ["scores"], ["map"], domain=ML, classlabels_strings=WORDS),
]
MADE = ("found", "scores", "kind", "legs", "is_pet", "either", "text", "map")


def saved(path: Path, nodes: Sequence[onnx.NodeProto], made: Sequence[str]) -> tuple[Path, onnx.ModelProto]:
    imports = [helper.make_opsetid(ML, 4)]
    proto = model(nodes, {"x": X}, list(made), {"known": KNOWN}, opset=21, imports=imports)
    onnx.save(proto, path)
    return path, proto


def compiled(path: Path) -> Path:
    library = path.with_suffix(".so")
    compiler.compile_model(path, compiler.CompileOptions(output=library))
    return library


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that does all that can be done with labels, its library beside it."""
    path, _ = saved(tmp_path_factory.mktemp("labels") / "m.onnx", NODES, MADE)
    compiled(path)
    return path


def test_they_are_looked_up_compared_moved_and_picked(model_file: Path) -> None:
    want = run_onnxruntime(onnx.load(model_file), {"x": X})
    with compiler.load(model_file.with_suffix(".so")) as library:
        got, labels = library.run({"x": X}), library.labels
    assert labels.keys() == {"found", "kind", "either", "text"}
    assert labels["found"][:3] == tuple(WORDS)
    for name, words in labels.items():
        assert [words[number] for number in got[name].reshape(-1)] == want[name].reshape(-1).tolist()
    for name in ("legs", "is_pet"):
        np.testing.assert_array_equal(got[name], want[name])
    for row, scores in zip(got["map"], want["map"], strict=True):
        np.testing.assert_allclose(row, [scores[word] for word in WORDS], rtol=1e-6)


def test_a_library_is_verified_by_the_strings_of_the_reference(model_file: Path, tmp_path: Path) -> None:
    library = model_file.with_suffix(".so")
    assert verify_here(VerifyRequest(library, model_file)).passed
    other = onnx.NodeProto()
    other.CopyFrom(CLASSIFIER)
    next(one for one in other.attribute if one.name == "classlabels_strings").strings[:] = [b"a", b"b", b"c"]
    changed, _ = saved(tmp_path / "changed.onnx", [other, *NODES[1:]], MADE)
    failed = {one.name for one in verify_here(VerifyRequest(library, changed)).outputs if not one.passed}
    assert "found" in failed


def test_the_library_says_which_strings(model_file: Path) -> None:
    found, scores, *_ = compiler.inspect_library(model_file.with_suffix(".so")).outputs
    assert (found.labels[:3], scores.labels) == (tuple(WORDS), ())


@pytest.mark.parametrize(
    "use",
    [
        helper.make_node("Cast", ["kind"], ["out"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Cast", ["x"], ["out"], to=onnx.TensorProto.STRING),
        helper.make_node("StringNormalizer", ["kind"], ["out"]),
        helper.make_node("Concat", ["kind", "legs"], ["out"], axis=0),
    ],
    ids=["read as numbers", "written from numbers", "changed", "beside numbers"],
)
def test_strings_that_are_more_than_labels_are_refused(use: onnx.NodeProto, tmp_path: Path) -> None:
    path, _ = saved(tmp_path / "m.onnx", [CLASSIFIER, KINDS, LEGS, use], ["out"])
    with pytest.raises(BadInputError, match=r"STRING|string"):
        compiled(path)
