"""The wheel works where there is no checkout: every data file that the compiler needs is in it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.command import ROOT, environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the files that belong to the distribution, so that the checkout stays clean."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "compiler",
        "toolchain",
        "recipes",
        "dockerfiles",
        "workflows",
    ):
        subprocess.run(["cp", "-r", ROOT / name, source / name], check=True)
    argv = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*argv, "-w", built, source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(built.glob("*.whl"))


@pytest.mark.slow
def test_nothing_is_left_out(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        path.relative_to(ROOT).as_posix()
        for top in ("compiler", "toolchain")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    wanted |= {
        f"toolchain/data/{path.relative_to(ROOT).as_posix()}"
        for top in ("recipes", "dockerfiles", "workflows")
        for path in (ROOT / top).rglob("*")
        if path.is_file()
    }
    assert wanted - inside == set()
    assert not any(name.startswith(("tests", "docs", "benchmarks")) for name in inside)


@pytest.mark.slow
def test_compile_and_verify_from_the_wheel(wheel: Path, tmp_path: Path, own_cache: Path) -> None:
    """A virtual environment with the wheel first and our dependencies behind it; no path to the checkout."""
    venv.create(tmp_path / "venv", with_pip=False)
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
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
