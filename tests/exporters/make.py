"""Write the models of `tk zoo` that exporters made: `python -m tests.exporters.make [NAME ...]`.

What it needs for the models that it is asked for (by default all): torch and onnxscript; or skl2onnx,
onnxmltools, xgboost and lightgbm; or tensorflow-cpu, tf_keras and tf2onnx, each set in an environment of its
own. The files of the repository are by torch 2.13.0, skl2onnx 1.20.0, onnxmltools 1.16.0, tf2onnx 1.17.0.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper

from toolchain import zoo
from toolchain.zoo import exporter_files, exporters
from toolchain.zoo.record import Network

FOLDER = exporter_files.FOLDER
_MOST_KEPT = 48  # elements of a tensor whose values stay in the file
_MAKERS = {
    exporters.TORCHSCRIPT: "torch_exports",
    exporters.DYNAMO: "torch_exports",
    exporters.SKL2ONNX: "tree_exports",
    exporters.ONNXMLTOOLS: "tree_exports",
    exporters.TF2ONNX: "keras_exports",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    for name in parser.parse_args().names or list(zoo.exported()):
        record = zoo.network(name)
        make: Callable[[Network], onnx.ModelProto] = importlib.import_module(
            f"tests.exporters.{_MAKERS[record.exporter]}"
        ).make
        data = slim(make(record)).SerializeToString(deterministic=True)
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.onnx").write_bytes(data)
        sys.stdout.write(f"{name:28} {len(data):7} bytes\n")


def slim(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without what only people read, and with ranges in place of the values of weights."""
    for graph in (model.graph, *model.functions):
        for node in graph.node:
            node.doc_string = ""
            del node.metadata_props[:]
        del graph.value_info[:], graph.metadata_props[:]
    for value in (*model.graph.input, *model.graph.output):
        value.doc_string = ""
        del value.metadata_props[:]
    del model.metadata_props[:]
    model.doc_string = ""
    for tensor in model.graph.initializer:
        tensor.doc_string = ""
        del tensor.metadata_props[:], tensor.external_data[:]
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size <= _MOST_KEPT:
            continue
        middle, half = float(values.mean()), float(values.std()) * 3**0.5
        for field in ("raw_data", "float_data"):
            tensor.ClearField(field)
        tensor.doc_string = f"{exporter_files.RANGE} {middle - half:.6g} {middle + half:.6g}"
    return model


if __name__ == "__main__":
    main()
