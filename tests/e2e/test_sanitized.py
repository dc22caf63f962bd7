"""Generated code of small networks under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler import pipeline
from compiler.core.process import Completed, run
from compiler.stages.job import CompileJob
from compiler.targets.build import KernelBuild
from tests.support.command import environment
from tests.support.model_library import COMPILERS
from tests.support.onnx_models import assert_close, model, run_onnxruntime
from toolchain import zoo

FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O1")
SHARED = {"g++": ("libasan.so", ()), "clang++": ("libclang_rt.asan-x86_64.so", ("-shared-libasan",))}
"""What has to be in the process first, and the flag that makes the compiler rely on it."""
SLOW = ("transformer-encoder", "squeezenet", "mobilenetv2", "shufflenet", "unet", "resnet18-v1")
NETWORKS = ["mnist", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


@pytest.fixture(params=COMPILERS)
def cxx(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A compiler; what the pipeline compiles and links with it in this test is instrumented."""
    name = str(request.param)
    flags = (*FLAGS, *SHARED[name][1])

    monkeypatch.setenv("TK_CXX", name)
    monkeypatch.setattr(pipeline, "KernelBuild", partial(KernelBuild, extra_flags=flags))
    return name


def sanitized_run(cxx: str, library: Path, feeds: dict[str, np.ndarray], threads: int) -> Completed:
    """Run a library in a process that has the sanitizers' runtime; outputs go to out.npz beside it."""
    preload = run([cxx, f"-print-file-name={SHARED[cxx][0]}"]).stdout.strip()
    assert Path(preload).is_absolute(), f"{cxx} has no {SHARED[cxx][0]}"
    np.savez(library.parent / "feeds.npz", **feeds)
    env = environment(
        {"LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0"}
    )  # Python frees little at its end
    argv = [
        sys.executable,
        "-m",
        "tests.support.run_library",
        library.name,
        str(threads),
        "feeds.npz",
        "out.npz",
    ]
    return run(argv, cwd=library.parent, env=env)


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str, cxx: str, tmp_path: Path) -> None:
    path, library = tmp_path / "m.onnx", tmp_path / "m.so"
    zoo.make(name, path)
    pipeline.run_job(CompileJob.of(path, compiler.CompileOptions(output=library)))
    session = {item.name: item for item in compiler.inspect_library(library).inputs}
    source = np.random.default_rng(1)
    feeds = {name: source.standard_normal(item.shape).astype(np.float32) for name, item in session.items()}
    want = run_onnxruntime(onnx.load(path), feeds)
    for threads in (1, 2):
        done = sanitized_run(cxx, library, feeds, threads)
        assert done.returncode == 0, done.stderr
        with np.load(tmp_path / "out.npz") as got:
            for output, array in zip(got.files, want.values(), strict=True):
                assert_close(got[output], array, 1e-4, output)


@pytest.mark.parametrize(
    ("wrong", "report"),
    [
        ("((volatile float *)bufs[1])[100] = 1.0f;", "AddressSanitizer: heap-buffer-overflow"),
        (
            "volatile int by = 40, one = 1; ((volatile float *)bufs[1])[0] = one << by;",
            "runtime error: shift",
        ),
    ],
)
def test_the_sanitizers_are_at_work(cxx: str, tmp_path: Path, wrong: str, report: str) -> None:
    x = np.ones(100, np.float32)
    onnx.save(model([helper.make_node("Neg", ["x"], ["y"])], {"x": x}, ["y"]), tmp_path / "m.onnx")
    options = compiler.CompileOptions(output=tmp_path / "m.so", dump=tmp_path / "dump", stop_after="render")
    pipeline.run_job(CompileJob.of(tmp_path / "m.onnx", options))
    source = tmp_path / "dump" / "50-render" / "k000.cpp"
    head, brace, body = source.read_text().rpartition("tk_exec *exec) {")
    assert brace
    source.write_text(f"{head}{brace}\n  {wrong}{body}")
    options = compiler.CompileOptions(output=tmp_path / "m.so", start_from=source)
    pipeline.run_job(CompileJob.of(tmp_path / "m.onnx", options))
    done = sanitized_run(cxx, tmp_path / "m.so", {"x": x}, 1)
    assert done.returncode != 0
    assert report in done.stderr
