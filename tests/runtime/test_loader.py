"""A loaded model as Python sees it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from compiler import load
from compiler.core.diagnostics import BadInputError, TkError, UsageError
from compiler.core.process import run
from compiler.runtime import loader
from compiler.runtime.loader import SymbolicDim, TensorSpec, manifest_of
from tests.support.model_library import WEIGHTS, Builder, Feeds, assert_right, expected


def test_describes_itself(library: Path) -> None:
    model = load(library)
    rows = SymbolicDim(0, 1, 4096, 1)
    assert model.inputs == tuple(TensorSpec(name, "float32", (rows, 8), 4096 * 32) for name in ("x", "z"))
    assert model.outputs[1] == TensorSpec("total", "float32", (), 4)
    assert model.manifest == {"flops": 3, "kernels": []}


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("rows", [1, 3, 100, 4096])
def test_runs(library: Path, feeds: Feeds, rows: int, threads: int) -> None:
    with load(library).context(threads) as context:
        assert context.threads == threads
        for _ in range(3):
            given = feeds(rows)
            outputs = context.run(given)
            assert outputs["y"].shape == (rows, 8)
            assert_right(outputs, given)


def test_threads_of_a_context_can_change(library: Path, feeds: Feeds) -> None:
    context = load(library).context(1)
    for threads in (4, 1, 2):
        context.threads = threads
        assert context.threads == threads
        assert_right(context.run(feeds(64)), feeds(64))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": np.zeros((3, 8))}, ["input 'x'", "float32[1..4096,8]", "float64[3,8]", "element type"]),
        ({"x": np.zeros((3, 8, 1), "f")}, ["input 'x'", "3 dimensions, expected 2"]),
        ({"x": np.zeros((3, 7), "f")}, ["input 'x'", "dimension 1 is 7, expected 8"]),
        ({"x": np.zeros((0, 8), "f")}, ["input 'x'", "dimension 0 is 0, expected 1 to 4096"]),
        ({"x": np.zeros((4097, 8), "f")}, ["input 'x'", "dimension 0 is 4097"]),
        ({"z": np.zeros((4, 8), "f")}, ["input 'z'", "dimension 0 is 4", "before is 3"]),
        ({"x": [1.0]}, ["input 'x'", "list"]),
        ({"q": np.zeros((3, 8), "f")}, ["no input 'q'", "'x', 'z'"]),
    ],
)
def test_wrong_inputs_are_named(
    library: Path, feeds: Feeds, change: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(BadInputError) as caught:
        load(library).run({**feeds(3), **change})
    for word in words:
        assert word in str(caught.value)


def test_a_missing_input_is_named(library: Path, feeds: Feeds) -> None:
    with pytest.raises(BadInputError, match="input 'z' is missing"):
        load(library).run({"x": feeds(3)["x"]})


def test_an_error_does_not_stick(library: Path, feeds: Feeds) -> None:
    model = load(library)
    with pytest.raises(BadInputError):
        model.run({**feeds(3), "x": np.zeros(3)})
    assert_right(model.run(feeds(3)), feeds(3))


def test_strided_and_foreign_arrays(library: Path, feeds: Feeds) -> None:
    given = feeds(6)
    wide = np.zeros((6, 16), np.float32)
    wide[:, ::2] = given["x"]

    class OnlyDlpack:
        def __dlpack__(self, **options: Any) -> Any:
            return given["z"].__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return given["z"].__dlpack_device__()

    assert_right(load(library).run({"x": wide[:, ::2], "z": OnlyDlpack()}), given)


def test_outputs_of_the_caller(library: Path, feeds: Feeds) -> None:
    given = feeds(4096)
    out = {"y": np.full((4096, 8), np.nan, np.float32), "total": np.empty((), np.float32)}
    outputs = load(library).run(given, out=out)
    assert outputs["y"] is out["y"]
    assert_right(out, given)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((4096, 8)),
        np.zeros((5, 8), "f"),
        np.zeros((8, 4096), "f").T,
        np.broadcast_to(np.float32(0), (4096, 8)),
    ],
)
def test_unfit_outputs_are_refused(library: Path, feeds: Feeds, array: NDArray[Any]) -> None:
    with pytest.raises(BadInputError, match="output 'y'"):
        load(library).run(feeds(3), out={"y": array})


@pytest.mark.parametrize("name", ["x", "z"])
@pytest.mark.parametrize("threads", [1, 2])
def test_in_place(library: Path, feeds: Feeds, name: str, threads: int) -> None:
    """x is dead when y is written; z is read by the step that writes y."""
    given = feeds(4096)
    want = expected(given)["y"]
    outputs = load(library).context(threads).run(given, out={"y": given[name]})
    np.testing.assert_allclose(outputs["y"], want, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(given[name], want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shift", [-8, 8])
def test_output_that_lies_across_an_input(library: Path, feeds: Feeds, shift: int) -> None:
    """Overlapping by all but one row: whatever order rows are computed in, the input must be read first."""
    given = feeds(4096)
    memory = np.zeros(4098 * 8, np.float32)
    z = memory[8 : 8 + 4096 * 8].reshape(4096, 8)
    z[...] = given["z"]
    y = memory[8 + shift : 8 + shift + 4096 * 8].reshape(4096, 8)
    load(library).context(2).run({"x": given["x"], "z": z}, out={"y": y})
    np.testing.assert_allclose(y, expected(given)["y"], rtol=1e-6, atol=1e-6)


def test_outputs_must_not_overlap(library: Path, feeds: Feeds) -> None:
    memory = np.zeros((4096, 8), np.float32)
    with pytest.raises(BadInputError, match="'y' and 'total' share memory"):
        load(library).run(feeds(4096), out={"y": memory, "total": memory[5, 5:6].reshape(())})


def test_bound_arrays_are_read_at_each_run(library: Path, feeds: Feeds) -> None:
    given = feeds(10)
    bound = load(library).context(2).bind(given)
    bound.run()
    assert_right(bound.outputs(), given)
    given["x"] += 1
    bound.run()
    assert_right(bound.outputs(), given)


def test_profile_times_each_step(library: Path, feeds: Feeds) -> None:
    times = load(library).context(2).profile(feeds(4096))
    assert [time.kernel for time in times] == [0, 1, 2]
    assert all(0 < time.nanoseconds < 10**9 for time in times)


def test_a_run_is_measured(library: Path, feeds: Feeds) -> None:
    bound = load(library).context(2).bind(feeds(4096))
    times = bound.measure()
    assert times is not None
    assert 0 < times.kernels == times.with_copies < 10**9
    assert_right(bound.outputs(), feeds(4096))


def test_subnormal_numbers(library: Path) -> None:
    tiny = np.float32(1e-40)
    feeds = {"x": np.full((2, 8), tiny), "z": np.full((2, 8), tiny)}
    model = load(library)
    kept = model.context(1).run(feeds)["y"]
    np.testing.assert_allclose(kept, feeds["x"] * WEIGHTS + tiny, rtol=1e-3, atol=0)
    assert np.any(kept != 0)
    assert not np.any(model.context(1, flush_subnormals=True).run(feeds)["y"])
    assert np.any(model.context(2).run(feeds)["y"] != 0), "the setting is the context's, not the thread's"


def test_threads_with_a_context_each(library: Path, feeds: Feeds) -> None:
    model = load(library)
    failures: list[str] = []

    def work(seed: int) -> None:
        context = model.context(1 + seed % 3)
        for i in range(200):
            given = feeds(1 + (seed * 37 + i) % 500)
            try:
                assert_right(context.run(given), given)
            except (AssertionError, TkError) as error:
                failures.append(str(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_one_context_in_two_threads_is_refused(library: Path, feeds: Feeds) -> None:
    context = load(library).context(1)
    bound = context.bind(feeds(4096))
    refused: list[UsageError] = []

    def work() -> None:
        for _ in range(3000):
            try:
                bound.run()
            except UsageError as error:
                refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused, "4 threads never met in 12000 runs"
    assert "one context per thread" in str(refused[0])


def test_several_models_share_one_pool(builder: Builder, feeds: Feeds, tmp_path: Path) -> None:
    """Two libraries of different content, loaded privately, with 4 threads each: 3 threads in all."""
    other = np.arange(8, dtype=np.float32)
    first = builder.library(tmp_path / "first.so")
    second = builder.library(tmp_path / "second.so", constants=bytes(64) + other.tobytes())
    script = f"""
import numpy as np, os, sys
from pathlib import Path
from compiler import load
x = np.ones((100, 8), np.float32)
before = len(os.listdir("/proc/self/task"))
models = [load(path) for path in {[str(first), str(second)]!r}]
contexts = [model.context(4) for model in models]
for _ in range(50):
    a, b = (context.run({{"x": x, "z": x}})["y"][0] for context in contexts)
names = [Path(f"/proc/self/task/{{t}}/comm").read_text().strip() for t in os.listdir("/proc/self/task")]
print(names.count("tk-pool"), len(names) - before, *a, *b)
"""
    done = run([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    workers, new, *values = done.stdout.split()
    assert workers == new == "3"
    np.testing.assert_allclose([float(value) for value in values], [*(WEIGHTS + 1), *(other + 1)], rtol=1e-6)


def test_a_forked_child_runs_too(library: Path) -> None:
    script = f"""
import numpy as np, os
from compiler import load
x = np.ones((4096, 8), np.float32)
context = load({str(library)!r}).context(2)
want = context.run({{"x": x, "z": x}})["y"]
child = os.fork()
if child == 0:
    same = all(np.array_equal(context.run({{"x": x, "z": x}})["y"], want) for _ in range(100))
    os._exit(0 if same and len(os.listdir("/proc/self/task")) == 2 else 1)
for _ in range(100):
    context.run({{"x": x, "z": x}})
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run([sys.executable, "-W", "ignore", "-c", script], cwd=Path(__file__).parents[2], timeout=30)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr


def test_a_rebuilt_library_is_loaded_anew(builder: Builder, feeds: Feeds, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    ones = {"x": np.ones((1, 8), "f"), "z": np.zeros((1, 8), "f")}
    old = load(builder.library(path))
    new = load(builder.library(path, constants=bytes(64) + np.full(8, 7, np.float32).tobytes()))
    np.testing.assert_array_equal(old.run(ones)["y"][0], WEIGHTS)
    np.testing.assert_array_equal(new.run(ones)["y"][0], np.full(8, 7))
    again = load(path)
    np.testing.assert_array_equal(again.run(ones)["y"][0], np.full(8, 7))


def test_names_may_be_anything_but_zero_bytes(builder: Builder, feeds: Feeds, tmp_path: Path) -> None:
    names = (("a/b:0", 'ü"\\%s\n'), ("", "x" * 5000))
    model = load(builder.library(tmp_path / "names.so", names=names))
    assert tuple(info.name for info in model.inputs) == names[0]
    assert tuple(info.name for info in model.outputs) == names[1]
    with pytest.raises(BadInputError, match="element type"):
        model.run({"a/b:0": feeds(3)["x"], names[0][1]: np.zeros((3, 8))})
    with pytest.raises(BadInputError, match="zero byte"):
        builder.library(tmp_path / "zero.so", names=(("a\0b", "z"), ("y", "total")))


def test_manifest_without_running_code(builder: Builder, tmp_path: Path) -> None:
    path = builder.library(
        tmp_path / "strange.so", '-DTEST_FEATURE="no-such-feature"', manifest=b'{"a": [1, "\xc3\xbc"]}'
    )
    assert manifest_of(path) == {"a": [1, "ü"]}


@pytest.mark.parametrize("damage", ["missing", "text", "empty", "half", "plain"])
def test_files_that_are_no_model_library(
    builder: Builder, library: Path, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / f"{damage}.so"
    if damage == "text":
        path.write_text("hello")
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "half":
        path.write_bytes(library.read_bytes()[:5000])
    elif damage == "plain":
        source = tmp_path / "plain.c"
        source.write_text("int x;")
        assert run([builder.cxx, "-shared", "-fPIC", "-x", "c", str(source), "-o", str(path)]).returncode == 0
    for read in (load, manifest_of):
        with pytest.raises(BadInputError) as caught:
            read(path)
        assert str(path) in str(caught.value)


def test_a_closed_model_says_so(library: Path, feeds: Feeds) -> None:
    with load(library) as model:
        model.run(feeds(3))
        context = model.context(1)
        bound = context.bind(feeds(3))
    model.close()
    context.close()
    uses = (
        lambda: model.run(feeds(3)),
        lambda: model.context(),
        lambda: context.run(feeds(3)),
        lambda: context.threads,
        bound.run,
        bound.profile,
        bound.measure,
    )
    for use in uses:
        with pytest.raises(UsageError, match="closed"):
            use()


def test_threads_out_of_range(library: Path) -> None:
    model = load(library)
    for threads in (0, -1, 100_000):
        with pytest.raises(UsageError):
            model.context(threads)


def test_contexts_are_closed_before_their_model(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of them is collected first: a context of a device needs its model to give memory back."""
    order: list[str] = []
    for name in ("_close_context", "_close_model"):
        close = getattr(loader, name)
        monkeypatch.setattr(loader, name, lambda *args, n=name, f=close: (f(*args), order.append(n)))
    model = load(library)
    kept = model.context()
    model._finalizer()
    assert order == ["_close_context", "_close_model"]
    kept.close()
    assert len(order) == 2
