"""Shared memory beyond what arrays of a fixed size may take: the launch asks for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compiler.core.diagnostics import BadInputError, HostError
from compiler.core.settings import load_settings
from compiler.core.target import TargetFacts
from compiler.loops.text import parse_func
from compiler.render.device import render_launches
from compiler.render.launch import DeviceText
from compiler.render.vocabulary_cuda import CUDA
from compiler.targets import get_target
from compiler.targets.device import Module
from tests.support.gpu import SM_70
from tests.support.kernels import lower_all

TURN = """
func turn(x: f32[COUNT]) -> (y: f32[COUNT])
  local t: f32[COUNT] @shared
  local s: f32[32] @shared
  for b in 0..1 bound(blockIdx.x)
    for i in 0..32 bound(threadIdx.x)
      for j in 0..EACH
        block t(v: spatial COUNT = j * 32 + i)
          reads x[v]
          writes t[v]
          t[v] = x[v] * 2.0
    for i1 in 0..32 bound(threadIdx.x)
      block s(u: spatial 32 = i1)
        reads t[31 - u]
        writes s[u]
        s[u] = t[31 - u]
    for i2 in 0..32 bound(threadIdx.x)
      for j2 in 0..EACH
        block y(w: spatial COUNT = j2 * 32 + i2)
          reads t[COUNT - 1 - w], s[31 - w % 32]
          writes y[w]
          y[w] = t[COUNT - 1 - w] + s[31 - w % 32]
"""


def rendered(bytes_of_t: int, facts: TargetFacts) -> DeviceText:
    count = bytes_of_t // 4
    func = parse_func(TURN.replace("COUNT", str(count)).replace("EACH", str(count // 32)))
    return render_launches(lower_all(func, facts), 0, CUDA, facts)


def test_small_arrays_have_a_fixed_size() -> None:
    made = rendered(32 << 10, get_target("cuda:sm_80").facts)
    assert "TK_SHARED_AT" not in made.text
    assert "__shared__ float s0[8192]" in made.text
    assert (made.launches[0].shared_bytes, made.launches[0].dynamic_bytes) == ((32 << 10) + 128, 0)


def test_large_ones_share_what_the_launch_asks_for() -> None:
    made = rendered(96 << 10, get_target("cuda:sm_80").facts)
    places = re.findall(r"TK_SHARED_AT\(float, (\w+), (\d+), (\d+)\);", made.text)
    assert [(int(size), int(at)) for _, size, at in places] == [(24576, 0), (32, 96 << 10)]
    assert "__shared__" not in made.text
    assert made.launches[0].shared_bytes == made.launches[0].dynamic_bytes == (96 << 10) + 128


def test_the_compiler_takes_them(tmp_path: Path) -> None:
    target = get_target("cuda:sm_80")
    assert target.device is not None
    text = CUDA.module([rendered(96 << 10, target.facts).text])
    settings = load_settings({"HOME": str(tmp_path), "TK_CACHE_DIR": str(tmp_path / "cache")})
    try:
        made = target.device.build(Module(text, (), "0"), target, settings)
    except HostError as error:
        pytest.skip(str(error))
    (resource,) = made.resources
    assert (resource.spills, resource.shared_bytes) == (0, 0), "no arrays of its own"


def test_more_than_an_architecture_has_is_refused() -> None:
    for arch, fits in (("sm_70", 95 << 10), ("sm_75", 63 << 10), ("sm_86", 98 << 10), ("sm_90", 226 << 10)):
        facts = get_target(f"cuda:{arch}").facts
        assert "TK_SHARED_AT" in rendered(fits, facts).text
        with pytest.raises(BadInputError, match="bytes of shared memory are too many"):
            rendered(fits + (2 << 10), facts)
    with pytest.raises(BadInputError, match="are too many"):
        rendered(64 << 10, SM_70)  # a device whose launches ask for nothing
