"""Device functions of one sample of a free batch: where a block finds its own."""

from __future__ import annotations

import pytest

from compiler.loops.text import parse_func
from compiler.render.device import render_launches
from compiler.render.launch import DeviceText
from compiler.render.vocabulary_cuda import CUDA
from compiler.render.vocabulary_opencl import OPENCL_CPU
from compiler.targets import get_target
from compiler.verify.emulate import split_module
from tests.support.kernels import lower_all

SCALE = """
func scale(x: f32[ROWS,64], w: f32[64]) -> (y: f32[ROWS,64]) {samples = (100, APART, 0, APART,)}
  for r in 0..ROWS bound(blockIdx.z)
    for i in 0..64 bound(threadIdx.x)
      block y(v: spatial ROWS = r, u: spatial 64 = i)
        reads x[v,u], w[u]
        writes y[v,u]
        y[v,u] = x[v,u] * w[u]
"""


def rendered(rows: int) -> DeviceText:
    facts = get_target("cuda:sm_80").facts
    text = SCALE.replace("ROWS", str(rows)).replace("APART", str(64 * rows + 4))
    return render_launches(lower_all(parse_func(text), facts), 0, CUDA, facts)


def test_each_tensor_of_samples_has_a_pointer_to_the_blocks_own() -> None:
    made = rendered(3)
    assert "const float * b0s = b0 + (int64_t)((int)blockIdx.z / 3) * 196;" in made.text
    assert "float *__restrict__ b2s = b2 + (int64_t)((int)blockIdx.z / 3) * 196;" in made.text
    assert "b1s" not in made.text, "all samples share it"
    assert "= (int)blockIdx.z % 3;" in made.text
    assert made.launches[0].grid == (1, 1, 3), "of one sample: the runtime knows how many there are"


def test_blocks_of_a_cluster_stand_side_by_side_in_each_sample() -> None:
    facts = get_target("cuda:sm_90").facts
    text = SCALE.replace("ROWS", "3").replace("APART", "196").replace("blockIdx.z", "blockRank")
    made = render_launches(lower_all(parse_func(text), facts), 0, CUDA, facts)
    assert "__cluster_dims__(1, 1, 3)" in made.text
    assert "const float * b0s = b0 + (int64_t)((int)blockIdx.z / 3) * 196;" in made.text
    assert "= (int)blockIdx.z % 3;" in made.text, "the rank"
    assert made.launches[0].grid == (1, 1, 3)


def test_a_sample_is_a_block_along_z_where_it_has_no_more() -> None:
    made = rendered(1)
    assert "b0 + (int64_t)((int)blockIdx.z) * 68;" in made.text


@pytest.mark.parametrize("rows", [1, 3])
def test_the_emulator_is_told_how_much_there_is(rows: int) -> None:
    (kernel,) = split_module(CUDA.module([rendered(rows).text])).kernels
    each = 64 * rows
    assert kernel.sizes == (f"b0[{each}+{each + 4}/{rows}]", "b1[64]", f"b2[{each}+{each + 4}/{rows}]")


def test_blocks_that_deal_out_work_have_memory_of_their_own_in_each_sample() -> None:
    """A private array of a device that is a processor, too large for a block's share of the fast memory."""
    facts = get_target("opencl-cpu").facts
    count = 1 << 20
    text = f"""
func twice(x: f32[{count}]) -> (y: f32[{count}]) {{samples = (100, {count}, {count},)}}
  for b in 0..2 parallel
    alloc t: f32[{count}] @scratch
    for i in 0..{count}
      t[i] = x[i]
    for j in 0..{count}
      y[j] = t[{count - 1} - j] + t[b]
"""
    made = render_launches(parse_func(text), 0, OPENCL_CPU, facts)
    assert made.launches[0].block_bytes >= 4 * count
    assert (
        "own + (long)((long)get_group_id(2) * (long)get_num_groups(0) + (long)get_group_id(0))" in made.text
    )
