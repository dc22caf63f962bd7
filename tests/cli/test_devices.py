"""Targets for devices on the command line: lists, several at once, what a machine lacks, the wrong device."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support import command, drivers
from tests.support.command import Result, environment

Tk = Callable[..., Result]
COMPILERS = ("g++", "c++", "as", "ld")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, libraries of it for CUDA with two architectures and for OpenCL, made by one command."""
    made = tmp_path_factory.mktemp("devices")
    assert command.tk("zoo", "make", "mnist", cwd=made).code == 0
    done = command.tk("compile", "mnist.onnx", "--target", "cuda:sm_70,sm_90,opencl-cpu", cwd=made)
    if done.code == 4:
        pytest.skip(done.err)
    assert done.code == 0, done.err
    return made


@pytest.fixture(scope="module")
def driver(directory: Path) -> Path:
    return drivers.build_driver(drivers.CUDA, directory)


@pytest.fixture
def bare(tmp_path: Path) -> Mapping[str, str]:
    """A machine with a C++ compiler, without the toolchain of any device and without an engine."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in COMPILERS:
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    nowhere = str(tmp_path / "nowhere")
    return {"PATH": str(programs), "DOCKER_HOST": f"unix://{nowhere}.sock", "TK_ROCM_ROOT": nowhere}


# ---------------------------------------------------------------- tk targets


def test_targets_tell_what_this_machine_can_do(directory: Path) -> None:
    listed = {one["name"]: one for one in command.tk("targets", "--json", cwd=directory).json}
    assert len(listed) == 14
    assert listed["rocm-amd"]["aliases"] == ["rocm", "hip"]
    assert "sm_90" in listed["cuda-nvidia"]["archs"]
    assert listed["sycl-nvidia"]["image"]
    for one in listed.values():
        for question in ("compiles", "loads", "runs"):
            assert one[question]["answer"] in ("yes", "no", "not known")
            assert one[question]["reason"]
    assert listed["cpu"]["runs"]["answer"] == "yes"


def test_targets_import_neither_numpy_nor_onnx() -> None:
    probe = (
        "import sys\nfrom toolchain.main import main\nmain(['targets'])\n"
        "print(sorted({'numpy', 'onnx'} & set(sys.modules)), file=sys.stderr)"
    )
    argv = [sys.executable, "-c", probe]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_targets_find_devices(directory: Path, driver: Path, tmp_path: Path) -> None:
    env = drivers.environment(driver, "Card=8.0;Other=9.0", tmp_path / "log")
    listed = {one["name"]: one for one in command.tk("targets", "--json", cwd=directory, env=env).json}
    assert listed["cuda-nvidia"]["runs"] == {
        "answer": "yes",
        "reason": "Card (sm_80), driver 12020, Other (sm_90), driver 12020",
        "fix": "",
    }
    assert listed["sycl-nvidia"]["runs"]["answer"] == "not known"


def test_targets_say_what_is_missing(directory: Path, bare: Mapping[str, str]) -> None:
    listed = {one["name"]: one for one in command.tk("targets", "--json", cwd=directory, env=bare).json}
    hip = listed["rocm-amd"]["compiles"]
    assert hip == {
        "answer": "no",
        "reason": "there is no HIP compiler on this machine",
        "fix": "install ROCm's hipcc (Debian: apt install hipcc)",
    }
    assert "DPC++" in listed["sycl-amd"]["compiles"]["reason"]
    text = command.tk("targets", cwd=directory, env=bare).out
    assert re.search(r"^rocm-amd .* no .* rocm-5\.4\.3$", text, re.MULTILINE)
    assert "fix: install ROCm's hipcc" in text


# ---------------------------------------------------------------- tk compile


def test_several_targets_have_a_library_each(directory: Path) -> None:
    names = sorted(path.name for path in directory.glob("*.so"))
    assert names == ["mnist.cuda-nvidia.so", "mnist.opencl-cpu.so"]
    seen = command.tk("inspect", "mnist.cuda-nvidia.so", "--check", "--json", cwd=directory).json
    assert {(one["kind"], one["arch"]) for one in seen["images"]} == {
        ("source", ""),
        ("cubin", "sm_70"),
        ("cubin", "sm_90"),
        ("ptx", "sm_90"),
    }
    launch = seen["kernels"][0]["launches"][0]
    assert launch["name"] == "tk_k0_0"
    assert [one["arch"] for one in launch["resources"]] == ["sm_70", "sm_90"]
    assert all(one["registers"] > 0 for one in launch["resources"])
    assert seen["module_replays"] is True
    assert all(one["replays"] for one in seen["kernels"])


def test_inspect_shows_launches(directory: Path) -> None:
    text = command.tk("inspect", "mnist.cuda-nvidia.so", cwd=directory).out
    assert re.search(r"^cubin +sm_70 +[\d.]+ kB$", text, re.MULTILINE)
    assert re.search(r"^tk_k0_0 +0 +\d+x1x1 +\d+x1x1 +sm_70 +\d+ +\d+ +\d+ +[\d,]+$", text, re.MULTILINE)


def test_source_that_is_not_the_kernels_is_found(directory: Path, tmp_path: Path) -> None:
    data = (directory / "mnist.opencl-cpu.so").read_bytes()
    at = data.rindex(b"__kernel")
    (tmp_path / "edited.so").write_bytes(data[:at] + b"_kernel_" + data[at + 8 :])
    done = command.tk("inspect", tmp_path / "edited.so", "--check")
    assert done.code == 6
    assert "the source for the device is not that of the kernels" in done.err


def test_a_folder_takes_the_results_of_several(directory: Path, tmp_path: Path) -> None:
    args = (
        "--target",
        "opencl-nvidia",
        "--target",
        "hip",
        "--emit",
        "source",
        "-o",
        tmp_path / "out",
        "--json",
    )
    reports = command.tk("compile", "mnist.onnx", *args, cwd=directory).json
    assert [one["target"] for one in reports] == ["opencl-nvidia", "rocm-amd"]
    files = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")}
    assert {"mnist.opencl-nvidia.sources/kernels.cl", "mnist.rocm-amd.sources/kernels.hip"} <= files


def test_one_target_that_fails_leaves_the_others(
    directory: Path, tmp_path: Path, bare: Mapping[str, str]
) -> None:
    args = ("--target", "sycl-amd,opencl-cpu", "-o", tmp_path / "out", "--json")
    done = command.tk("compile", "mnist.onnx", *args, cwd=directory, env=bare)
    assert done.code == 4
    assert [("error" in one, one["target"]) for one in done.json] == [
        (True, "sycl-amd"),
        (False, "opencl-cpu"),
    ]
    assert (tmp_path / "out" / "mnist.opencl-cpu.so").exists()
    assert "1 of 2 targets failed" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--target", "cude"], "did you mean 'cuda'?"),
        (["--target", "cude,opencl-gpu"], "unknown target `cude`; unknown target `opencl-gpu`"),
        (["--target", "cuda,cuda-nvidia"], "named twice: cuda-nvidia"),
        (["--target", "cuda:sm_99"], "did you mean 'sm_"),
        (["--target", "cuda,rocm", "--arch", "sm_80"], "target `rocm`"),
        (["--target", "cuda:sm_80", "--arch", "sm_70"], "two architectures were given"),
        (["--target", "cuda,rocm", "--from", "x"], "an edited stage is that of one target"),
        (["--target", "cuda,rocm", "-o", "mnist.onnx"], "several targets have several results"),
    ],
)
def test_what_cannot_be_meant(directory: Path, options: list[str], said: str) -> None:
    done = command.tk("compile", "mnist.onnx", *options, cwd=directory)
    assert done.code == 2
    assert said in done.err


def test_without_a_toolchain_its_image_is_named(directory: Path, bare: Mapping[str, str]) -> None:
    done = command.tk(
        "compile", "mnist.onnx", "--target", "rocm", "--arch", "gfx906", cwd=directory, env=bare
    )
    assert done.code == 4
    assert "there is no HIP compiler on this machine" in done.err
    hint = "tk compile mnist.onnx --target rocm-amd --arch gfx906 --image rocm-5.4.3 --build"
    assert hint in done.err
    assert "`--emit source` needs no toolchain" in done.err


def test_source_needs_no_toolchain_of_the_device(
    directory: Path, tmp_path: Path, bare: Mapping[str, str]
) -> None:
    for target, file in (("rocm", "kernels.hip"), ("sycl-intel", "kernels.cpp")):
        args = ("--target", target, "--emit", "source", "-o", tmp_path / target)
        done = command.tk("compile", "mnist.onnx", *args, cwd=directory, env=bare)
        assert done.code == 0, done.err
        assert "tk_k0_0" in (tmp_path / target / file).read_text()


def test_a_finished_library_is_handed_out_for_the_same_toolchain_only(
    directory: Path, tmp_path: Path, bare: Mapping[str, str], own_cache: Path
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "objects").symlink_to(own_cache / "objects")

    def compiled(**more: str) -> Result:
        env = {"TK_CACHE_DIR": str(tmp_path / "cache"), **more}
        args = ("--target", "opencl-nvidia", "-o", tmp_path / "m.so", "--json")
        return command.tk("compile", "mnist.onnx", *args, cwd=directory, env=env)

    first = compiled(PATH=bare["PATH"])
    assert "no SPIR-V" in first.err  # a word to the user: such a library is made again
    assert not compiled(PATH=bare["PATH"]).json["cached"]
    whole = compiled()
    assert whole.code == 0, whole.err
    if "no SPIR-V" in whole.err:
        pytest.skip("clang and llvm-spirv are not installed")
    assert not whole.json["cached"]
    assert compiled().json["cached"]


# ---------------------------------------------------------------- devices


def test_a_library_for_two_archs_on_either(directory: Path, driver: Path, tmp_path: Path) -> None:
    env = drivers.environment(driver, "Volta=7.0;Hopper=9.0", tmp_path / "log")
    for device, name in (("0", "Volta (sm_70)"), ("hopper", "Hopper (sm_90)")):
        done = command.tk("run", "mnist.cuda-nvidia.so", "--device", device, "--json", cwd=directory, env=env)
        assert done.code == 0, done.err
        assert done.json["device"] == name


def test_the_architecture_of_the_device_here_is_the_default(
    directory: Path, driver: Path, tmp_path: Path
) -> None:
    for gpu, arch in (("Hopper=9.0", "sm_90"), ("Old=6.1", "sm_70")):
        env = drivers.environment(driver, gpu, tmp_path / "log")
        args = ("--target", "cuda", "--emit", "source", "-o", tmp_path / arch, "--json")
        done = command.tk("compile", "mnist.onnx", *args, cwd=directory, env=env)
        assert done.json["arch"] == arch
        assert ("the architecture of the device here" in done.err) == (arch == "sm_90")


def test_without_a_driver(directory: Path) -> None:
    done = command.tk("run", "mnist.cuda-nvidia.so", cwd=directory, env={"LD_LIBRARY_PATH": ""})
    if done.code == 0:
        pytest.skip("this machine has an NVIDIA GPU")
    assert done.code in (3, 4)
    assert "NVIDIA" in done.err


@pytest.mark.parametrize("tool", ["run", "bench", "verify"])
def test_the_wrong_arch(directory: Path, driver: Path, tmp_path: Path, tool: str) -> None:
    env = drivers.environment(driver, "Old=6.1", tmp_path / "log")
    more = ("--model", "mnist.onnx") if tool == "verify" else ()
    done = command.tk(tool, "mnist.cuda-nvidia.so", *more, cwd=directory, env=env)
    assert done.code == 3
    assert "this library has kernels for sm_70,sm_90, and Old is sm_61" in done.err
    assert "tk compile MODEL.onnx --target cuda-nvidia --arch sm_70,sm_90,sm_61" in done.err


def test_a_device_that_there_is_not(directory: Path, driver: Path, tmp_path: Path) -> None:
    env = drivers.environment(driver, "Volta=7.0", tmp_path / "log")
    done = command.tk("run", "mnist.cuda-nvidia.so", "--device", "hopper", cwd=directory, env=env)
    assert done.code == 3
    assert "there is no NVIDIA GPU `hopper`" in done.err
    assert "Volta (sm_70)" in done.err


def test_bench_names_the_device_and_counts_no_threads_of_it(
    directory: Path, driver: Path, tmp_path: Path
) -> None:
    env = drivers.environment(driver, "Volta=7.0", tmp_path / "log")
    args = ("--seconds", "0.05", "--warmup", "0", "--threads", "1")
    done = command.tk("bench", "mnist.cuda-nvidia.so", *args, "--json", cwd=directory, env=env)
    assert done.code == 0, done.err
    assert done.json["device"] == "Volta (sm_70)"
    assert done.json["threads"] is None
    assert done.json["peak_gflops"] is None
    assert done.json["on_device"] == pytest.approx({"kernels_ms": 0.0125, "with_copies_ms": 0.25})
    assert any("--threads has no use here" in one for one in done.json["warnings"])


def test_bench_of_processors_behind_opencl(directory: Path) -> None:
    args = ("--seconds", "0.1", "--warmup", "0", "--baseline", "mnist.onnx")
    done = command.tk("bench", "mnist.opencl-cpu.so", *args, "--json", cwd=directory)
    if done.code == 4:
        pytest.skip(done.err)
    assert done.code == 0, done.err
    assert done.json["threads"] == done.json["baseline"]["threads"] >= 1
    assert done.json["peak_gflops"] > 0
    assert done.json["device"]
    assert 0 < done.json["on_device"]["kernels_ms"] < done.json["on_device"]["with_copies_ms"]


@pytest.mark.slow
def test_the_emulator_runs_and_verifies(directory: Path, tmp_path: Path) -> None:
    one = ("mnist.cuda-nvidia.so", "--device", "emulator")
    done = command.tk("verify", *one, "--model", "mnist.onnx", "--runs", "1", "--json", cwd=directory)
    assert done.code == 0, done.err
    assert done.json["passed"]
    assert "emulator" in done.json["device"]
    unchecked = command.tk("run", one[0], "--device", "emulator-unchecked", "--json", cwd=directory)
    assert unchecked.code == 0, unchecked.err
    assert "without checks" in unchecked.json["device"]
    ran = command.tk("run", *one, "--output-dir", tmp_path, "--json", cwd=directory)
    assert ran.code == 0, ran.err
    short = ("--seconds", "0.01", "--warmup", "0", "--profile", "--json")
    timed = command.tk("bench", one[0], *short, cwd=directory, env={"TK_DEVICE": "emulator"})
    assert any("say nothing about a GPU" in word for word in timed.json["warnings"])
    assert timed.json["on_device"] is None
    assert all(one["requests"] > 0 for launch in timed.json["access"] for one in launch["rows"])
    refused = command.tk("run", "mnist.opencl-cpu.so", "--device", "emulator", cwd=directory)
    assert refused.code == 3
    assert "it is for opencl-cpu; the emulator runs kernels in CUDA and HIP" in refused.err
    assert json.loads(ran.out)["outputs"][0]["shape"] == [1, 10]


def test_what_accesses_cost(directory: Path) -> None:
    """What nothing else looks at: the two tables, the JSON with its sums, what is refused."""
    shown = command.tk("inspect", "mnist.cuda-nvidia.so", "--access", cwd=directory)
    assert shown.code == 0, shown.err
    sums, rows = (shown.out.index(f"\n{words}") for words in ("function  calls  grid", "function  line"))
    assert shown.out.index("tk_k0_0", sums) < rows < shown.out.rindex("tk_k0_0")
    assert re.search(r"^tk_k0_0 +\d+.* shared load .* v0 \+= ", shown.out[rows:], re.MULTILINE)
    found = command.tk("inspect", "mnist.cuda-nvidia.so", "--access", "--json", cwd=directory).json
    launches = [item["name"] for kernel in found["kernels"] for item in kernel["launches"]]
    assert [one["function"] for one in found["access"]] == launches
    for one in found["access"]:
        moving = [row for row in one["rows"] if row["kind"] in ("load", "store", "copy", "atomic")]
        assert one["moved_bytes"] == pytest.approx(32 * sum(row["units"] for row in moving))
        assert 0 < one["fetch_efficiency"] <= 1
        assert one["least_bytes"] > 0
        assert one["cut"] == 0
    for file, why in (("mnist.opencl-cpu.so", "it is for opencl-cpu"), ("mnist.onnx", "only a library has")):
        refused = command.tk("inspect", file, "--access", cwd=directory)
        assert refused.code != 0
        assert why in refused.err


# ---------------------------------------------------------------- in containers

_IN_CONTAINERS = """
import sys
from toolchain.containers import place
from toolchain.main import main

def run_placed(command, given, flags, where):
    words = {name: str(value) for name, value in given.items()}
    sys.stdout.write(repr((command, where.image, words)) + "\\n")
    return 0

place.run_placed = run_placed
sys.exit(main(sys.argv[1:]))
"""


def placed(directory: Path, *arguments: str) -> list[tuple[str, str, dict[str, str]]]:
    """What would be done in containers: the command, the image, its parameters."""
    argv = [sys.executable, "-c", _IN_CONTAINERS, *arguments]
    done = subprocess.run(argv, cwd=directory, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [ast.literal_eval(line) for line in done.stdout.splitlines() if line]


def test_each_target_gets_a_container_of_its_own(directory: Path) -> None:
    calls = placed(
        directory, "compile", "mnist.onnx", "--target", "cuda:sm_80,dtk", "--image", "x", "-o", "out"
    )
    assert calls == [
        (
            "compile",
            "x",
            {"model": "mnist.onnx", "output": f"out/mnist.{name}.so", "target": name, **arch},
        )
        for name, arch in (("cuda-nvidia", {"arch": "sm_80"}), ("rocm-hygon", {}))
    ]


def test_one_target_in_a_container_keeps_its_output(directory: Path) -> None:
    (call,) = placed(
        directory, "compile", "mnist.onnx", "--target", "hip", "--arch", "gfx90a", "--image", "x"
    )
    assert call == ("compile", "x", {"model": "mnist.onnx", "target": "rocm-amd", "arch": "gfx90a"})


def test_the_emulator_in_a_container(directory: Path) -> None:
    (call,) = placed(directory, "run", "mnist.cuda-nvidia.so", "--device", "emulator", "--image", "x")
    assert call == ("run", "x", {"library": "mnist.cuda-nvidia.so", "device": "emulator"})
