"""The file that linking writes."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler import load
from compiler.core.diagnostics import BadInputError, BuildError, HostError
from compiler.core.process import run
from tests.support.model_library import LINKERS, WEIGHTS, Builder

ABI = {
    "model_open", "model_close", "model_input_count", "model_output_count", "model_input", "model_output",
    "model_manifest", "model_api", "context_open", "context_close", "context_set_threads", "context_threads",
    "context_run", "context_profile", "last_error", "status_text", "model_open_on", "model_device",
    "model_native_context", "model_shapes", "model_state_count", "model_state", "context_shapes",
    "context_reset", "context_measure",
    "pool",
}  # fmt: skip
ONES = {"x": np.ones((2, 8), np.float32), "z": np.zeros((2, 8), np.float32)}


def test_needs_the_language_runtime_only(library: Path) -> None:
    found = set(re.findall(r"(\S+)\.so", run(["ldd", str(library)]).stdout))
    names = {Path(name).name for name in found}
    assert names <= {
        "linux-vdso",
        "libc",
        "libm",
        "libstdc++",
        "libgcc_s",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
    }


def test_exports_the_interface_only(library: Path) -> None:
    lines = run(["nm", "-D", "--defined-only", str(library)]).stdout.splitlines()
    assert {line.split()[-1] for line in lines} == {f"tk_{name}_v1" for name in ABI}
    assert [line.split()[1] for line in lines if "tk_pool" in line] == ["u"], (
        "one pool per process needs this"
    )


@pytest.mark.parametrize("link_flags", LINKERS)
def test_same_input_same_bytes(
    builder: Builder, tmp_path: Path, link_flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = builder.library(tmp_path / "one.so", link_flags=link_flags)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "elsewhere"))
    two = builder.library(tmp_path / "elsewhere" / "two.so", link_flags=link_flags)
    assert one.read_bytes() == two.read_bytes()
    assert str(tmp_path.parent).encode() not in one.read_bytes()


@pytest.mark.parametrize("link_flags", LINKERS)
def test_runs_with_every_linker(builder: Builder, tmp_path: Path, link_flags: tuple[str, ...]) -> None:
    model = load(builder.library(tmp_path / "model.so", link_flags=link_flags))
    np.testing.assert_array_equal(model.run(ONES)["y"][0], WEIGHTS)


def test_constants_are_shared_read_only_pages(library: Path) -> None:
    text = run(["readelf", "-lW", str(library)]).stdout
    loads = [line.split() for line in text.splitlines() if line.split()[:1] == ["LOAD"]]
    *_, last = loads
    assert last[6] == "R"
    assert int(last[2], 16) % 4096 == 0
    assert not any(line[6] == "RWE" or line[6:8] == ["R", "W"] for line in loads)
    assert "GNU_STACK" in text


def test_stripping_keeps_the_constants(library: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped.so"
    assert run(["strip", str(library), "-o", str(stripped)]).returncode == 0
    np.testing.assert_array_equal(load(stripped).run(ONES)["y"][0], WEIGHTS)


def test_small(library: Path) -> None:
    assert library.stat().st_size < 200_000


def test_constants_of_another_size_are_refused(builder: Builder, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"expect 96 bytes of constants, the library holds 60"):
        load(builder.library(tmp_path / "model.so", constants=bytes(60)))


def test_without_constants(builder: Builder, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="holds 0"):
        load(builder.library(tmp_path / "model.so", constants=b""))


def test_a_refusing_compiler_is_quoted(builder: Builder, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no-such-linker"):
        builder.library(tmp_path / "model.so", link_flags=("-fuse-ld=no-such-linker",))
    assert not (tmp_path / "model.so").exists()


FEATURE = "cmov"  # every x86-64 processor has it


@pytest.mark.skipif("x86_64" not in run(["uname", "-m"]).stdout, reason="names a feature of x86-64")
def test_a_missing_cpu_feature_is_refused_by_name(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = builder.library(tmp_path / "model.so", f'-DTEST_FEATURE="{FEATURE}"')
    load(path)
    monkeypatch.setenv("TK_CPU_FEATURES", f"-{FEATURE},-avx512f,-avx2")
    with pytest.raises(HostError) as caught:
        load(path)
    assert FEATURE in caught.value.what
    assert "tk compile MODEL.onnx --target cpu --arch x86-64-v2" in caught.value.hint
    monkeypatch.setenv("TK_CPU_FEATURES", "-mmx,, -CMOV")
    with pytest.raises(HostError, match="cmov"):
        load(path)
    monkeypatch.setenv("TK_CPU_FEATURES", "-nonsense")
    with pytest.raises(Exception, match="-nonsense"):
        load(path)


def test_an_unknown_cpu_feature_is_missing(builder: Builder, tmp_path: Path) -> None:
    path = builder.library(tmp_path / "model.so", '-DTEST_FEATURE="warp-drive"')
    with pytest.raises(HostError, match="warp-drive"):
        load(path)


@pytest.mark.skipif("x86_64" not in run(["uname", "-m"]).stdout, reason="compares with flags of x86-64")
def test_features_agree_with_the_kernel(builder: Builder, tmp_path: Path) -> None:
    """Every feature that this project's targets know is found exactly where /proc/cpuinfo has its flag."""
    features = pytest.importorskip("compiler.targets.features")
    host = features.host_flags()
    wrong = []
    for feature in features.FEATURES.values():
        path = builder.library(tmp_path / f"{feature.name}.so", f'-DTEST_FEATURE="{feature.name}"')
        try:
            load(path)
            present = True
        except HostError:
            present = False
        if present != (feature.cpuinfo in host):
            wrong.append(feature.name)
    assert not wrong


@pytest.mark.parametrize("cc", [name for name in ("gcc", "clang") if shutil.which(name)])
def test_example_in_c(library: Path, builder: Builder, tmp_path: Path, cc: str) -> None:
    root = Path(__file__).parents[2]
    program = tmp_path / "run_model"
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-I", str(root / "compiler/runtime/include")]
    done = run([cc, *flags, str(root / "examples/run_model.c"), "-o", str(program), "-ldl"])
    assert done.returncode == 0, done.stderr
    x = np.random.default_rng(0).standard_normal((2, 4096, 8), dtype=np.float32)
    command = [str(program), str(library)]
    assert run(command, input=b"").returncode == 1
    assert run([str(program), "missing.so"]).returncode == 2
    output = tmp_path / "out.raw"
    code = (
        "import subprocess, sys; "
        "sys.exit(subprocess.run(sys.argv[2:], stdin=sys.stdin, stdout=open(sys.argv[1], 'wb')).returncode)"
    )
    done = run([sys.executable, "-c", code, str(output), *command], input=x.tobytes())
    assert done.returncode == 0, done.stderr
    values = np.frombuffer(output.read_bytes(), np.float32)
    np.testing.assert_allclose(values[:-1].reshape(4096, 8), x[0] * WEIGHTS + x[1], rtol=1e-6, atol=1e-6)
