"""For all tests: samples of many cases, a cache of their own, the command line, golden files."""

from __future__ import annotations

import difflib
import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.support import command, samples

pytest_plugins = (
    "tests.support.browser",
    "tests.support.engine",
    "tests.support.gpu_images",
    "tests.support.once",
    "tests.support.opencl_fixtures",
    "tests.support.sycl_ahead",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")
    parser.addoption("--record", metavar="FILE", help="note verified networks in FILE; leave out what it has")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """A worker more for every two processors: tests wait for engines, clocks and disks."""
    processors = len(os.sched_getaffinity(0))
    return processors + (processors + 1) // 2


@pytest.hookimpl(tryfirst=True)  # before workers start and tests are imported
def pytest_configure() -> None:
    """Keep what Python and pytest make of each source, as for a user, whatever the caller's environment says.

    Without, every worker and every process that a test starts compiles all modules anew.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: looking for garbage is an eighth of the time and finds none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Modules and thousands of tests stay to the end: collections of garbage need not look at them again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    samples.mark_rare(items)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache and a folder of the user's state that belong to this run, its workers and child processes."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    before = {name: os.environ.get(name) for name in ("TK_CACHE_DIR", "XDG_STATE_HOME", "XDG_DATA_HOME")}
    for name, folder in (("TK_CACHE_DIR", "cache"), ("XDG_STATE_HOME", "state"), ("XDG_DATA_HOME", "data")):
        (base / folder).mkdir(exist_ok=True)
        os.environ[name] = str(base / folder)
    yield base / "cache"
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture
def empty_cache(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without finished libraries; the objects of other tests may be used."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (own_cache / "objects").mkdir(exist_ok=True)
    (cache / "objects").symlink_to(own_cache / "objects")
    monkeypatch.setenv("TK_CACHE_DIR", str(cache))
    return cache


@pytest.fixture
def tk(tmp_path: Path) -> Callable[..., command.Result]:
    """Run `tk` in a directory of this test."""

    def run(*args: object, **options: object) -> command.Result:
        return command.tk(*args, **{"cwd": tmp_path, **options})  # type: ignore[arg-type]

    return run


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with `golden/<name>` beside the test file; `--update-golden` writes it."""

    def check(name: str, text: str) -> None:
        path = request.path.parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            return
        if not path.exists():
            pytest.fail(f"{path} is missing: run `bin/just golden` and review what it writes")
        expected = path.read_text()
        if text != expected:
            diff = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), "expected", "actual", lineterm=""
            )
            pytest.fail("\n".join([f"differs from {path}:", *diff, "if right: `bin/just golden`"]))

    return check
