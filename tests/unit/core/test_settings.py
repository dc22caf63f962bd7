"""Environment variables: defaults, readings, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.core import settings as module
from compiler.core.diagnostics import UsageError
from compiler.core.settings import KNOBS, child_environment, load_settings, usable_processors


def test_defaults() -> None:
    settings = load_settings({"HOME": "/nowhere"})
    assert settings.cache_dir == Path("/nowhere/.cache/tk")
    assert (settings.cxx, settings.threads, settings.debug) == (None, None, False)
    assert settings.jobs == usable_processors()


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"TK_CACHE_DIR": "/x/y"}, "/x/y"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/tk"),
        ({"TK_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/x"}, "/a"),
    ],
)
def test_cache_directory(env: dict[str, str], expected: str) -> None:
    assert load_settings(env).cache_dir == Path(expected)


def test_values() -> None:
    env = {"TK_CXX": "clang++", "TK_JOBS": "3", "TK_THREADS": "5", "TK_DEBUG": "yes", "HOME": "/h"}
    settings = load_settings(env)
    assert (settings.cxx, settings.jobs, settings.threads, settings.debug) == ("clang++", 3, 5, True)


@pytest.mark.parametrize("name", ["TK_JOBS", "TK_THREADS"])
@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "²"])
def test_bad_numbers_name_the_variable(name: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_settings({name: text, "HOME": "/h"})
    assert name in caught.value.what
    assert text in caught.value.why


def test_bad_switch() -> None:
    with pytest.raises(UsageError, match="TK_DEBUG"):
        load_settings({"TK_DEBUG": "maybe", "HOME": "/h"})


def test_knobs_are_described() -> None:
    assert all(knob.name.startswith("TK_") and knob.meaning and knob.default for knob in KNOBS)
    assert len({knob.name for knob in KNOBS}) == len(KNOBS)


def test_child_environment_speaks_english() -> None:
    env = child_environment(EXTRA="1")
    assert env["LC_ALL"] == "C.UTF-8"
    assert env["EXTRA"] == "1"


def test_no_variable_gives_compilers_other_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CPATH", "CPLUS_INCLUDE_PATH", "DEPENDENCIES_OUTPUT", "LIBRARY_PATH"):
        monkeypatch.setenv(name, "somewhere")
    found = module.compiler_environment(TMPDIR="here")
    assert found["TMPDIR"] == "here"
    assert found["LIBRARY_PATH"] == "somewhere"
    assert not {"CPATH", "CPLUS_INCLUDE_PATH", "DEPENDENCIES_OUTPUT"} & found.keys()
    assert "LIBRARY_PATH=somewhere" in module.compiler_variables()


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({"TK_TUNING_DB": "/d/t.db", "XDG_DATA_HOME": "/x", "HOME": "/h"}, "/d/t.db"),
        ({"TK_TUNING_DB": "", "XDG_DATA_HOME": "/x", "HOME": "/h"}, "/x/tk/tuning.db"),
        ({"HOME": "/h"}, "/h/.local/share/tk/tuning.db"),
    ],
)
def test_the_tuning_database_lies_with_the_users_data(env: dict[str, str], path: str) -> None:
    assert load_settings(env).tuning_db == Path(path)
