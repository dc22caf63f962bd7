"""`tk compile` takes what was tuned, says so, and takes nothing that was measured otherwise."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler import SizeRange, SpecialisedSizes
from compiler.core.settings import load_settings
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.tune.candidate import make_candidate
from compiler.tune.database.store import Database
from compiler.tune.environment import environment_here
from tests.support.command import tk
from tests.support.onnx_models import model
from tests.support.sized_models import SIZED
from tests.support.tuned import job_of, record_of, tune, workloads_of

pytestmark = pytest.mark.usefixtures("empty_cache")
X = np.linspace(-1, 1, 24 * 36, dtype=np.float32).reshape(24, 36)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A product of matrices, and a place for the user's own database where there is none yet."""
    monkeypatch.setenv("TK_TUNING_DB", str(tmp_path / "own" / "tuning.db"))
    weights = np.linspace(1, 2, 36 * 48, dtype=np.float32).reshape(36, 48)
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": X}, ["y"], {"w": weights})
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def own() -> Path:
    found = load_settings().tuning_db
    assert found is not None
    return found


def compiled(path: Path, **options: object) -> compiler.CompileReport:
    output = path.with_suffix(".so")
    return compiler.compile_model(path, compiler.CompileOptions(output=output, **options))  # type: ignore[arg-type]


def kernel(path: Path) -> dict[str, object]:
    (found,) = compiler.manifest_of(path.with_suffix(".so"))["kernels"]
    return dict(found)


def test_a_record_is_compiled_with_and_named(path: Path) -> None:
    before = compiled(path)
    default = kernel(path)
    (record,) = tune(path, own())
    report = compiled(path)
    assert (before.tuned, before.cached, report.tuned, report.near_hits) == (0, False, 1, 0)
    found = kernel(path)
    wanted = {name: list(value) for name, value in record.decisions.items()}
    assert (default["record"], found["record"]) == ("", record.id)
    assert found["decisions"] == wanted != default["decisions"]
    assert found["workload"] == default["workload"] == record.workload
    assert found["source_sha256"] != default["source_sha256"]
    with compiler.load(path.with_suffix(".so")) as loaded:
        weights = np.linspace(1, 2, 36 * 48, dtype=np.float32).reshape(36, 48)
        np.testing.assert_allclose(loaded.run({"x": X})["y"], X @ weights, rtol=1e-4, atol=1e-4)
    assert compiled(path, own_database=False).tuned == 0
    assert kernel(path) == default


def test_the_form_of_a_kernel_is_one_of_its_decisions(path: Path) -> None:
    weights = np.ones((36, 48), np.float32)
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": X[:1]}, ["y"], {"w": weights})
    onnx.save(proto, path)
    (workload,) = workloads_of(path)
    assert len(workload.forms) > 1
    compiled(path)
    (default,) = kernel(path)["decisions"][workload.decision]  # type: ignore[index]
    job = job_of(path)
    wanted = ReplayChooser({workload.decision: (1 - default,)}, AnalyticChooser())
    record = record_of(
        make_candidate(workload, job.target, wanted), environment_here(job.target, job.settings)
    )
    Database.open(own()).add([record], [workload])
    assert compiled(path).tuned == 1
    found = kernel(path)
    assert found["decisions"] == {name: list(value) for name, value in record.decisions.items()}
    assert found["decisions"][workload.decision] == [1 - default]  # type: ignore[index]


def test_a_finished_library_is_not_handed_out_when_records_have_changed(path: Path) -> None:
    (first,) = tune(path, own())
    assert not compiled(path).cached
    again = compiled(path)
    assert (again.cached, again.tuned) == (True, 1)
    (second,) = tune(path, own(), seconds=(0.5e-3,))
    report = compiled(path)
    assert (report.cached, report.tuned, kernel(path)["record"]) == (False, 1, second.id)
    Database.open(own()).withdraw([first.id, second.id], "no gain in the network")
    report = compiled(path)
    assert (report.cached, report.tuned, kernel(path)["record"]) == (False, 0, "")


@pytest.mark.parametrize("name", ["device", "arch", "compiler", "flags", "driver", "threads"])
def test_a_record_of_another_environment_is_named_and_not_used(path: Path, name: str) -> None:
    other = 77 if name == "threads" else "another"
    (record,) = tune(path, own(), lambda one: replace(one, **{name: other}))  # type: ignore[arg-type]
    report = compiled(path)
    assert (report.tuned, report.near_hits, report.near_keys) == (0, 1, (name,))
    assert kernel(path)["record"] == ""
    trusted = compiled(path, trust=True)
    assert (trusted.tuned, kernel(path)["record"]) == (1, record.id)
    assert compiled(path, trust=True).near_keys == (name,)  # from the cache, too


def test_another_version_that_makes_the_same_program_is_a_hit(path: Path) -> None:
    (record,) = tune(path, own(), lambda one: replace(one, tk="0.0.1+0"))
    assert compiled(path).tuned == 1
    assert kernel(path)["record"] == record.id


def test_rules_that_make_another_program_are_a_near_hit(path: Path) -> None:
    tune(path, own(), lambda one: replace(one, tk="0.0.1+0"), program="of other rules")
    report = compiled(path)
    assert (report.tuned, report.near_hits, report.near_keys) == (0, 1, ("program",))


def test_a_hit_counts_more_than_a_faster_near_hit(path: Path) -> None:
    (hit,) = tune(path, own(), seconds=(2e-3,))
    tune(path, own(), lambda one: replace(one, device="faster"), seconds=(1e-6,))
    assert compiled(path).near_hits == 0
    assert kernel(path)["record"] == hit.id


def test_a_view_shows_what_a_compile_takes(path: Path) -> None:
    (record,) = tune(path, own())
    request = compiler.ViewRequest(path, compiler.CompileOptions(output=Path()), profile=False)
    (shown,) = compiler.view_compile(request).kernels
    assert shown.trace == record.trace


def test_databases_count_together(path: Path, tmp_path: Path) -> None:
    (slow,) = tune(path, own(), seconds=(2e-3,))
    (fast,) = tune(path, tmp_path / "theirs.db", seconds=(1e-3,))
    assert compiled(path).tuned == 1
    assert kernel(path)["record"] == slow.id
    assert compiled(path, databases=(tmp_path / "theirs.db",)).tuned == 1
    assert kernel(path)["record"] == fast.id
    with pytest.raises(compiler.BadInputError, match="no tuning database"):
        compiled(path, databases=(tmp_path / "typo.db",))


def test_a_database_that_was_only_begun_is_an_empty_one(path: Path) -> None:
    own().parent.mkdir()
    own().touch()
    assert compiled(path).warnings == ()
    tune(path, own())
    assert compiled(path).tuned == 1


@pytest.mark.parametrize("content", [b"no database" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_database_is_a_warning(path: Path, content: bytes) -> None:
    own().parent.mkdir()
    own().write_bytes(content)
    report = compiled(path)
    assert report.tuned == 0
    (warning,) = report.warnings
    assert str(own()) in warning
    assert path.with_suffix(".so").exists()


def test_somebody_elses_database_is_a_warning(path: Path) -> None:
    own().parent.mkdir()
    with sqlite3.connect(own()) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    (warning,) = compiled(path).warnings
    assert "meta" in warning


def test_the_command_says_how_many_kernels_are_tuned(path: Path, tmp_path: Path) -> None:
    assert "tuned" not in tk("compile", path, cwd=tmp_path).out
    tune(path, own(), lambda one: replace(one, compiler="cc 1"))
    assert (
        "tuned      0 of 1; records of 1 kernel differ in: compiler" in tk("compile", path, cwd=tmp_path).out
    )
    assert "tuned      1 of 1" in tk("compile", path, "--trust", cwd=tmp_path).out
    assert "in 1 kernel, 1 of them tuned" in tk("inspect", "m.so", cwd=tmp_path).out
    (shown,) = tk("inspect", "m.so", "--json", cwd=tmp_path).json["kernels"]
    assert shown["record"] == kernel(path)["record"] != ""
    assert "tuned" not in tk("compile", path, "--no-db", cwd=tmp_path).out


def test_what_was_tuned_for_one_size_is_in_a_specialisation_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels of free sizes are not tuned, those of one size are the same ones in both libraries."""
    monkeypatch.setenv("TK_TUNING_DB", str(tmp_path / "own" / "tuning.db"))
    onnx.save(SIZED["attention"](), tmp_path / "m.onnx")
    made = tune(tmp_path / "m.onnx", own(), options={"dims": {"B": 2, "S": 16}})
    compiled(
        tmp_path / "m.onnx",
        dims={"B": SizeRange(1, 8), "S": SizeRange(1, 64)},
        specialisations=(SpecialisedSizes({}, {"B": 2, "S": 16}),),
    )
    manifest = compiler.manifest_of(tmp_path / "m.so")
    (special,) = manifest["specialisations"]
    records = [
        {manifest["kernels"][step["kernel"]]["record"] for step in one["steps"]}
        for one in (manifest, special)
    ]
    assert records[1] >= {one.id for one in made}
    assert not records[0] & {one.id for one in made}
