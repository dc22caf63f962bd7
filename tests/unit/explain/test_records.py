"""What is known: every error of the sources is found with the right record, and nothing in other logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchain.explain.causes import known_causes
from toolchain.explain.search import Search
from toolchain.recipes.catalog import load_issues
from toolchain.recipes.schema import Issue

ISSUES = load_issues()
BY_ID = {one.id: one for one in ISSUES}
LOGS = sorted((Path(__file__).parent / "logs").glob("*.log"))


def found(text: str) -> list[str]:
    return [one.issue for one in known_causes(text.split("\n"), ISSUES)]


def explains(first: Issue, other: Issue) -> bool:
    """Whether two are right, and the order of the two is stated."""
    return first.id in other.follows or (first.level, other.level) == ("error", "warning")


@pytest.mark.parametrize("issue", ISSUES, ids=lambda one: one.id)
def test_its_examples_are_found_and_nothing_else_in_them(issue: Issue) -> None:
    assert issue.examples, "an example of each"
    for example in issue.examples:
        first, *others = found(example)
        assert first == issue.id, example
        assert [one for one in others if not explains(issue, BY_ID[one])] == [], example


SEEDS = {
    # the bug tables of both reports
    "cuda_piextUSMFree(pi_context, void*): Assertion `type == CU_MEMORYTYPE_DEVICE": "usm-free-assertion",
    "rocm compute result is not correct": "rocm-wrong-results",
    "clang-offload-bundler:error \u2018/tmp/libsycl-complex-fp65-complex-fp64-11cc6d.cubin\u2019:"
    "permission denied": ("cubin-permission-denied"),
    'Assertion `KSIdMap[EntriesIt->name] == KSIdIt->second && "Kernel sets are not disjoint"\' failed': (
        "kernel-sets-not-disjoint"
    ),
    "warning: linking module ''[-Wlinker-warnings]": "sycl-linker-warnings",
    "warning: linked binaries do not contain expected [-Wsycl-target]": "unexpected-sycl-target",
    "warning:Warning: Unroll hint get ignore at CodeGenLLVM backend,  consider set unroll_explicit=True": (
        "tvm-unroll-ignored"
    ),
    "CUDA_ERROR_ILLEGAL_ADDRESS\uff1aan illegal memory access was encountered": "cuda-illegal-address",
    "PI HIP ERROR\uff1a hipErrorNotFound\nFunction:        hip_piKernelCreate": "hip-kernel-not-found",
    "Segmentation fault (core dumped)": "segmentation-fault",
    "Check failed: (e.code() == sycl::errc::success) is false: SYCL Error, code=sycl:13: "
    "kERNEL NOT SUPPORTED": "kernel-not-supported",
    "[LOG_ERROR]: cannot find the function _ZTSZZ39tvmgen_default_": "hygon-function-not-found",
    "inception & googlenet hygon nan": "hygon-nan",
    # the tables of tuning
    "ROCM HIP\N{FULLWIDTH COLON}invalid device ordinal": "hip-no-device",
    "mnist-1 compute number accuracy": "dpcpp-2022-12-numbers",
    "PI CUDA ERROR 700 an illegal memory access was encountered(sycl/plugins/cuda/pi_cuda.cpp)": (
        "cuda-illegal-address"
    ),
    "Memory access fault by GPU node-2 (Agent handle: 0x56534ffb3250) on address 0x7facb0600000. Reason: "
    "Page not present or supervisor privilege.": "memory-access-fault",
    "/tmp/libsycl-fallback-xxx.cubin : Permission denied.": "cubin-permission-denied",
    "TVMError: LLVM module verification failed with the following errors: ": "tvm-llvm-verification",
    "Calling convention requires void return type": "tvm-llvm-verification",
    "Function return type does not match operand type of return inst!": "tvm-llvm-verification",
    "AttributeError: tir.IterVar object has no attributed __array__": "tvm-tuning-interrupted",
    "PI CUDA ERROR:\n        Value:           700\n        Name:            CUDA_ERROR_ILLEGAL_ADDRESS\n"
    "        Description:     an illegal memory access was encountered\n"
    "        Function:        operator()": "cuda-illegal-address",
    "PI CUDA ERROR:\n        Value:           701\n"
    "        Name:            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES\n"
    "        Description:     too many resources requested for launch\n"
    "        Function:        cuda_piEnqueueKernelLaunch": "cuda-out-of-resources",
    "PI CUDA ERROR:\n        Value:           1\n        Name:            CUDA_ERROR_INVALID_VALUE\n"
    "        Description:     invalid argument\n"
    "        Function:        cuda_piEnqueueKernelLaunch": "cuda-block-too-large",
    "bin/../include/sycl/types.hpp:870:18: error: no matching function for call to 'convertImpl'": (
        "sycl-vec-bool-convert"
    ),
    # the notes on MetaSchedule
    "LocalBuilder: Timeout, killed after 30.0 seconds": "tvm-build-timeout",
    'error: identifier "__dp4a" is undefined': "dp4a-undefined",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "no-kernel-image",
    "Cannot find workload: fused_nn_dense": "tvm-workload-not-found",
    # the notes on schedules
    "Found conflicts! Looking for incompatible packages.": "conda-conflicts",
    "Warning: Cannot parse Arm(R)-based target features without LLVM support.\n"
    "Segmentation fault (core dumped)": "tvm-without-llvm",
    'TVMError: Operate on iter var T.iter_var(j_outer, None, "DataPar", "")that has already been split. ': (
        "tvm-axis-already-split"
    ),
    "InternalError: Check failed: (ReduceEqual(reduce, reduce_)) is false: The Reduce inputs of ComputeOp "
    "should have the same attribute except value_index": "tvm-reduce-not-equal",
    "InternalError: Check failed: (!out_dom_map->count(this->reduce_axis[i])) is false: ": (
        "tvm-shared-reduce-axis"
    ),
    "error: expected type\ndefine i32 @gemv_update(ptr noundef %0) #0 {": "tvm-typed-pointers",
    # its nine mistakes on GPUs
    'InternalError: Check failed: (match) is false: T.iter_var(blockIdx_y, None, "ThreadIndex", '
    '"blockIdx.y") domain already inferred, cannot prove their extents are the same 1024 vs 4': (
        "tvm-two-extents"
    ),
    "InternalError: Check failed: iv->iter_type == kDataPar (2 vs. 0) : Can only relayout with in data "
    "parallel dimensions": "tvm-relayout-reduction",
    'TVMError: Assert fail: T.tvm_struct_get(A, 0, 10, "int32") == 2, Argument mmult.A.device_type has an '
    'unsatisfied constraint: 2 == T.tvm_struct_get(A, 0, 10, "int32")': "tvm-tensor-on-host",
    "ptxas error   : Entry function 'default_function_kernel_1' uses too much shared data (0x10000 bytes, "
    "0xc000 max)": "shared-memory-too-large",
    "TVMError: not implemented .": "tvm-no-gpu",
    "TVMError: CUDALaunch Error: CUDA_ERROR_INVALID_VALUE\n grid=(2048,1,1),  block=(2048,1,1)": (
        "cuda-block-too-large"
    ),
    "InternalError: Check failed: (found_attach || stage_attach.size() == 0) is false: Invalid Schedule, "
    "cannot find the producer compute(A.shared, body=[A[ax0, ax1]])": "tvm-producer-outside",
    "InternalError: Check failed: (found) is false: Cannot find the axis T.iter_var(jj_outer_inner, None, "
    '"DataPar", "") in parent\'s leaf_iter_vars parent=stag': "tvm-axis-of-another-stage",
    'TVMError: Operate on iter var T.iter_var(jj_outer_inner, None, "DataPar", "")that is not part of the '
    "schedule": "tvm-axis-not-in-schedule",
}
DOCTOR = {
    # what users of other compilers report
    "PI_ERROR_INVALID_KERNEL_NAME": "invalid-kernel-name",
    "No kernel named k was found": "invalid-kernel-name",
    "hipErrorNoBinaryForGpu": "hip-no-binary",
    "code object v3 is not compatible": "hip-no-binary",
    "no kernel image is available for execution on the device": "no-kernel-image",
    "Unsupported gpu architecture 'compute_89'": "nvcc-unknown-arch",
    "CUDA driver version is insufficient for CUDA runtime version": "cuda-driver-too-old",
    "the provided PTX was compiled with an unsupported toolchain": "ptx-too-new-for-driver",
    "engine plan file is generated on an incompatible device": "tensorrt-other-device",
    "compute_No CUDA devices found.": "nvcc-arch-not-detected",
    '"max_shared_memory_per_block" is not defined in the target': "tvm-target-limits",
    "RPCSession kTvmErrorShutdown": "tvm-rpc-shutdown",
    "kShutdown": "tvm-rpc-shutdown",
    "ptxas error : Entry function uses too much shared data (0xc100 bytes, 0xc000 max)": (
        "shared-memory-too-large"
    ),
    "too many resources requested for launch": "cuda-out-of-resources",
    "failed to legalize operation 'torch.operator' that was explicitly marked illegal": (
        "iree-illegal-operation"
    ),
    "Unable to open /dev/kfd read-write: Permission denied": "kfd-permission",
    "libcuda.so.1: cannot open shared object file": "libcuda-missing",
    "ptxas fatal : Value 'sm_90' is not defined for option 'gpu-name'": "ptxas-unknown-arch",
    "Unsupported kernel bundle": "sycl-no-device",
    "No device of requested type available": "sycl-no-device",
    "IR version 12 is newer than 10": "onnx-version-too-new",
    "Unsupported ModelProto opset": "onnx-version-too-new",
    "Could not find any valid schedule": "tvm-no-valid-schedule",
    "ScheduleError: (not rendered)": "tvm-schedule-error-hidden",
    "CUDA is not enabled": "tvm-backend-not-enabled",
    "CUDA not enabled": "tvm-backend-not-enabled",
    "Unique op is not supported at this time. Please open an issue": "onnx-mlir-unsupported",
    "No solutions provided for gpu::mlir_op": "migraphx-no-solution",
    "/tmp/x: Permission denied: /tmp/tvm-debug-mode-tempdirs/x": "tvm-tempdir-of-another-user",
    # containers and tools
    "ERR_NVGPUCTRPERM": "profiling-restricted",
    "groups: cannot find name for group ID 109": "group-without-name",
    "the --mount option requires BuildKit": "no-buildkit",
    "buildx component is missing": "no-buildkit",
    "Not supported URL scheme http+docker": "docker-http-scheme",
    'error gathering device information while adding custom device "/dev/dri": no such file or directory': (
        "device-not-on-host"
    ),
    'could not select device driver "" with capabilities: [[gpu]]': "no-nvidia-runtime",
    "Unknown runtime specified nvidia": "no-nvidia-runtime",
    "unable to apply caps": "privileged-refused",
    "error setting rlimit type 7: operation not permitted": "privileged-refused",
    "crun: cgroups in hybrid mode not supported": "cgroups-hybrid",
    "nvcc fatal: Unknown option '--offload-arch'": "hipcc-became-nvcc",
    "error: invalid target ID 'gfx916'": "invalid-target-id",
    "UR adapter initialization failed 37": "sycl-no-device",
    "UR_RESULT_ERROR_DEVICE_NOT_AVAILABLE": "sycl-device-not-available",
    "not supported for SYCL runtime compilation": "sycl-jit-option",
    "PI_ERROR_INVALID_BINARY": "wrong-device-binary",
    "hipErrorNoDevice": "hip-no-device",
    "KilledWorker: f-1": "dask-killed-worker",
    "CERTIFICATE_VERIFY_FAILED": "certificate-not-trusted",
    "No space left on device": "engine-disk-full",
}


@pytest.mark.parametrize("text", [*SEEDS, *DOCTOR])
def test_every_error_of_the_sources_is_found_with_its_record(text: str) -> None:
    first, *others = found(f"building\n{text}\ndone")
    expected = {**SEEDS, **DOCTOR}[text]
    assert first == expected
    assert [one for one in others if not explains(BY_ID[expected], BY_ID[one])] == []


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_nothing_is_known_of_other_logs(path: Path) -> None:
    with path.open("rb") as stream:
        search = Search(ISSUES).read(stream)
    assert [ISSUES[one.issue].id for one in search.found()] == []


def test_there_are_logs() -> None:
    assert len(LOGS) >= 30


SUCCESSFUL = [
    "apt-simulated", "cargo-builds", "cmake-builds", "docker-buildkit", "gcc-warnings", "git-clone",
    "llvm-ninja", "nvcc-resources", "nvidia-smi", "pip-install", "sycl-ls", "tests-with-errors-in-names",
    "tvm-tuning",
]  # fmt: skip
FAILED = [
    "cargo-errors", "cmake-fails", "compose", "docker-step-fails", "gcc-errors", "git-conflict", "gradle",
    "hipcc-errors", "java-exception", "journal", "ld-undefined", "make-fails", "mypy-errors", "nvcc-errors",
    "pip-no-version", "pytest-fails", "python-traceback", "ssh-publickey", "terraform",
]  # fmt: skip


@pytest.mark.parametrize("name", [*SUCCESSFUL, *FAILED])
def test_what_looks_like_an_error(name: str) -> None:
    with (Path(__file__).parent / "logs" / f"{name}.log").open("rb") as stream:
        lines = Search(ISSUES).read(stream).wrong.lines()
    assert bool(lines) == (name in FAILED), lines
