"""Operators of ai.onnx.ml for tables of features, but trees: scaling, encoding, linear models.

Labels are integers: strings are nothing that a library computes with. All are made of other operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.core.types import F32, I64, DType
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, from_numpy, to_numpy
from compiler.graph.ir import Node, TensorType, Value
from compiler.graph.op import (
    Emitter,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Signature,
    Types,
    UnsupportedError,
    Values,
    no_change,
    no_flops,
)

ML = "ai.onnx.ml"


def as_type(e: Emitter, value: Value, kind: DType) -> Value:
    """The value with these elements."""
    return value if value.type.dtype == kind else e.emit("Cast", value, to=kind)


def vector(e: Emitter, values: Sequence[Any], kind: DType = F32) -> Value:
    """A constant of rank 1."""
    return e.constant(np.asarray(values, to_numpy(kind)))


def refuse_strings(node: OnnxNode) -> None:
    """Raise UnsupportedError where labels, keys or categories are strings."""
    for name, value in node.attrs.items():
        if name.endswith(("_strings", "_string")) and name != "default_string" and value != ():
            raise UnsupportedError(f"{name} are strings; only numbers are supported")


def _like_first(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (types[0],)


def _floats(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (types[0].with_dtype(F32),)


def _made(name: str, **more: Any) -> Op:
    """An operator of the domain that is made of others."""
    return Op(name, Kind.INJECTIVE, domain=ML, **more)


# ---------------------------------------------------------------- features


def _extractor_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    if inputs[0].type.rank < 1 or not inputs[1].type.size:
        raise InvalidError(f"ArrayFeatureExtractor takes {inputs[1].type} elements of {inputs[0].type}")
    return inputs, {}


def _extracted(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (types[0].with_shape((*(types[0].shape[:-1] or (1,)), types[1].size)),)


def _extractor_expand(e: Emitter, item: Node) -> Values:
    data, places = item.inputs
    flat = e.emit("Reshape", places, shape=(places.type.size,))
    found = e.emit("Gather", data, flat, axis=data.type.rank - 1)
    return (e.emit("Reshape", found, shape=item.output.type.shape),)


EXTRACTOR = _made(
    "ArrayFeatureExtractor", infer=_extracted, inputs=(2, 2), flops=no_flops,
    reference=lambda x, _a: (np.take(np.atleast_2d(x[0]), x[1].reshape(-1), axis=-1),),
    signatures=(Signature(1, adapt=_extractor_import),), expand=_extractor_expand,
)  # fmt: skip


def _binarizer_expand(e: Emitter, item: Node) -> Values:
    data = item.inputs[0]
    threshold = e.constant(np.asarray(item.attrs.number("threshold"), np.float32))
    return (as_type(e, e.emit("Greater", as_type(e, data, F32), threshold), data.type.dtype),)


BINARIZER = _made(
    "Binarizer", infer=_like_first,
    reference=lambda x, a: ((x[0] > np.float32(a.number("threshold"))).astype(x[0].dtype),),
    signatures=(Signature(1, {"threshold": 0.0}),), expand=_binarizer_expand, elementwise=True,
)  # fmt: skip


def _per_feature(values: Sequence[float], features: int, what: str) -> tuple[float, ...]:
    if len(values) not in (1, features):
        raise InvalidError(f"{len(values)} {what} for {features} features")
    return tuple(values) if len(values) == features else tuple(values) * features


def _scaler_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    features, given = inputs[0].type.shape[-1], Attrs(attrs)
    return inputs, {
        "offset": _per_feature(given.numbers("offset", (0.0,)), features, "offsets"),
        "scale": _per_feature(given.numbers("scale", (1.0,)), features, "scales"),
    }


def _scaler_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    offset, scale = (np.asarray(attrs.numbers(name), np.float32) for name in ("offset", "scale"))
    return ((arrays[0].astype(np.float32) - offset) * scale,)


def _scaler_expand(e: Emitter, item: Node) -> Values:
    shifted = e.emit("Sub", as_type(e, item.inputs[0], F32), vector(e, item.attrs.numbers("offset")))
    return (e.emit("Mul", shifted, vector(e, item.attrs.numbers("scale"))),)


SCALER = _made(
    "Scaler", infer=_floats, reference=_scaler_reference, expand=_scaler_expand,
    signatures=(Signature(1, {"offset": None, "scale": None}, adapt=_scaler_import),),
)  # fmt: skip


def _imputer_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """Missing are elements that equal `missing`; NaN does where `missing` is NaN."""
    floats, given, features = inputs[0].type.dtype.is_float, Attrs(attrs), inputs[0].type.shape[-1]
    if floats:
        filling = given.numbers("imputed_value_floats", ())
        missing: float = given.number("replaced_value_float", 0.0)
    else:
        filling = given.integers("imputed_value_int64s", ())
        missing = given.integer("replaced_value_int64", 0)
    return inputs, {"filling": _per_feature(filling, features, "imputed values"), "missing": missing}


def _imputer_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    missing, filling = attrs["missing"], np.asarray(attrs["filling"], arrays[0].dtype)
    found = np.isnan(arrays[0]) if missing != missing else arrays[0] == missing
    return (np.where(found, filling, arrays[0]),)


def _imputer_expand(e: Emitter, item: Node) -> Values:
    data, missing = item.inputs[0], item.attrs["missing"]
    kind = data.type.dtype
    if missing != missing:
        found = e.emit("IsNaN", data)
    else:
        found = e.emit("Equal", data, e.constant(np.asarray(missing, to_numpy(kind))))
    filling = item.attrs["filling"]
    assert isinstance(filling, tuple)
    return (e.emit("Where", found, vector(e, filling, kind), data),)


_FILLINGS = {"imputed_value_floats": None, "imputed_value_int64s": None,
             "replaced_value_float": 0.0, "replaced_value_int64": 0}  # fmt: skip
IMPUTER = _made(
    "Imputer", infer=_like_first, reference=_imputer_reference, expand=_imputer_expand,
    signatures=(Signature(1, _FILLINGS, adapt=_imputer_import),),
)  # fmt: skip


def _normalizer_sizes(x: Array, norm: str) -> Array:
    if norm == "MAX":
        return np.asarray(np.max(x, axis=-1, keepdims=True))
    if norm == "L1":
        return np.asarray(np.sum(np.abs(x), axis=-1, keepdims=True))
    return np.asarray(np.sqrt(np.sum(x * x, axis=-1, keepdims=True)))


def _normalizer_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x = arrays[0].astype(np.float32)
    size = _normalizer_sizes(x, attrs.text("norm"))
    return (x / np.where(size == 0, np.float32(1), size),)


def _normalizer_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    if attrs["norm"] not in ("MAX", "L1", "L2"):
        raise InvalidError(f"Normalizer has no norm {attrs['norm']!r}")
    return inputs, attrs


def _normalizer_expand(e: Emitter, item: Node) -> Values:
    data = as_type(e, item.inputs[0], F32)
    reductions = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    norm, axes = item.attrs.text("norm"), (data.type.rank - 1,)
    size = e.emit(reductions[norm], data, axes=axes, keepdims=True)
    zero, one = (e.constant(np.asarray(value, np.float32)) for value in (0, 1))
    return (e.emit("Div", data, e.emit("Where", e.emit("Equal", size, zero), one, size)),)


NORMALIZER = _made(
    "Normalizer", infer=_floats, reference=_normalizer_reference, expand=_normalizer_expand,
    signatures=(Signature(1, {"norm": "MAX"}, adapt=_normalizer_import),),
)  # fmt: skip


def _vectorizer_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    wanted = Attrs(attrs).integers("inputdimensions", ())
    if wanted and wanted != tuple(value.type.shape[-1] for value in inputs):
        raise UnsupportedError("FeatureVectorizer that cuts or fills its inputs is not supported")
    return inputs, {}


def _vectorizer_expand(e: Emitter, item: Node) -> Values:
    parts = (as_type(e, value, F32) for value in item.inputs)
    return (e.emit("Concat", *parts, axis=item.output.type.rank - 1),)


VECTORIZER = _made(
    "FeatureVectorizer", inputs=(1, None), flops=no_flops,
    infer=lambda t, _a: (TensorType(F32, (*t[0].shape[:-1], sum(item.shape[-1] for item in t))),),
    reference=lambda x, _a: (np.concatenate([item.astype(np.float32) for item in x], axis=-1),),
    expand=_vectorizer_expand,
    signatures=(Signature(1, {"inputdimensions": None}, adapt=_vectorizer_import),),
)  # fmt: skip

# ---------------------------------------------------------------- categories


def _one_hot_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    refuse_strings(node)
    return inputs, {"categories": Attrs(attrs).integers("cats_int64s")}


def _one_hot_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (TensorType(F32, (*types[0].shape, len(attrs.integers("categories")))),)


def _one_hot_expand(e: Emitter, item: Node) -> Values:
    data = item.inputs[0]
    column = e.emit("Reshape", as_type(e, data, I64), shape=(*data.type.shape, 1))
    found = e.emit("Equal", column, vector(e, item.attrs.integers("categories"), I64))
    return (as_type(e, found, F32),)


ONE_HOT = _made(
    "OneHotEncoder", infer=_one_hot_infer, expand=_one_hot_expand,
    reference=lambda x, a: (
        (x[0][..., None].astype(np.int64) == np.asarray(a.integers("categories"))).astype(np.float32),
    ),
    signatures=(Signature(1, {"cats_int64s": None, "cats_strings": (), "zeros": 1}, adapt=_one_hot_import),),
)  # fmt: skip

_KEYS = {"keys_floats": np.float32, "keys_int64s": np.int64}
_VALUES = {"values_floats": np.float32, "values_int64s": np.int64}
_DEFAULTS = {"values_floats": ("default_float", -0.0), "values_int64s": ("default_int64", -1)}


def _table(node: OnnxNode, names: dict[str, Any], tensor: str) -> Array:
    """Keys or values, whichever attribute has them."""
    given = node.attrs.get(tensor)
    if isinstance(given, np.ndarray):
        return given.reshape(-1)
    for name, kind in names.items():
        if node.attrs.get(name):
            return np.asarray(node.attrs[name], kind)
    raise InvalidError(f"LabelEncoder has no {', '.join((*names, tensor))}")


def _default(node: OnnxNode, values: Array) -> Array:
    given = node.attrs.get("default_tensor")
    if isinstance(given, np.ndarray):
        return given.reshape(-1)[:1].astype(values.dtype)
    name, fallback = _DEFAULTS["values_floats" if values.dtype.kind == "f" else "values_int64s"]
    return np.asarray([node.attrs.get(name, fallback)], values.dtype)


def _encoder_import(*, nan: bool) -> Callable[[OnnxNode, Values, Raw], Imported]:
    """`nan`: whether a key that is no number is found; before opset 4 of the domain it equals nothing."""

    def adapt(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
        refuse_strings(node)
        keys, values = _table(node, _KEYS, "keys_tensor"), _table(node, _VALUES, "values_tensor")
        if keys.dtype.kind not in "fi" or values.dtype.kind not in "fi":
            raise UnsupportedError("LabelEncoder of strings is not supported; only numbers are")
        if keys.size != values.size or from_numpy(keys.dtype) != inputs[0].type.dtype:
            raise InvalidError(f"{keys.size} keys and {values.size} values do not fit {inputs[0].type}")
        table = np.concatenate([values, _default(node, values)])
        return inputs, {
            "keys": tuple(keys.tolist()), "values": tuple(table.tolist()), "nan": nan,
            "dtype": from_numpy(values.dtype),
        }  # fmt: skip

    return adapt


def _encoder_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    keys, values = np.asarray(attrs["keys"]), np.asarray(attrs["values"], to_numpy(attrs.dtype("dtype")))
    x = arrays[0]
    same = x[..., None] == keys.astype(x.dtype)
    if attrs.flag("nan"):
        same |= np.isnan(x[..., None]) & np.isnan(keys.astype(x.dtype))
    places = np.where(same.any(axis=-1), same.argmax(axis=-1), keys.size)
    return (values[places],)


def _encoder_expand(e: Emitter, item: Node) -> Values:
    """The place of the first key that is equal, behind the last one where there is none."""
    data, keys, values = item.inputs[0], item.attrs["keys"], item.attrs["values"]
    assert isinstance(keys, tuple)
    assert isinstance(values, tuple)
    kind = data.type.dtype
    column = e.emit("Reshape", data, shape=(*data.type.shape, 1))
    same = e.emit("Equal", column, vector(e, keys, kind))
    numbers = np.asarray(keys, np.float64)
    if item.attrs.flag("nan") and kind.is_float and np.isnan(numbers).any():
        same = e.emit("Or", same, e.emit("And", e.emit("IsNaN", column), e.constant(np.isnan(numbers))))
    count = e.constant(np.asarray(len(keys), np.int64))
    places = e.emit("Where", same, vector(e, range(len(keys)), I64), count)
    first = e.emit("ReduceMin", places, axes=(data.type.rank,), keepdims=False)
    return (e.emit("Gather", vector(e, values, item.attrs.dtype("dtype")), first, axis=0, safe=True),)


_ENCODER = frozenset({
    "keys_floats", "keys_int64s", "keys_strings", "keys_tensor", "values_floats", "values_int64s",
    "values_strings", "values_tensor", "default_float", "default_int64", "default_string", "default_tensor",
})  # fmt: skip
ENCODER = _made(
    "LabelEncoder", infer=lambda t, a: (t[0].with_dtype(a.dtype("dtype")),), reference=_encoder_reference,
    signatures=(
        Signature(2, ignored=_ENCODER, adapt=_encoder_import(nan=False)),
        Signature(4, ignored=_ENCODER, adapt=_encoder_import(nan=True)),
    ),
    expand=_encoder_expand,
)  # fmt: skip

ZIP_MAP = _made(
    "ZipMap", infer=_like_first, reference=lambda x, _a: (x[0],), expand=no_change, flops=no_flops,
    signatures=(Signature(1, ignored=frozenset({"classlabels_int64s", "classlabels_strings"})),),
)  # fmt: skip
"""A row of scores stands for the map from labels to them: column i is the label with number i."""

# ---------------------------------------------------------------- scores

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def checked_transform(name: str) -> str:
    """A `post_transform` that is supported; raises InvalidError or UnsupportedError."""
    if name not in TRANSFORMS:
        raise InvalidError(f"there is no post_transform {name!r}")
    if name in ("PROBIT", "SOFTMAX_ZERO"):
        raise UnsupportedError(f"post_transform {name} is not supported")
    return name


def transformed(e: Emitter, scores: Value, name: str) -> Value:
    """Scores of the last axis after `post_transform`."""
    if name == "SOFTMAX":
        return e.emit("Softmax", scores, axis=scores.type.rank - 1, flatten=False)
    return e.emit("Sigmoid", scores) if name == "LOGISTIC" else scores


def transformed_array(scores: Array, name: str) -> Array:
    """The same in numpy."""
    if name == "SOFTMAX":
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-scores))) if name == "LOGISTIC" else scores


def _linear_import(outputs: Callable[[Attrs], int]) -> Callable[[OnnxNode, Values, Raw], Imported]:
    def adapt(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
        refuse_strings(node)
        given, kind = Attrs(attrs), inputs[0].type
        features, weights = kind.shape[-1], given.numbers("coefficients")
        rows = outputs(given) if kind.rank == 2 else 0
        if not rows or len(weights) != rows * features:
            raise InvalidError(f"{len(weights)} coefficients do not fit {kind}")
        transform = checked_transform(given.text("post_transform"))
        offsets = given.numbers("intercepts", (0.0,) * rows)
        labels = given.integers("classlabels_ints", ())
        return inputs, {
            "weights": weights, "offsets": offsets, "labels": labels, "post_transform": transform,
        }  # fmt: skip

    return adapt


def _scores(e: Emitter, item: Node) -> Value:
    attrs, data = item.attrs, as_type(e, item.inputs[0], F32)
    rows, features = len(attrs.numbers("offsets")), data.type.shape[-1]
    weights = np.asarray(attrs.numbers("weights"), np.float32).reshape(rows, features)
    found = e.emit("MatMul", data, e.constant(np.ascontiguousarray(weights.T)))
    return e.emit("Add", found, vector(e, attrs.numbers("offsets")))


def _scores_array(x: Array, attrs: Attrs) -> Array:
    offsets = np.asarray(attrs.numbers("offsets"), np.float32)
    weights = np.asarray(attrs.numbers("weights"), np.float32).reshape(offsets.size, -1)
    return np.asarray(x.astype(np.float32) @ weights.T + offsets)


def _rows(types: Types, columns: int) -> TensorType:
    return TensorType(F32, (types[0].shape[0], columns))


LINEAR_REGRESSOR = _made(
    "LinearRegressor", infer=lambda t, a: (_rows(t, len(a.numbers("offsets"))),),
    reference=lambda x, a: (transformed_array(_scores_array(x[0], a), a.text("post_transform")),),
    expand=lambda e, n: (transformed(e, _scores(e, n), n.attrs.text("post_transform")),),
    signatures=(
        Signature(1, {"coefficients": None, "intercepts": None, "targets": 1, "post_transform": "NONE"},
                  adapt=_linear_import(lambda a: a.integer("targets"))),
    ),
)  # fmt: skip


def labelled(e: Emitter, scores: Value, labels: Sequence[int]) -> Value:
    """The label of the greatest score of each row."""
    best = e.emit("ArgMax", scores, axes=(1,), keepdims=False, last=False)
    return e.emit("Gather", vector(e, labels, I64), best, axis=0, safe=True)


def is_binary(attrs: Attrs, rows: int) -> bool:
    """Whether one score decides between two labels."""
    return rows == 1 and len(attrs.integers("labels")) == 2


def _classifier_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    columns, labels = len(attrs.numbers("offsets")), attrs.integers("labels")
    if len(labels) != columns and not is_binary(attrs, columns):
        raise InvalidError(f"{len(labels)} labels for {columns} scores")
    return TensorType(I64, types[0].shape[:1]), _rows(types, len(labels))


def _classifier_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    scores, labels = _scores_array(arrays[0], attrs), np.asarray(attrs.integers("labels"))
    transform = attrs.text("post_transform")
    if scores.shape[1] == 1 and labels.size == 2:
        found = labels[(scores[:, 0] > 0).astype(np.int64)]
        both = np.concatenate([1 - scores, scores] if transform == "NONE" else [-scores, scores], axis=1)
        return found, transformed_array(both, transform)
    return labels[scores.argmax(axis=1)], transformed_array(scores, transform)


def _classifier_expand(e: Emitter, item: Node) -> Values:
    scores, attrs = _scores(e, item), item.attrs
    labels, transform = attrs.integers("labels"), attrs.text("post_transform")
    if not is_binary(attrs, scores.type.shape[1]):
        return labelled(e, scores, labels), transformed(e, scores, transform)
    zero, one = (e.constant(np.asarray(value, np.float32)) for value in (0, 1))
    flat = e.emit("Reshape", scores, shape=scores.type.shape[:1])
    no, yes = (e.constant(np.asarray(label, np.int64)) for label in labels)
    found = e.emit("Where", e.emit("Greater", flat, zero), yes, no)
    other = e.emit("Sub", one, scores) if transform == "NONE" else e.emit("Neg", scores)
    return found, transformed(e, e.emit("Concat", other, scores, axis=1), transform)


LINEAR_CLASSIFIER = _made(
    "LinearClassifier", infer=_classifier_infer, reference=_classifier_reference, expand=_classifier_expand,
    signatures=(
        Signature(1, {"coefficients": None, "intercepts": None, "classlabels_ints": None, "multi_class": 0,
                      "post_transform": "NONE"}, ignored=frozenset({"classlabels_strings"}),
                  adapt=_linear_import(lambda a: len(a.numbers("intercepts", (0.0,)))), outputs=2),
    ),
)  # fmt: skip

OPS = (
    EXTRACTOR, BINARIZER, SCALER, IMPUTER, NORMALIZER, VECTORIZER, ONE_HOT, ENCODER, ZIP_MAP,
    LINEAR_REGRESSOR, LINEAR_CLASSIFIER,
)  # fmt: skip
