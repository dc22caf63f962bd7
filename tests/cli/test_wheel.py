"""Wheel and source distribution work where there is no checkout, on every Python that is here and supported.

The wheel is made from the source distribution, so what is left out of that is missed in both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import ROOT, environment

PYTHONS = ("3.11", "3.12", "3.13")
TOPS = ("compiler", "toolchain", "recipes", "dockerfiles", "workflows", "examples")
_INSTALL_SECONDS = 900
pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Packages:
    """Both, as a release has them."""

    sdist: Path
    wheel: Path


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Built from a copy of the files that belong to the distribution, so that the checkout stays clean."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE", *TOPS):
        subprocess.run(["cp", "-r", ROOT / name, source / name], check=True)
    argv = [sys.executable, "-m", "build", "--no-isolation", "--outdir", built, source]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Packages(next(built.glob("*.tar.gz")), next(built.glob("*.whl")))


def test_nothing_is_left_out(packages: Packages) -> None:
    wanted = {
        path.relative_to(ROOT).as_posix()
        for top in ("compiler", "toolchain")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wanted |= {
        f"toolchain/data/{path.relative_to(ROOT).as_posix()}"
        for top in TOPS[2:]
        for path in (ROOT / top).rglob("*")
        if path.is_file()
    }
    inside = set(zipfile.ZipFile(packages.wheel).namelist())
    with tarfile.open(packages.sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted - inside == set()
    assert wanted - packed == set()
    assert {"LICENSE", "README.md", "pyproject.toml"} <= packed
    assert not any(name.startswith(("tests", "docs", "benchmarks")) for name in inside)


def test_it_says_what_it_is(packages: Packages) -> None:
    """The metadata that an index shows, without which it refuses an upload."""
    with zipfile.ZipFile(packages.wheel) as archive:
        name = next(one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
        assert any(one.endswith("/LICENSE") for one in archive.namelist())
    for line in ("Name: tk-toolchain", "License-Expression: Apache-2.0", "Requires-Python: >=3.11"):
        assert line in text.splitlines(), line
    assert "License-File: LICENSE" in text
    assert all(f"Programming Language :: Python :: {one}" in text for one in PYTHONS)


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
@pytest.mark.parametrize("version", PYTHONS)
def test_installed_in_an_empty_environment(
    version: str, kind: str, packages: Packages, tmp_path: Path, own_cache: Path
) -> None:
    """As in the release workflow: from a model to a verified library, without the checkout."""
    python = interpreter(version)
    subprocess.run([python, "-m", "venv", tmp_path / "empty"], check=True)
    env = {key: value for key, value in environment().items() if key != "PYTHONPATH"}
    package = packages.wheel if kind == "wheel" else packages.sdist
    argv = [tmp_path / "empty/bin/pip", "install", "-q", "--disable-pip-version-check", f"{package}[verify]"]
    done = subprocess.run(
        argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS
    )
    if done.returncode and "No matching distribution" in done.stderr and str(package) not in done.stderr:
        pytest.skip(f"NOT RUN with Python {version}: the index lacks a dependency: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr[-3000:]

    def tk(*arguments: str) -> str:
        argv = [tmp_path / "empty/bin/tk", *arguments]
        ran = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert tk("--version").startswith("tk ")
    tk("zoo", "make", "mnist")
    tk("compile", "mnist.onnx")
    tk("verify", "mnist.so", "--model", "mnist.onnx")
    tk("image", "render", "cpu")
    tk("ci", "init", "cpu", "--package", "a.whl", "--dry-run")


def test_as_the_readme_says(packages: Packages, tmp_path: Path) -> None:
    """All of the section but the making of the packages, which the other tests have done."""
    block = (
        (ROOT / "README.md")
        .read_text()
        .partition("from a wheel")[2]
        .partition("```sh\n")[2]
        .partition("```")[0]
    )
    made, *lines = block.splitlines()
    assert made.startswith("bin/just wheel ")
    shutil.copytree(packages.wheel.parent, tmp_path / "work" / "dist")
    env = {**{key: text for key, text in environment().items() if key != "PYTHONPATH"}, "HOME": str(tmp_path)}
    env["PATH"] = f"{Path(interpreter('3.11')).parent}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", "\n".join(lines)], cwd=tmp_path / "work", env=env, capture_output=True, text=True,
        check=False, timeout=_INSTALL_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].startswith("tk ")


def interpreter(version: str) -> str:
    """A Python of that version on this machine; skips, and says so, when there is none."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(versions.glob(f"{version}.*/bin/python{version}"))]
    for one in (str(path) for path in found if path):
        done = subprocess.run([one, "-c", "import ensurepip"], capture_output=True, check=False)
        if done.returncode == 0:
            return one
    pytest.skip(f"NOT RUN with Python {version}: it is not on this machine")


def test_compile_and_verify_without_the_index(packages: Packages, tmp_path: Path, own_cache: Path) -> None:
    """This Python, the wheel first and our dependencies behind it; no path to the checkout."""
    venv.create(tmp_path / "venv", with_pip=False)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(packages.wheel) as archive:
        archive.extractall(site)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    env = {key: value for key, value in environment().items() if key != "PYTHONPATH"}

    def tk(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = "import sys; from toolchain.main import main; sys.exit(main())"
        argv = [tmp_path / "venv" / "bin" / "python", "-P", "-c", program, *arguments]
        return subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    where = subprocess.run(
        [tmp_path / "venv" / "bin" / "python", "-P", "-c", "import compiler; print(compiler.__file__)"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert where.stdout.startswith(str(site))
    assert tk("zoo", "make", "mnist").returncode == 0
    compiled = tk("compile", "mnist.onnx")
    assert compiled.returncode == 0, compiled.stderr
    verified = tk("verify", "mnist.so", "--model", "mnist.onnx")
    assert verified.returncode == 0, verified.stderr
