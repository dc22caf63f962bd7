"""Models of exporters in the zoo: as the table says, small in the package, and alive at five sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.exporters.trial import feeds_of, session_of
from toolchain import zoo
from toolchain.zoo import exporter_files

MOST_BYTES = 1_500_000
FAMILIES = {
    "cnn", "transformer", "decoder", "recurrent", "audio", "detection", "segmentation", "trees", "diffusion",
}  # fmt: skip


def test_families_and_exporters() -> None:
    records = zoo.exported().values()
    assert len(records) >= 40
    assert {one.family for one in records} == FAMILIES
    assert len({one.exporter for one in records}) == 5
    assert all(len(one.sizes) == 5 and one.free[0][0] == "batch" for one in records)


def test_the_files_are_small_and_all_in_the_table() -> None:
    files = list(exporter_files.FOLDER.iterdir())
    assert {one.stem for one in files} == zoo.exported().keys()
    assert sum(one.stat().st_size for one in files) < MOST_BYTES


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", zoo.exported())
def test_it_runs_at_its_sizes(name: str, tmp_path: Path) -> None:
    record, path = zoo.make(name, tmp_path / "m.onnx"), tmp_path / "m.onnx"
    inputs = [
        (one.name, [dim.dim_value or None for dim in one.type.tensor_type.shape.dim])
        for one in onnx.load(path).graph.input
    ]
    table = [(one, [None if isinstance(dim, str) else dim for dim in dims]) for one, dims in record.inputs]
    assert inputs == table
    session, results = session_of(path), []
    for size in record.sizes:
        outputs = session.run(None, dict(feeds_of(record, size)))
        assert all(np.isfinite(one).all() for one in outputs)
        results.append(float(np.std(outputs[0])))
    assert max(results) > 1e-4, "it computes the same of anything"


def test_weights_are_drawn_from_their_range(tmp_path: Path) -> None:
    zoo.make("tiny-mobilenet", tmp_path / "a.onnx")
    zoo.make("tiny-mobilenet", tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    left = onnx.load(exporter_files.FOLDER / "tiny-mobilenet.onnx").graph.initializer
    drawn = [one for one in left if one.doc_string]
    assert drawn
    made = {one.name: one for one in onnx.load(tmp_path / "a.onnx").graph.initializer}
    for one in drawn:
        low, high = (float(word) for word in one.doc_string.split()[1:])
        values = onnx.numpy_helper.to_array(made[one.name])
        assert values.shape == tuple(one.dims)
        assert low <= values.min() < values.max() <= high
