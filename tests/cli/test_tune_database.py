"""`tk tune stats`, `show`, `export`, `import`, `merge`, `prune` and `migrate` as they are typed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.schedule.chooser import AnalyticChooser
from compiler.tune.candidate import make_candidate
from compiler.tune.database.store import Database
from compiler.tune.environment import environment_here
from tests.support.command import Result, environment
from tests.support.onnx_models import model
from tests.support.tuned import job_of, plain_record, product, record_of, tune, workloads_of

Tk = Callable[..., Result]
X = np.linspace(-1, 1, 24 * 36, dtype=np.float32).reshape(24, 36)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A product and a softmax, and a place for a database."""
    monkeypatch.setenv("TK_TUNING_DB", str(tmp_path / "t.db"))
    weights = np.linspace(1, 2, 36 * 48, dtype=np.float32).reshape(36, 48)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])]
    onnx.save(model(nodes, {"x": X}, ["y"], {"w": weights}), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_stats_say_hit_near_hit_and_miss(tk: Tk, path: Path, tmp_path: Path) -> None:
    nothing = tk("tune", "stats", path)
    assert nothing.code == 0
    assert "2 kernels: 2 not tuned" in nothing.err
    assert "no database has anything" in nothing.err
    job = job_of(path)
    here = environment_here(job.target, job.settings)
    (first, _) = workloads_of(path)
    default = record_of(make_candidate(first, job.target, AnalyticChooser()), here, (4e-3,))
    Database.open(tmp_path / "t.db").add([default], [first])
    (made, other) = tune(path, tmp_path / "t.db", seconds=(3e-3,))
    found = tk("tune", "stats", path, "--json").json["kernels"]
    assert [(one["kind"], one["record"]) for one in found] == [("hit", made.id), ("hit", other.id)]
    assert (found[0]["default_ms"], found[0]["best_ms"], found[0]["gain"]) == (4, 3, 0.25)
    assert (found[0]["records"], found[1]["records"], found[1]["gain"]) == (2, 1, None)
    (tmp_path / "t.db").unlink()
    tune(path, tmp_path / "t.db", lambda one: replace(one, driver="7", flags="-O9"))
    near = tk("tune", "stats", path, "--json").json["kernels"]
    assert [(one["kind"], one["differs"]) for one in near] == [("near", ["driver", "flags"])] * 2
    text = tk("tune", "stats", path, env={"COLUMNS": "200"})
    assert "MatMul" in text.out
    assert "driver, flags" in text.out
    assert "2 kernels: 2 near hit" in text.err


def test_show_a_workload_and_a_record(tk: Tk, path: Path, tmp_path: Path) -> None:
    made, _ = tune(path, tmp_path / "t.db", seconds=(3e-3, 2e-3))
    Database.open(tmp_path / "t.db").withdraw([made.id], "slower in the network")
    shown = tk("tune", "show", made.workload[:10])
    assert shown.code == 0
    assert "func kernel(" in shown.out
    assert f"record {made.id}" in shown.out
    assert "2.5 ms, 2 runs, checked by reference" in shown.out
    assert "withdrawn: slower in the network" in shown.out
    assert "(default: " in shown.out
    document = tk("tune", "show", made.id, "--json").json
    (record,) = document["records"]
    name, (default, taken) = next(iter(record["changed"].items()))
    assert list(made.decisions[name]) == taken != default
    assert document["trace"] == made.trace
    for word, said in (("zz", "names neither"), ("0123456789", "is called")):
        failed = tk("tune", "show", word)
        assert (failed.code, said in failed.err) == (2, True)


def test_from_one_machine_to_another(tk: Tk, path: Path, tmp_path: Path) -> None:
    made = tune(path, tmp_path / "t.db")
    out = tk("tune", "export", "best.jsonl", "--best")
    assert out.out == "best.jsonl: wrote 2 records of 2 workloads\n"
    assert tk("tune", "import", "best.jsonl", "--db", "new.db").out.endswith(
        "added 2 records of 2 workloads\n"
    )
    again = tk("tune", "import", "best.jsonl", "--db", "new.db")
    assert again.out == "best.jsonl: added 0 records of 2 workloads, 2 were there before\n"
    assert tk("tune", "merge", "new.db", "t.db", "--db", "third.db", "--json").json["merged"][1]["known"] == 2
    report = tk("compile", path, "--no-db", "--db", "third.db", "--json").json
    assert (report["tuned"], report["kernels"]) == (2, 2)
    (tmp_path / "best.jsonl").write_text((tmp_path / "best.jsonl").read_text().replace(made[0].id, "f" * 64))
    refused = tk("tune", "import", "best.jsonl", "--db", "fourth.db", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (3, 3)
    assert "line 3" in refused.json["error"]["why"] or "line 5" in refused.json["error"]["why"]


def test_prune_says_what_it_does(tk: Tk, path: Path, tmp_path: Path) -> None:
    workload = product(2, 3, 4)
    records = [plain_record(workload, 1e-3 * (n + 1)) for n in range(5)]
    database = Database.open(tmp_path / "t.db")
    database.add(records, [workload])
    said = tk("tune", "prune", "--keep", "2", "--dry-run").out
    assert said == "would remove 3 records and 0 failures, 0 workloads\nleft 2 records\n"
    assert len(database.tried(workload.key)) == 5
    assert tk("tune", "prune", "--keep", "2", "--json").json["removed"] == 3
    assert database.tried(workload.key) == records[:2]
    assert "version 1, nothing to do" in tk("tune", "migrate").out


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "words",
    [("show", "0123"), ("export", "e.jsonl"), ("merge", "t.db", "--db", "n.db"), ("prune",), ("migrate",)],
)
def test_a_damaged_database_ends_with_code_3(
    tk: Tk, path: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    missing = tk("tune", *words)
    assert missing.code == 3
    (tmp_path / "t.db").write_bytes(b"no database" * 100)
    (tmp_path / "e.jsonl").write_text('{"kind":"tk-tuning","version":1}\n')
    damaged = tk("tune", *words)
    assert damaged.code == 3
    assert damaged.err.startswith("error: the tuning database is damaged\nwhere: ")
    assert "hint: restore it" in damaged.err


def test_stats_with_a_damaged_database_warn(tk: Tk, path: Path, tmp_path: Path) -> None:
    (tmp_path / "t.db").write_bytes(b"no database" * 100)
    found = tk("tune", "stats", path)
    assert found.code == 0
    assert "the tuning database is not used" in found.err


# ---------------------------------------------------------------- SQLAlchemy, there or not

_BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "sqlalchemy":
            raise ModuleNotFoundError("No module named 'sqlalchemy'", name=name)
sys.meta_path.insert(0, Blocked())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "sqlalchemy" else found(name, *more)
from toolchain.main import main
sys.exit(main(sys.argv[1:]))
"""


def without_sqlalchemy(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", _BLOCKED, *map(str, words)]
    return subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


def test_without_sqlalchemy_a_compile_warns_and_goes_on(path: Path, tmp_path: Path) -> None:
    plain = without_sqlalchemy(tmp_path, "compile", path)
    assert (plain.returncode, "warning" in plain.stderr) == (0, False)  # there is no database
    tune(path, tmp_path / "t.db")
    warned = without_sqlalchemy(tmp_path, "compile", path)
    assert warned.returncode == 0
    assert "sqlalchemy is not installed (the extra `tune`)" in warned.stderr
    assert "tuned" not in warned.stdout
    refused = without_sqlalchemy(tmp_path, "tune", "stats", path)
    assert (refused.returncode, "tk-toolchain[tune]" in refused.stderr) == (4, True)


@pytest.mark.parametrize("tuned", [False, True])
def test_sqlalchemy_is_imported_only_to_look_kernels_up(path: Path, tmp_path: Path, tuned: bool) -> None:
    if tuned:
        tune(path, tmp_path / "t.db")

    def imports(*words: str) -> bool:
        argv = [sys.executable, "-X", "importtime", "-m", "toolchain", "compile", str(path), *words]
        done = subprocess.run(
            argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
        )
        assert "compiler.tune.use" in done.stderr
        return "sqlalchemy" in done.stderr

    assert imports() == tuned
    assert not imports()  # the library is in the cache
    assert not imports("--no-db", "--threads", "1")
