"""Numbers of streams, as DLPack's Python protocol has them."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from compiler import UsageError, load
from compiler.runtime import abi
from compiler.runtime.streams import CALLERS_STREAM, stream_option
from compiler.targets import get_target
from tests.support.sources import ROOT

POINTER = 0x7F0000001000
OWN = (None, 0)


CUDA, ROCM = (1, 2), (0,)


@pytest.mark.parametrize(
    ("defaults", "stream", "option"),
    [
        (CUDA, None, OWN),
        (CUDA, -1, OWN),
        (CUDA, 1, (1, CALLERS_STREAM)),
        (CUDA, 2, (2, CALLERS_STREAM)),
        (CUDA, POINTER, (POINTER, 0)),
        (ROCM, 0, (None, CALLERS_STREAM)),
        (ROCM, POINTER, (POINTER, 0)),
        (ROCM, -1, OWN),
        ((), POINTER, (POINTER, 0)),
    ],
)
def test_numbers_mean_what_dlpack_says(
    defaults: tuple[int, ...], stream: int | None, option: tuple[int | None, int]
) -> None:
    assert stream_option(defaults, stream) == option


@pytest.mark.parametrize(("defaults", "stream"), [(CUDA, 0), (CUDA, -2), (ROCM, 1), (ROCM, 2), ((), 0)])
def test_what_is_ambiguous_or_nothing_is_refused(defaults: tuple[int, ...], stream: int) -> None:
    with pytest.raises(UsageError, match=f"^{stream} is the number of no stream here"):
        stream_option(defaults, stream)


@pytest.mark.parametrize(
    ("target", "numbers"), [("cuda:sm_80", CUDA), ("rocm:gfx906", ROCM), ("opencl-cpu", ())]
)
def test_targets_know_the_numbers_of_theirs(target: str, numbers: tuple[int, ...]) -> None:
    device = get_target(target).device
    assert device is not None
    assert device.default_streams == numbers


def test_where_there_is_no_stream_there_is_no_default_one(library: Path) -> None:
    with pytest.raises(UsageError, match="no stream here"):
        load(library).context(stream=0)
    with pytest.raises(UsageError, match="stream must be null"):
        load(library).context(stream=POINTER)


def test_in_c_the_flag_needs_a_default_stream(library: Path) -> None:
    model = load(library)
    options = abi.TkContextOptions(ctypes.sizeof(abi.TkContextOptions), 0, CALLERS_STREAM, None)
    context = ctypes.c_void_p()
    status = model._api.context_open(model._handle, ctypes.byref(options), ctypes.byref(context))
    assert status != 0
    assert b"there is no default stream here" in model._api.last_error()


def test_the_flag_is_that_of_the_header() -> None:
    header = (ROOT / "compiler/runtime/include/tk_model.h").read_text()
    assert re.findall(r"TK_CONTEXT_CALLERS_STREAM = (\d+)", header) == [str(CALLERS_STREAM)]
