"""Numbers of streams, as DLPack's Python protocol has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compiler import UsageError, load
from compiler.runtime.streams import CALLERS_STREAM, stream_option
from tests.support.sources import ROOT

POINTER = 0x7F0000001000
OWN = (None, 0)


@pytest.mark.parametrize(
    ("target", "stream", "option"),
    [
        ("cuda-nvidia", None, OWN),
        ("cuda-nvidia", -1, OWN),
        ("cuda-nvidia", 1, (1, 0)),
        ("cuda-nvidia", 2, (2, 0)),
        ("cuda-nvidia", POINTER, (POINTER, 0)),
        ("rocm-amd", 0, (None, CALLERS_STREAM)),
        ("rocm-hygon", POINTER, (POINTER, 0)),
        ("rocm-amd", -1, OWN),
        ("sycl-nvidia", POINTER, (POINTER, 0)),
    ],
)
def test_numbers_mean_what_dlpack_says(
    target: str, stream: int | None, option: tuple[int | None, int]
) -> None:
    assert stream_option(target, stream) == option


@pytest.mark.parametrize(
    ("target", "stream", "said"),
    [
        ("cuda-nvidia", 0, "either of CUDA's default streams"),
        ("cuda-nvidia", -2, "no stream -2"),
        ("rocm-amd", 1, "no stream 1"),
        ("rocm-hygon", 2, "no stream 2"),
    ],
)
def test_what_is_ambiguous_or_nothing_is_refused(target: str, stream: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        stream_option(target, stream)


def test_where_there_is_no_stream_there_is_no_default_one(library: Path) -> None:
    with pytest.raises(UsageError, match="there is no default stream here"):
        load(library).context(stream=0)
    with pytest.raises(UsageError, match="stream must be null"):
        load(library).context(stream=POINTER)


def test_the_flag_is_that_of_the_header() -> None:
    header = (ROOT / "compiler/runtime/include/tk_model.h").read_text()
    assert re.findall(r"TK_CONTEXT_CALLERS_STREAM = (\d+)", header) == [str(CALLERS_STREAM)]
