"""Parts of sums are fetched while others are multiplied: CUDA and HIP text in the emulator."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.core.diagnostics import TkError
from tests.support.emulated_models import emulate, text_only
from tests.support.merged_cases import merge
from tests.support.op_cases import Case, floats

CASES = (
    Case("Conv", [floats(1, 40, 14, 14), floats(48, 40, 3, 3)], {"pads": [1, 1, 1, 1]}, known=(1,)),
    Case("Conv", [floats(1, 64, 14, 14), floats(48, 64, 1, 1)], known=(1,)),
    Case("Conv", [floats(2, 30, 9, 11), floats(20, 30, 3, 2)], {"strides": [2, 1]}, known=(1,)),
    Case("MatMul", [floats(45, 130), floats(130, 72)], known=(1,)),
    Case("MatMul", [floats(3, 20, 100), floats(3, 100, 33)]),
    Case("Gemm", [floats(33, 200), floats(50, 200), floats(50)], {"transB": 1}, known=(1, 2)),
)
WAIT = re.compile(r"tk_async_wait<(\d+)>\(\);")


def texts(patch: pytest.MonkeyPatch, changed: Callable[[str], str] = str) -> list[str]:
    """The kernels' texts that are emulated from now on, changed on the way."""
    seen: list[str] = []

    def kept(text: str) -> str:
        start = text.index("// tk_k0_0")
        seen.append(changed(text[start:]))
        return text[:start] + seen[-1]

    text_only(patch, kept)
    return seen


@pytest.mark.parametrize(
    "target", [pytest.param("cuda-nvidia", marks=pytest.mark.slow), "cuda-nvidia:sm_80", "rocm-amd"]
)
def test_as_onnxruntime(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = texts(monkeypatch)
    together = merge("products", CASES)
    problems = together.problems(emulate(together.proto, together.feeds, target, tmp_path))
    assert not problems, "\n".join(problems)
    assert bool(WAIT.search(seen[0])) == target.endswith("sm_80")
    if not target.endswith("sm_80"):
        assert re.search(r"\+ 1\) % 2|\+ 1\) & 1", seen[0]), "two halves take turns"


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda text: WAIT.sub("", text), "asynchronous copy: "),
        (lambda text: WAIT.sub(lambda m: f"tk_async_wait<{int(m[1]) + 1}>();", text), "asynchronous copy: "),
        (lambda text: text.replace("__syncthreads();", ""), "race: |asynchronous copy: |uninitialised: "),
    ],
)
def test_the_emulator_finds_what_is_missing(
    change: Callable[[str], str], finding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts(monkeypatch, change)
    together = merge("one", CASES[1:2])
    with pytest.raises(TkError, match=finding):
        emulate(together.proto, together.feeds, "cuda-nvidia:sm_80", tmp_path)
