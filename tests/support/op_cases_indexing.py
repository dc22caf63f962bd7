"""Cases of operators that pick, write, order and add up elements by index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.support.onnx_models import run_reference
from tests.support.op_case import Case, bools, f32, floats, i64, ints, scalar

X = floats(2, 3, 5)
_SCANS: tuple[tuple[int, dict[str, Any]], ...] = (
    (0, {}),
    (1, {"exclusive": 1}),
    (-1, {"reverse": 1}),
    (2, {"exclusive": 1, "reverse": 1}),
)


def indexed() -> Iterator[Case]:
    yield from scattering()
    yield from scans()
    yield from orders()
    yield from marks()
    yield from labels()
    yield from found()
    yield from others()


def scattering() -> Iterator[Case]:
    far = ints(2, 3, 4, low=-5, high=5)
    yield Case("GatherElements", [X, far], {"axis": 2})
    yield Case("GatherElements", [X, ints(2, 2, 5, low=0, high=3, dtype=np.int32)], {"axis": -2}, known=[1])
    yield Case("GatherElements", [bools(17), ints(40, low=-17, high=17)])
    for op, opset in (("Scatter", 9), ("ScatterElements", 11), ("ScatterElements", 18)):
        order = np.argsort(floats(2, 3, 5), axis=-1)[:, :2, :3]
        yield Case(op, [X, order, floats(2, 2, 3, seed=1)], {"axis": 2}, opset)
    twice, more = ints(4, 17, low=-6, high=6), floats(4, 17, seed=1)
    for reduction in ("add", "mul", "max", "min"):
        yield Case("ScatterElements", [floats(6, 17), twice, more], {"reduction": reduction}, 18)
    yield Case("ScatterElements", [floats(19), i64(3, -1, 18, 3), f32(1, 2, 3, 4)], {"reduction": "add"}, 18)
    yield Case(
        "ScatterElements", [ints(3, 9), ints(3, 2, low=0, high=9), ints(3, 2, seed=1)], {"axis": 1}, 13
    )
    single = np.stack([np.arange(6) % 4, np.arange(6) % 3], -1)
    for known in ([], [1]):
        yield Case("ScatterND", [floats(4, 3, 20), single, floats(6, 20, seed=1)], opset=13, known=known)
        box = np.stack(np.mgrid[1:3, 0:3], -1)
        yield Case("ScatterND", [floats(4, 3, 5), box, floats(2, 3, 5, seed=1)], opset=13, known=known)
    box = np.stack(np.mgrid[1:3, 0:3], -1)
    yield Case("ScatterND", [floats(4, 5), box, floats(2, 3)], {"reduction": "mul"}, 18, known=[1])
    for reduction in ("add", "mul", "max", "min"):
        places = [floats(5, 7), ints(9, 2, low=-5, high=5), floats(9, seed=1)]
        yield Case("ScatterND", places, {"reduction": reduction}, 18)
        rows = [floats(5, 3, 8), ints(4, 2, 1, low=-5, high=5), floats(4, 2, 3, 8, seed=1)]
        yield Case("ScatterND", rows, {"reduction": reduction}, 18)
    cache, new = floats(2, 3, 8, 4), floats(2, 3, 3, 4, seed=1)
    yield Case("TensorScatter", [cache, new, i64(2, 5)], opset=24)
    yield Case("TensorScatter", [cache, new, i64(6, 7)], {"mode": "circular"}, opset=24)
    yield Case("TensorScatter", [floats(2, 9, 4), floats(2, 3, 4, seed=1)], {"axis": 1}, opset=24)


def scans() -> Iterator[Case]:
    for axis, flags in _SCANS:
        yield Case("CumSum", [X, scalar(axis, np.int32)], flags, 14, known=[1])
        yield Case("CumSum", [X, scalar(axis, np.int64)], flags, 14, label="runtime")
        yield Case("CumProd", [X, scalar(axis, np.int64)], flags, 26, known=[1], oracle=run_reference)
    yield Case("CumSum", [ints(19), i64(0)], opset=11, known=[1])


def orders() -> Iterator[Case]:
    odd = f32(1, np.nan, 3, 2, np.nan, 5, -np.inf, np.inf, 0, 3)
    for largest in (0, 1):
        for count in (0, 3, 10):
            yield Case(
                "TopK", [odd, i64(count)], {"largest": largest}, known=[1], outputs=2, label=str(count)
            )
        long = ints(2, 70, 3, low=-30, high=30)
        for count in (1, 7, 33, 70):
            attrs = {"largest": largest, "axis": 1}
            yield Case("TopK", [long, i64(count)], attrs, known=[1], outputs=2, label=str(count))
    yield Case("TopK", [X], {"k": 2}, 9, outputs=2)
    yield Case("TopK", [floats(3, 40, dtype=np.float16), i64(36)], {}, 11, known=[1], outputs=2)


def marks() -> Iterator[Case]:
    for axis in (0, 1, -1):
        yield Case("Hardmax", [X], {"axis": axis}, 13)
        yield Case("Hardmax", [X], {"axis": axis % 3}, 11)
    wide = i64(3, -4, 9, 0)
    yield Case("OneHot", [wide, i64(5), f32(2, 5)], {"axis": 0}, 11, known=[1])
    yield Case("OneHot", [ints(2, 3, low=-5, high=5), scalar(6, np.int64), i64(1, 7)], {}, 9, known=[1, 2])
    yield Case("OneHot", [floats(2, 3, high=5).round(), f32(4), f32(0, 1)], {"axis": -2}, 11, known=[1])
    lengths = i64(1, 4, 2)
    yield Case("ReverseSequence", [floats(4, 3, 2), lengths], opset=10)
    yield Case("ReverseSequence", [ints(3, 19), i64(19, 0, 7)], {"batch_axis": 0, "time_axis": 1}, 10)
    for upper in (0, 1):
        yield Case("Trilu", [X, scalar(-1, np.int64)], {"upper": upper}, 14, label="runtime")


_EQUATIONS: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("ij->ji", ((3, 4),)),
    ("i->", ((5,),)),
    ("ii->i", ((4, 4),)),
    ("bii", ((2, 3, 3),)),
    ("...ii->...i", ((2, 3, 4, 4),)),
    ("ba", ((3, 4),)),
    ("ij,jk", ((3, 4), (4, 5))),
    ("bij, bjk -> bik", ((2, 3, 4), (2, 4, 5))),
    ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5))),
    ("i,j->ij", ((3,), (4,))),
    ("i,i", ((7,), (7,))),
    ("ij,kl->i", ((3, 4), (2, 5))),
    ("...i,...j->...ij", ((2, 1, 3), (1, 5, 4))),
    ("...,...->...", ((2, 1, 3), (1, 4, 1))),
    ("ijk,ilm,njm->nl", ((2, 3, 4), (2, 5, 6), (7, 3, 6))),
    ("ab,bc,cd,de->ea", ((2, 7), (7, 3), (3, 8), (8, 4))),
    ("Ab,bc->cA", ((2, 3), (3, 4))),
)


def labels() -> Iterator[Case]:
    for equation, shapes in _EQUATIONS:
        operands = [floats(*shape, seed=at) for at, shape in enumerate(shapes)]
        yield Case("Einsum", operands, {"equation": equation}, 12)
    whole = [ints(3, 4, dtype=np.int32), ints(4, 2, dtype=np.int32)]
    yield Case("Einsum", whole, {"equation": "ij,jk->ki"}, 12, label="i32")


def others() -> Iterator[Case]:
    yield Case("Det", [np.zeros((1, 3, 3), np.float32)], opset=11)
    yield Case("Det", [floats(33, 33)], opset=11, tolerance=1e-3)
    pool = {
        "ngram_counts": [0, 4],
        "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
        "max_gram_length": 2,
    }
    text = ints(2, 19, low=2, high=9, dtype=np.int32)
    for mode in ("TF", "IDF", "TFIDF"):
        weights = {} if mode == "TF" else {"weights": [0.5, 2.0, 1.0, 3.0, 0.25, 1.5, 4.0]}
        for least, skip in ((1, 0), (1, 3), (2, 5)):
            attrs = {**pool, **weights, "mode": mode, "min_gram_length": least, "max_skip_count": skip}
            yield Case("TfIdfVectorizer", [text], attrs, 9)
    yield Case(
        "TfIdfVectorizer", [i64(6, 7)], {**pool, "mode": "TF", "min_gram_length": 1, "max_skip_count": 4}, 9
    )


def found() -> Iterator[Case]:
    """As many results as there happen to be: of known operands, or as the case declares."""
    few = np.where(bools(3, 5), floats(3, 5), 0).astype(np.float32)
    yield Case("NonZero", [few], known=[0])
    yield Case("Compress", [X, np.array([True, False, True])], {"axis": 1}, 11, known=[0, 1])
    yield Case("Unique", [ints(3, 4, low=0, high=3)], {}, 11, known=[0], outputs=4)
    limits = [i64(2), f32(0.4), f32(-1)]
    yield Case(
        "NonMaxSuppression", [floats(1, 6, 4), floats(1, 2, 6), *limits], {}, 11, known=[0, 1, 2, 3, 4]
    )


def declared() -> Iterator[Case]:
    """The same of operands that only a run knows."""
    few = np.where(bools(3, 17), floats(3, 17), 0).astype(np.float32)
    yield Case("NonZero", [few])
    yield Case("NonZero", [np.zeros((2, 3), np.int64)])
    yield Case("NonZero", [bools(2, 3, 4)])
    flags = np.array([True, False, True])
    for axis in (0, 1, -1):
        yield Case("Compress", [floats(3, 4, 3), flags], {"axis": axis}, 11)
    yield Case("Compress", [floats(3, 4), bools(11, seed=4)], {}, 11)
    doubled = np.repeat(ints(3, 6, low=0, high=2), 2, axis=0)[[0, 3, 1, 5, 4, 2]]
    for is_sorted in (0, 1):
        yield Case("Unique", [ints(40, low=-6, high=6)], {"sorted": is_sorted}, 11, outputs=4)
        yield Case("Unique", [floats(3, 4).round()], {"sorted": is_sorted}, 11, outputs=4)
        for axis in (0, 1, -2):
            attrs = {"sorted": is_sorted, "axis": axis}
            yield Case("Unique", [doubled], attrs, 11, outputs=4)
            yield Case("Unique", [ints(3, 2, 4, low=0, high=2).astype(np.float32)], attrs, 11, outputs=4)
    corners, scores = floats(2, 9, 4, low=0), floats(2, 3, 9)
    yield Case("NonMaxSuppression", [corners, scores, i64(4), f32(0.2), f32(-1)], {}, 11)
    yield Case("NonMaxSuppression", [corners, scores, i64(4), f32(0.1)], {}, 11, known=[2, 3], label="known")
    centred = {"center_point_box": 1}
    yield Case("NonMaxSuppression", [corners, scores, i64(100), f32(0.3), f32(0.5)], centred, 11, known=[2])
    yield Case("NonMaxSuppression", [corners, scores], {}, 11)
