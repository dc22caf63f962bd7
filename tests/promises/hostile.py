"""P8: models that are made to harm are refused, in little time and memory."""

from __future__ import annotations

import gzip
import io
import itertools
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.promises.promise import Case, Ended, Promise
from tests.promises.trial import attempt, compile_here
from tests.support.onnx_models import model, value_info

_SECONDS, _MEMORY = 2.0, 512 << 20
_BIG, _HUGE = 2**40, 2**62
_FLOATS = np.ones((2, 3), np.float32)

Constants = Mapping[str, Any]


def _of(*nodes: onnx.NodeProto, y: str = "y", opset: int = 17, **constants: Any) -> onnx.ModelProto:
    """A model of input x (2 x 3 floats), constants and nodes."""
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    return model(nodes, {"x": _FLOATS}, [y], arrays, opset)


def _one(op: str, inputs: str, opset: int = 17, **values: Any) -> onnx.ModelProto:
    """A model of one node; what is an array is a constant that it reads, all else an attribute."""
    known = {name: one for name, one in values.items() if isinstance(one, np.ndarray)}
    node = helper.make_node(op, inputs.split(), ["y"], **{n: v for n, v in values.items() if n not in known})
    return _of(node, opset=opset, **known)


def _relu(x: str = "x", y: str = "y") -> onnx.NodeProto:
    return helper.make_node("Relu", [x], [y])


def _input(*dims: int) -> onnx.ModelProto:
    made = _of(_relu())
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, dims))
    return made


def _tensor(*dims: int, raw: int | None = None, floats: int = 0, **facts: str) -> onnx.ModelProto:
    """A model with an initializer of these dimensions; `raw` bytes or floats in it, or external facts."""
    made = _of(helper.make_node("Add", ["x", "w"], ["y"]))
    tensor = made.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=dims)
    if raw is not None:
        tensor.raw_data = bytes(raw)
    tensor.float_data.extend([1.0] * floats)
    for key, value in facts.items():
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key=key, value=value)
    return made


def _functions(calls: Mapping[str, Sequence[str]], **attributes: Any) -> onnx.ModelProto:
    """A model that calls the first of functions, each of which calls others."""
    made = _of(helper.make_node(next(iter(calls)), ["x"], ["y"], domain="own"))
    made.opset_import.append(helper.make_opsetid("own", 1))
    imports = list(made.opset_import)
    for name, called in calls.items():
        names = ["a", *(f"b{number}" for number in range(len(called)))]
        nodes = [
            helper.make_node(one, [names[at]], [names[at + 1]], domain="own" if one in calls else "")
            for at, one in enumerate(called)
        ]
        made.functions.append(helper.make_function("own", name, ["a"], [names[-1]], nodes, imports))
    return made


def _recursion_through_a_branch() -> onnx.ModelProto:
    made = _functions({"Own": ["Relu"]})
    body = helper.make_graph(
        [helper.make_node("Own", ["a"], ["c"], domain="own")],
        "g",
        [],
        [helper.make_empty_tensor_value_info("c")],
    )
    node = helper.make_node("If", ["t"], ["b0"], then_branch=body, else_branch=body)
    del made.functions[0].node[:]
    yes = helper.make_node("Constant", [], ["t"], value=helper.make_tensor("", TensorProto.BOOL, [], [True]))
    made.functions[0].node.extend([yes, node])
    return made


def _nested(depth: int) -> bytes:
    """`If` in `If` in `If`: written from the inside out, as no message can be nested so deep in memory."""
    parts: list[bytes] = []
    length = 0
    start = b"\x0a\x01t\x12\x01y\x22\x02If"  # input, output, op_type
    for _ in range(depth):
        for head, tag in ((b"", b"\x32"), (b"\x0a\x0bthen_branch\xa0\x01\x05", b"\x2a"), (start, b"\x0a")):
            opened = tag + _varint(length)
            if tag == b"\x2a":
                head, opened = b"", head + b"\x32" + _varint(length)
            parts.append(head + opened)
            length += len(parts[-1])
    graph = b"".join(reversed(parts))
    return b"\x08\x08\x3a" + _varint(len(graph)) + graph + b"\x42\x02\x10\x11"


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def _branches(depth: int) -> onnx.ModelProto:
    body = helper.make_graph([_relu()], "g", [], [helper.make_empty_tensor_value_info("y")])
    for _ in range(depth):
        node = helper.make_node("If", ["t"], ["y"], then_branch=body, else_branch=body)
        body = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")])
    return _of(*body.node, t=np.array(1, bool))


def _chain(count: int) -> bytes:
    """Relu after Relu, written as bytes, since objects take their time."""
    names = [b"x", *(b"v%d" % number for number in range(count - 1)), b"y"]
    nodes = (
        b"\x0a" + _varint(len(a)) + a + b"\x12" + _varint(len(b)) + b + b"\x22\x04Relu"
        for a, b in itertools.pairwise(names)
    )
    ends = _of().graph
    del ends.node[:]
    graph = b"".join(b"\x0a" + _varint(len(one)) + one for one in nodes) + ends.SerializeToString()
    return b"\x08\x08\x3a" + _varint(len(graph)) + graph + b"\x42\x02\x10\x11"


def _doubled(op: str, times: int) -> onnx.ModelProto:
    """Each node reads the last one twice."""
    names = ["x", *(f"v{number}" for number in range(times - 1)), "y"]
    given = {"axis": 0} if op == "Concat" else {}
    nodes = [helper.make_node(op, [a, a], [b], **given) for a, b in itertools.pairwise(names)]
    return _of(*nodes)


def _loop(op: str, times: int) -> onnx.ModelProto:
    yes, count = np.array(1, bool), np.array(0)
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node(op, ["a"], ["b"])],
        "body",
        [value_info("i", count), value_info("go", yes), value_info("a", _FLOATS)],
        [value_info("on", yes), value_info("b", _FLOATS)],
    )
    return _of(helper.make_node("Loop", ["m", "t", "x"], ["y"], body=body), m=np.array(times), t=yes)


def _growing_loop() -> onnx.ModelProto:
    """What it carries is twice as large after each of 60 rounds."""
    made = _loop("Relu", 60)
    body = made.graph.node[0].attribute[0].g
    body.node[1].CopyFrom(helper.make_node("Concat", ["a", "a"], ["b"], axis=0))
    for info in (body.input[2], body.output[1]):
        info.type.tensor_type.ClearField("shape")
    return made


def _tree(kind: str) -> onnx.ModelProto:
    """Trees whose nodes follow each other in a circle, to nowhere, or in one long line."""
    count = {"circle": 2, "nowhere": 2, "line": 10_000}[kind]
    numbers = list(range(count))
    true = {"circle": [1, 0], "nowhere": [7, -3], "line": [*numbers[1:], 0]}[kind]
    modes = ["BRANCH_LEQ"] * count
    if kind == "line":
        modes[-1] = "LEAF"
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=[0] * count, nodes_nodeids=numbers, nodes_featureids=[0] * count,
        nodes_values=[0.5] * count, nodes_modes=modes, nodes_truenodeids=true, nodes_falsenodeids=true,
        target_treeids=[0], target_nodeids=[count - 1], target_ids=[0], target_weights=[1.0],
    )  # fmt: skip
    made = _of(node)
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return made


def _changed(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    made = _of(_relu())
    change(made)
    return made


def _strange_attribute() -> bytes:
    """The kind of an attribute is a number that ONNX gives no meaning."""
    made = _changed(lambda made: made.graph.node[0].attribute.add(name="axis", type=2, i=1))
    data: bytes = made.SerializeToString()
    return data.replace(b"\xa0\x01\x02", b"\xa0\x01\x63")


def _many_names(made: onnx.ModelProto) -> None:
    made.graph.node[0].input.extend(["x"] * 1_000_000)


def _zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.onnx", bytes(64 << 20))
    return stream.getvalue()


def _tarred() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        info = tarfile.TarInfo("../model.onnx")
        info.size = 64 << 20
        archive.addfile(info, io.BytesIO(bytes(info.size)))
    return stream.getvalue()


def _ints(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int64)


def _scalar(number: int) -> np.ndarray[Any, Any]:
    return np.array(number, np.int64)


_IMAGE = _ints(1, 1, 2, 3)


def _image(op: str, **attributes: Any) -> onnx.ModelProto:
    """An operator on x as an image."""
    shape = helper.make_node("Reshape", ["x", "to"], ["i"])
    known = {name: one for name, one in attributes.items() if isinstance(one, np.ndarray)}
    rest = {name: one for name, one in attributes.items() if name not in known}
    return _of(shape, helper.make_node(op, ["i", *known], ["y"], **rest), to=_IMAGE, **known)


_KERNEL = np.ones((1, 1, 1, 1), np.float32)


def _einsum() -> onnx.ModelProto:
    """13 matrices, each element with each of all others."""
    pairs = [f"{chr(97 + 2 * number)}{chr(98 + 2 * number)}" for number in range(13)]
    return _one("Einsum", " ".join("x" for _ in pairs), equation=f"{','.join(pairs)}->{''.join(pairs)}")


Made = Callable[[], onnx.ModelProto | bytes]
MODELS: Mapping[str, Made] = MappingProxyType({
    # extents
    "input of 2^248 elements": lambda: _input(_HUGE, _HUGE, _HUGE, _HUGE),
    "input of 2^64 elements": lambda: _input(2**32, 2**32),
    "negative input": lambda: _input(2, -3),
    "input of a million dimensions": lambda: _input(*[1] * 1_000_000),
    "constant of 2^248 elements": lambda: _tensor(_HUGE, _HUGE, _HUGE, _HUGE, raw=24),
    "constant of 2^64 + 6 elements by overflow": lambda: _tensor(2**32, 2**32, raw=24),
    "negative constant": lambda: _tensor(-2, -3, raw=24),
    "constant of a million dimensions": lambda: _tensor(*[1] * 1_000_000, raw=4),
    "constant of 2^40 elements without data": lambda: _tensor(_BIG),
    # data
    "too few bytes": lambda: _tensor(2, 3, raw=23),
    "too many bytes": lambda: _tensor(2, 3, raw=25),
    "too few floats": lambda: _tensor(2, 3, floats=5),
    "too many floats": lambda: _tensor(2, 3, floats=7),
    "external data with __class__": lambda: _tensor(2, 3, __class__="x"),
    "external data with __class__ and a place": lambda: _tensor(2, 3, location="model.onnx", __class__="x"),
    "external data with negative length": lambda: _tensor(2, 3, location="model.onnx", length="-1"),
    "external data with negative offset": lambda: _tensor(2, 3, location="model.onnx", offset="-8"),
    "external data with offset of 2^63": lambda: _tensor(2, 3, location="model.onnx", offset=str(2**63)),
    "external data with offset of 2^64": lambda: _tensor(2, 3, location="model.onnx", offset=str(2**64)),
    "external data with length of 2^64": lambda: _tensor(2, 3, location="model.onnx", length=str(2**64)),
    "external data with a length of a million digits": lambda: _tensor(
        2, 3, location="model.onnx", length="1" * 1_000_000
    ),
    "external data with digits of another script": lambda: _tensor(
        2, 3, location="model.onnx", length="\u0662\u0664"
    ),
    "external data without a place": lambda: _tensor(2, 3, offset="0"),
    # graphs
    "circle of two nodes": lambda: _of(_relu("b", "a"), _relu("a", "b"), y="b"),
    "node that reads itself": lambda: _of(_relu("y", "y")),
    "one name twice": lambda: _of(_relu(), _relu()),
    "input's name twice": lambda: _of(_relu("x", "x"), _relu()),
    "name that nobody makes": lambda: _of(_relu("nobody")),
    "output that nobody makes": lambda: _of(_relu(), y="nobody"),
    "function that calls itself": lambda: _functions({"Own": ["Own"]}),
    "functions that call each other": lambda: _functions({"A": ["B"], "B": ["A"]}),
    "function that calls itself through a branch": _recursion_through_a_branch,
    "functions that call ten others ten times": lambda: _functions(
        {f"F{n}": [f"F{n + 1}" if n < 9 else "Relu"] * 10 for n in range(10)}
    ),
    "functions a thousand deep": lambda: _functions(
        {f"F{n}": [f"F{n + 1}" if n < 999 else "Relu"] for n in range(1000)}
    ),
    "branches 10,000 deep": lambda: _nested(10_000),
    "branches 12 deep": lambda: _branches(12),
    "a million nodes": lambda: _chain(1_000_000),
    "node with a million inputs": lambda: _changed(_many_names),
    # control flow
    "loop of 2^63 - 1 rounds": lambda: _loop("Relu", 2**63 - 1),
    "loop of a million rounds": lambda: _loop("Relu", 1_000_000),
    "loop of a negative count": lambda: _loop("Relu", -5),
    "loop whose value grows": _growing_loop,
    # results larger than any memory
    "ConstantOfShape 2^40": lambda: _one("ConstantOfShape", "s", s=_ints(_BIG)),
    "ConstantOfShape of 2^128": lambda: _one("ConstantOfShape", "s", s=_ints(2**62, 2**62, 16)),
    "ConstantOfShape negative": lambda: _one("ConstantOfShape", "s", s=_ints(-1)),
    "Range to 2^62": lambda: _one("Range", "a b c", a=_scalar(0), b=_scalar(_HUGE), c=_scalar(1)),
    "Range by 0": lambda: _one("Range", "a b c", a=_scalar(0), b=_scalar(9), c=_scalar(0)),
    "Expand to 2^40": lambda: _one("Expand", "x s", s=_ints(_BIG, 2, 3)),
    "Tile 2^40 times": lambda: _one("Tile", "x s", s=_ints(_BIG, 1)),
    "Tile -1 times": lambda: _one("Tile", "x s", s=_ints(-1, 1)),
    "Pad by 2^40": lambda: _one("Pad", "x s", s=_ints(_BIG, 0, 0, 0)),
    "Pad by -2^40": lambda: _one("Pad", "x s", s=_ints(-_BIG, 0, 0, 0)),
    "OneHot of 2^40": lambda: _of(
        helper.make_node("Cast", ["x"], ["i"], to=7), helper.make_node("OneHot", ["i", "d", "v"], ["y"]),
        d=_scalar(_BIG), v=np.array([0, 1], np.float32),
    ),
    "Reshape to 2^64": lambda: _one("Reshape", "x s", s=_ints(2**32, 2**32)),
    "Reshape to -1 twice": lambda: _one("Reshape", "x s", s=_ints(-1, -1)),
    "Resize by 10^12": lambda: _image("Resize", roi=np.array([], np.float32),
                                     scales=np.array([1, 1, 1e12, 1e12], np.float32)),
    "Concat doubled 60 times": lambda: _doubled("Concat", 60),
    "Add doubled 60 times": lambda: _doubled("Add", 60),
    "EyeLike of 2^40": lambda: _of(
        helper.make_node("ConstantOfShape", ["s"], ["e"]), helper.make_node("EyeLike", ["e"], ["y"]),
        s=_ints(2**20, 2**20),
    ),
    "window of 2^40": lambda: _one("HannWindow", "s", s=_scalar(_BIG)),
    "RandomNormal of 2^40": lambda: _one("RandomNormal", "", shape=[_BIG]),
    "Einsum of 26 letters": _einsum,
    "TopK of 2^40": lambda: _one("TopK", "x k", k=_ints(_BIG)),
    # attributes
    "Conv padded by 2^40": lambda: _image("Conv", w=_KERNEL, pads=[_BIG] * 4),
    "Conv with stride 0": lambda: _image("Conv", w=_KERNEL, strides=[0, 0]),
    "Conv with group 0": lambda: _image("Conv", w=_KERNEL, group=0),
    "Conv with dilation 2^62": lambda: _image("Conv", w=_KERNEL, dilations=[_HUGE, _HUGE]),
    "ConvTranspose with stride 0": lambda: _image("ConvTranspose", w=_KERNEL, strides=[2, 0]),
    "ConvTranspose with stride 2^40": lambda: _image("ConvTranspose", w=_KERNEL, strides=[_BIG, _BIG]),
    "pool of 2^40": lambda: _image("MaxPool", kernel_shape=[_BIG, _BIG], pads=[_BIG - 1] * 4),
    "pool of 0": lambda: _image("AveragePool", kernel_shape=[0, 0]),
    "axis 2^62": lambda: _one("Softmax", "x", axis=_HUGE),
    "Transpose with one axis twice": lambda: _one("Transpose", "x", perm=[0, 0]),
    "Gather of what is not there": lambda: _one("Gather", "x i", i=_scalar(_BIG)),
    "Unsqueeze 100,000 times": lambda: _one("Unsqueeze", "x a", a=np.arange(100_000)),
    "Split into 2^40": lambda: _one("Split", "x", opset=18, num_outputs=_BIG),
    "LSTM of 2^40": lambda: _one("LSTM", "x w w", w=np.ones((1, 4, 4), np.float32), hidden_size=_BIG),
    "DepthToSpace of 2^40": lambda: _image("DepthToSpace", blocksize=_BIG),
    "Cast to no type": lambda: _one("Cast", "x", to=4711),
    "attribute of no kind": _strange_attribute,
    "trees in a circle": partial(_tree, "circle"),
    "trees that lead nowhere": partial(_tree, "nowhere"),
    "a tree of 10,000 levels": partial(_tree, "line"),
    # the file
    "opset 2^62": lambda: _changed(lambda made: setattr(made.opset_import[0], "version", _HUGE)),
    "opset -1": lambda: _changed(lambda made: setattr(made.opset_import[0], "version", -1)),
    "no output": lambda: _changed(lambda made: made.graph.ClearField("output")),
    "no operator": lambda: _changed(lambda made: made.graph.node[0].ClearField("op_type")),
    "name of 64 MB": lambda: _changed(lambda made: setattr(made.graph.node[0], "op_type", "R" * (64 << 20))),
    "gzip bomb": lambda: gzip.compress(bytes(256 << 20)),
    "zip bomb": _zipped,
    "tar bomb": _tarred,
    "pickle": lambda: b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "zeros": lambda: bytes(64 << 20),
    "length of 2^63": lambda: b"\x08\x08\x3a" + _varint(2**63) + b"\0",
    "groups without end": lambda: b"\x0b" * 1_000_000,
})  # fmt: skip

_FINE = frozenset({
    "Add doubled 60 times", "loop of a negative count", "external data with __class__ and a place",
    "branches 12 deep", "ConstantOfShape negative", "Conv with dilation 2^62", "Conv padded by 2^40",
    "a tree of 10,000 levels", "Einsum of 26 letters",
})  # fmt: skip
"""What may be compiled as well: strange, and no harm."""


def _try(name: str, folder: Path) -> Ended:
    """Compile to sources, which does all that depends on the model."""
    made = MODELS[name]()
    data = made if isinstance(made, bytes) else made.SerializeToString()
    path = folder / "model.onnx"
    path.write_bytes(data)
    call = partial(compile_here, path, folder / "out", emit="source")
    ended = attempt(call, seconds=_SECONDS, memory=_MEMORY + 2 * len(data))
    codes = (0, 3) if name in _FINE else (3,)
    fault = ended.broken(_SECONDS, _MEMORY + 2 * len(data), codes)
    if not fault and ended.code and not ended.says.strip():
        fault = "refused without a word"
    return Ended("refused" if ended.code else "compiled", fault)


def _cases(drawn: random.Random) -> Iterator[Case]:
    yield from (Case(name, partial(_try, name)) for name in MODELS)


PROMISE = Promise(
    name="P8",
    promised="a model that is made to harm is refused at once",
    trials="hostile models",
    criterion=(
        "exit code 3 with a reason, within 2 s of a processor and 512 MB beside twice the file; some "
        "that are strange and no harm may be compiled"
    ),
    least=60,
    share=0.1,
    cases=_cases,
)
