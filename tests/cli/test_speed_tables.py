"""`just bench` and the kernels of a network: what the tables say, also where an engine fails."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("onnxruntime", reason="the reference of the measurements")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the benchmarks by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module


def test_an_engine_that_fails_is_a_row_with_its_reason(module: Any, tmp_path: Path) -> None:
    peers = module("peers")

    def missing(*_: object) -> Any:
        raise ModuleNotFoundError("No module named 'openvino'")

    engines = {**peers.engines_of(""), "openvino": missing}
    one = peers.measure("mnist", 1, 0.1, engines, tmp_path)
    (group,) = peers.groups_of([], ["mnist"], 1)
    facts = {
        "versions": {},
        "processor": "",
        "processors": 1,
        "compiler": "",
        "run": "",
        "when": "",
        "load": 0,
    }
    text = peers.report([one], [group], list(engines), facts)
    row = next(line for line in text.splitlines() if line.startswith("| mnist"))
    _, _, _, reference, other, ours, ratio, error, _ = (cell.strip() for cell in row.split("|"))
    assert other == "-"
    assert float(ratio) == pytest.approx(one.times["tk"].best / one.times["onnxruntime"].best, abs=0.01)
    assert float(reference) > 0 < float(ours)
    assert float(error) < 1e-5
    assert "- mnist, openvino: ModuleNotFoundError: No module named 'openvino'" in text


def test_ratios_are_to_the_best_other_engine_and_meet_bars(module: Any) -> None:
    peers, support = module("peers"), module("support")

    def measured(network: str, **times: float) -> Any:
        one = peers.Measured(network, 1, 1.0)
        one.times = {name: support.Times(9.0, best, 9.0, 1) for name, best in times.items()}
        return one

    light, newer, _ = peers.groups_of([], [], 1)
    results = [
        measured("vgg19", tk=3.0, onnxruntime=9.0, openvino=4.0),
        measured("resnet50", tk=2.0, openvino=4.0),
    ]
    assert [one.ratio() for one in results] == [0.75, 0.5]
    assert peers.verdict(results, light).endswith("worst 0.75 in vgg19 (bar 0.9), 2 of 2 networks: reached")
    assert peers.verdict([*results, measured("x", tk=0.1)], light).endswith("2 of 3 networks: not reached")
    assert peers.verdict([measured("unet", tk=1.1, openvino=1.0)], newer).endswith("not reached")


def test_every_kernel_of_a_network_has_a_bound(module: Any, tmp_path: Path) -> None:
    kernels = module("network_kernels")
    found = kernels.measure("mnist", arch="", threads=1, seconds=0.1, directory=tmp_path)
    assert sum(one.share for one in found.rows) == pytest.approx(100.0)
    assert sum(one.ms for one in found.rows) == pytest.approx(found.kernels_ms)
    assert {one.asked for one in found.rows if "Conv" in one.operators} == {85.0}
    assert all(one.percent > 0 for one in found.rows)
    assert f"peak {found.peak_gflops:.0f} GFLOP/s" in kernels.table(found)


class Rates:
    """A machine of 100 operations a second, as many bytes of a cache of 1000, and 10 of memory."""

    flops = 100.0
    read = copy = partial(lambda size: 100.0 if size <= 1000 else 10.0)
    cache = partial(lambda size: "L1" if size <= 1000 else "memory")


@pytest.mark.parametrize(
    ("flops", "constants", "read", "written", "name", "seconds"),
    [
        (1500, 100, 100, 100, "peak", 15.0),
        (100, 100, 100, 100, "memory", 12.0),
        (100, 0, 400, 400, "L1", 8.0),
        (100, 0, 4000, 400, "memory", 440.0),
    ],
)
def test_a_bound_is_the_longer_time(
    module: Any, flops: int, constants: int, read: int, written: int, name: str, seconds: float
) -> None:
    kernels = module("network_kernels")
    work = kernels.Work(flops, constants, read, written, "")
    bound = kernels.bound_of(work, Rates, 5000)
    assert (bound.name, bound.seconds) == (name, pytest.approx(seconds))


def test_a_compile_is_not_charged_with_memory_of_the_benchmark(module: Any, tmp_path: Path) -> None:
    held = bytearray(b"x") * (400 << 20)
    model = module("support").model_path("mnist", tmp_path)
    arguments = (str(model), "-o", str(tmp_path / "sources"), "--emit", "source")
    _, seconds, peak = module("compile_time").compile_in_child(tmp_path, *arguments)
    assert seconds > 0
    assert 20 << 20 < peak < len(held)
