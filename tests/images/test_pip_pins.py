"""Every pin of a Python package, resolved with the real index for the Python and the base that install it.

`--update-golden` writes down which Pythons each pin asks for; stubs and a quick test refuse by that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.support.python_pins import REQUIRES_PYTHON, PythonInstall, python_installs
from tests.support.recipes import shipped_names

pytestmark = [pytest.mark.slow, pytest.mark.network]

INSTALLS = sorted({one for name in shipped_names() for one in python_installs(name)}, key=repr)


def _resolved(install: PythonInstall, folder: Path) -> list[dict[str, Any]]:
    """What pip would install, by its own report."""
    report = folder / "report.json"
    argv = [
        *(sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"),
        *("--report", report, "--target", folder, "--only-binary", ":all:"),
        *("--python-version", install.python),
        *(word for one in install.platforms for word in ("--platform", one)),
        *install.pins,
    ]
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = [one["metadata"] for one in json.loads(report.read_text())["install"]]
    return found


@pytest.mark.parametrize("install", INSTALLS, ids=lambda one: f"{one.python}-{one.pins[0]}")
def test_pins_resolve_with_the_real_index(
    install: PythonInstall, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    found = _resolved(install, tmp_path)
    for one in found:  # pip itself compares with the Python that it runs on
        wanted = SpecifierSet(one.get("requires_python", ""))
        assert wanted.contains(install.python), f"{one['name']} {one['version']} needs Python {wanted}"
    asked = {one["name"]: f"{one['name']}=={one['version']}" for one in found}
    pinned = {canonicalize_name(pin.partition("==")[0]): pin for pin in install.pins}
    by_name = {canonicalize_name(name): pin for name, pin in asked.items()}
    assert {name: pin.partition("==")[2] for name, pin in pinned.items()}.items() <= {
        name: pin.partition("==")[2] for name, pin in by_name.items()
    }.items()
    if install.whole:
        assert by_name.keys() == pinned.keys(), "what is not named is not installed"
    said = {
        pinned[canonicalize_name(one["name"])]: str(SpecifierSet(one.get("requires_python", "")))
        for one in found
        if canonicalize_name(one["name"]) in pinned
    }
    known: dict[str, str] = json.loads(REQUIRES_PYTHON.read_text()) if REQUIRES_PYTHON.exists() else {}
    if request.config.getoption("--update-golden"):
        REQUIRES_PYTHON.write_text(json.dumps(dict(sorted({**known, **said}.items())), indent=2) + "\n")
    else:
        assert said.items() <= known.items()
