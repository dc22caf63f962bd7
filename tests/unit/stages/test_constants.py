"""The constants of a library: offsets, and bytes in the layout that the maps say."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.core.types import dtype
from compiler.graph.ir import TensorType, Value
from compiler.graph.memory import ALIGNMENT
from compiler.loops.index_map import IndexMap
from compiler.stages.constants import ConstantPool, GraphConstants, Maps

Array = np.ndarray[Any, Any]
KINDS = {
    "int32": "i32",
    "float32": "f32",
    "float64": "f64",
    "int8": "i8",
    "int64": "i64",
    "bool": "bool",
    "float16": "f16",
}


def pool_of(*arrays: Array) -> tuple[GraphConstants, list[Value]]:
    return graph_of(ConstantPool(), *arrays)


def graph_of(
    pool: ConstantPool, *arrays: Array, by_content: bool = False
) -> tuple[GraphConstants, list[Value]]:
    values = [Value(n, TensorType(dtype(KINDS[a.dtype.name]), a.shape)) for n, a in enumerate(arrays)]
    return GraphConstants(pool, dict(zip(values, arrays, strict=True)), by_content=by_content), values


def written(constants: GraphConstants) -> bytes:
    stream = io.BytesIO()
    constants.pool.write(stream)
    return stream.getvalue()


def packed(array: Array, maps: Maps) -> Array:
    """What the maps mean, element by element."""
    for index_map in maps:
        result = np.zeros(index_map.shape(array.shape), array.dtype)
        for index in np.ndindex(array.shape):
            names = dict(zip(index_map.inputs, index, strict=True))
            place = [eval(part, {}, names) for part in index_map.text.partition("->")[2].split(",")]
            result[tuple(place)] = array[index]
        array = result
    return array


def at(data: bytes, offset: int, like: Array) -> Array:
    return np.frombuffer(data, like.dtype, like.size, offset).reshape(like.shape)


def test_constants_lie_one_after_the_other_at_aligned_offsets() -> None:
    arrays = [np.arange(n, dtype=np.float32) for n in (3, 16, 17, 1)]
    constants, values = pool_of(*arrays)
    offsets = [constants.offset(value, ()) for value in values]
    assert offsets == [0, 64, 128, 256]
    assert constants.pool.bytes == 320
    data = written(constants)
    assert len(data) == 320
    for array, offset in zip(arrays, offsets, strict=True):
        np.testing.assert_array_equal(at(data, offset, array), array)


def test_what_lies_between_is_zero() -> None:
    constants, (value,) = pool_of(np.full(3, 7, np.int8))
    constants.offset(value, ())
    assert written(constants) == b"\7\7\7" + bytes(61)


def test_a_constant_is_stored_once_per_layout() -> None:
    constants, (value,) = pool_of(np.arange(12, dtype=np.float32).reshape(3, 4))
    maps = (IndexMap.parse("a, b -> b, a"),)
    first, second = constants.offset(value, ()), constants.offset(value, maps)
    assert (constants.offset(value, ()), constants.offset(value, maps)) == (first, second)
    assert first != second
    assert constants.pool.bytes == 2 * ALIGNMENT


def test_what_nobody_asks_for_is_not_stored() -> None:
    constants, (_, used) = pool_of(np.zeros(1000, np.float32), np.ones(2, np.float32))
    assert constants.offset(used, ()) == 0
    assert len(written(constants)) == ALIGNMENT


MAPS: list[tuple[tuple[int, ...], Maps]] = [
    ((6, 5), ("a, b -> b, a",)),
    ((7, 5), ("a, b -> a // 4, b, a % 4",)),
    ((3, 5), ("a, b -> a // 4, b, a % 4",)),
    ((10, 3, 2), ("a, b, c -> a // 5, a % 5, b, c", "a, b, c, d -> a, b // 4, c, d, b % 4")),
    ((14, 6, 1, 1), ("a, b, c, d -> a // 8, b // 4, c, d, b % 4, a % 8",)),
    ((4, 6), ("a, b -> a * 6 + b",)),
    ((5, 7), ("a, b -> b // 2, a, b % 2", "a, b, c -> c, b, a")),
]


@pytest.mark.parametrize(("shape", "texts"), MAPS)
def test_a_constant_is_packed_as_its_maps_say(shape: tuple[int, ...], texts: tuple[str, ...]) -> None:
    maps = tuple(map(IndexMap.parse, texts))
    array = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    constants, (value,) = pool_of(array)
    offset = constants.offset(value, maps)
    wanted = packed(array, maps)
    assert constants.pool.bytes == -(-wanted.nbytes // ALIGNMENT) * ALIGNMENT
    np.testing.assert_array_equal(at(written(constants), offset, wanted), wanted)


@settings(max_examples=80, deadline=None)
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)),
    st.permutations("abc"),
    st.sampled_from("abc"),
    st.integers(1, 5),
)
def test_any_split_and_order(shape: tuple[int, ...], order: list[str], split: str, size: int) -> None:
    parts = [f"{name} // {size}" if name == split else name for name in order]
    maps = (IndexMap.parse(f"a, b, c -> {', '.join(parts)}, {split} % {size}"),)
    array = np.arange(1, 1 + np.prod(shape), dtype=np.int64).reshape(shape)
    constants, (value,) = pool_of(array)
    offset = constants.offset(value, maps)
    wanted = packed(array, maps)
    np.testing.assert_array_equal(at(written(constants), offset, wanted), wanted)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.float32).reshape(4, 6).T,
        np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1::3],
        np.arange(6, dtype=np.float32)[::-1],
        np.broadcast_to(np.float32(3), (4, 5)),
        np.asfortranarray(np.arange(12, dtype=np.float64).reshape(3, 4)),
        np.array(5, np.int64),
        np.array([True, False, True]),
        np.array([1.5, -0.0], np.float16),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
@pytest.mark.parametrize("turned", [False, True])
def test_arrays_of_any_strides_and_types(array: Array, *, turned: bool) -> None:
    maps = (IndexMap.parse("a, b -> b, a"),) if turned and array.ndim == 2 else ()
    constants, (value,) = pool_of(array)
    offset = constants.offset(value, maps)
    wanted = packed(array, maps)
    assert at(written(constants), offset, wanted).tobytes() == np.ascontiguousarray(wanted).tobytes()


def test_an_array_without_elements_takes_no_bytes() -> None:
    constants, (empty, other) = pool_of(np.zeros((0, 3), np.float32), np.ones(1, np.float32))
    assert constants.offset(empty, ()) == 0
    assert constants.offset(other, ()) == 0
    assert written(constants) == np.float32(1).tobytes() + bytes(60)


def test_the_order_is_that_of_the_questions() -> None:
    """So equal compiles give equal libraries."""
    constants, (a, b) = pool_of(np.full(16, 1, np.float32), np.full(16, 2, np.float32))
    assert (constants.offset(b, ()), constants.offset(a, ())) == (0, 64)
    assert written(constants) == np.full(16, 2, np.float32).tobytes() + np.full(16, 1, np.float32).tobytes()


def test_equal_constants_of_several_graphs_lie_in_one_place() -> None:
    """By elements and type; repeated ones, whose memory is one element, too."""
    pool = ConstantPool()
    line, same = np.arange(4, dtype=np.float32), np.broadcast_to(np.float32(2), (4,))
    first, values = graph_of(pool, line, same, by_content=True)
    second, others = graph_of(pool, same.copy(), line.copy(), line.view(np.int32), line[:3], by_content=True)
    maps = (IndexMap.parse("a -> a // 2, a % 2"),)
    places = [first.offset(value, ()) for value in values]
    assert places == [0, 64]
    assert second.offset(others[1], ()) == places[0]
    assert second.offset(others[1], maps) == 128, "another layout"
    assert [second.offset(value, ()) for value in others[2:]] == [192, 256], "another type, another shape"
    data = written(second)
    for offset, array in zip((0, 64, 192, 256), (line, same, line.view(np.int32), line[:3]), strict=True):
        np.testing.assert_array_equal(at(data, offset, array), array)
