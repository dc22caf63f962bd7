"""The page of a search: predictions beside times, and the best schedule beside the default's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import compiler
from compiler.schedule.schedule import Schedule
from compiler.tune.record import Measured
from compiler.tune.report import TunedKernel, TuneReport
from tests.support.tuned import plain_record, product
from toolchain.tuning.page import PAGE, write_tuning_folder
from toolchain.tuning.schedules import marked_steps

pytest.importorskip("matplotlib", reason="charts are drawn by an extra")
WORK = product(24, 32, 48)


def trace(width: int) -> str:
    """Of a schedule that splits by this width, and runs rows at the same time."""
    made = Schedule(WORK.forms[0][1][0])
    made.split(made.loops("product")[1], (None, width))
    made.parallel(made.loops("product")[0])
    return made.trace.to_json()


def record(ms: float, tile: int, **notes: str) -> compiler.TuningRecord:
    decisions = {"product.tile": (tile, 3), "product.order": (0,)}
    return plain_record(
        WORK, decisions=decisions, measured=Measured("ok", (1e-3 * ms,)), trace=trace(tile), notes=notes
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    records = [
        record(2.0, 4, default="1"),
        record(1.0, 8, predicted="0.0012"),
        record(3.0, 2, predicted="0.0030"),
        record(4.0, 16, predicted="0.0025"),
    ]
    kernel = TunedKernel(
        "MatMul <x>", WORK.key, 1, 1.0, 2.0, 1.0, 4, changed={"product.tile": ((4, 3), (8, 3))}
    )
    report = TuneReport(Path("m.so"), "cpu", "x", 1, (kernel,), 2.0, 2.0, None, "time", 1.0, 4, 0, None)
    write_tuning_folder(folder, Path("m.onnx"), report, records)
    return (folder / PAGE).read_text()


def test_predicted_beside_measured(page: str) -> None:
    assert "Predicted and measured, the fastest candidate first" in page
    assert "predicted 3 of these candidates: it was 20 % off in the median" in page
    assert "of 67 % of the pairs it knew" in page  # 3.0 and 4.0 ms are the other way round


def test_decisions_that_differ_are_marked(page: str) -> None:
    rows = re.findall(
        r'<tr( class="differs")?><th scope="row">(product\.\w+)</th><td>([\d ]+)</td>\s*<td>(.*?)</td>', page
    )
    assert rows == [
        (' class="differs"', "product.tile", "4 3", "<mark>8 3</mark>"),
        ("", "product.order", "0", "0"),
    ]


def test_steps_that_differ_are_marked() -> None:
    before, after = marked_steps(trace(4), trace(8))
    assert [line.differs for line in before] == [line.differs for line in after] == [True, False]
    assert before[0].text.startswith('split(loop="')
    assert "[null, 4]" in before[0].text
    assert before[1].text == after[1].text


def test_one_schedule_is_not_compared(tmp_path: Path) -> None:
    kernel = TunedKernel("MatMul", WORK.key, 1, 1.0, 2.0, 2.0, 1)
    report = TuneReport(Path("m.so"), "cpu", "x", 1, (kernel,), 2.0, 2.0, None, "time", 1.0, 1, 0, None)
    write_tuning_folder(tmp_path, Path("m.onnx"), report, [record(2.0, 4, default="1")])
    text = (tmp_path / PAGE).read_text()
    assert "Decisions of the best schedule" not in text
    assert "The default is" in text
