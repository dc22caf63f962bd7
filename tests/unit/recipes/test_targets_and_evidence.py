"""Images of targets, known issues, and the evidence behind what the list says."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler import BadInputError, UsageError
from toolchain.engine.causes import known_causes
from toolchain.recipes.evidence import Evidence, load_evidence, record_evidence, states
from toolchain.recipes.resolve import RecipeCatalog, load_catalog, resolve
from toolchain.recipes.targets import image_for


@pytest.fixture(scope="module")
def catalog() -> RecipeCatalog:
    return load_catalog()


@pytest.mark.parametrize(
    ("target", "archs", "image"),
    [
        ("cpu", [], "cpu"),
        ("sycl-cpu", [], "cpu-sycl"),
        ("opencl-cpu", [], "cpu-sycl"),
        ("cuda-nvidia", [], "cuda-11.8.0"),
        ("cuda", [], "cuda-11.8.0"),
        ("cuda-nvidia", ["sm_90"], "cuda-11.8.0"),
        ("cuda-nvidia", ["sm_70", "sm_120"], "cuda-12.8.1"),
        ("sycl-nvidia", [], "cuda-11.8.0+dpcpp-2022-12"),
        ("sycl-nvidia", ["sm_120"], "cuda-12.8.1+dpcpp-6.3.0"),
        ("opencl-nvidia", [], "cuda-11.8.0"),
        ("rocm-amd", [], "rocm-5.4.3"),
        ("hip", ["gfx90a"], "rocm-5.4.3"),
        ("rocm", ["gfx1100"], "rocm-6.4.1"),
        ("sycl-amd", [], "rocm-5.4.3+dpcpp-2022-12"),
        ("sycl-amd", ["gfx942"], "rocm-6.2.0+dpcpp-6.3.0"),
        ("opencl-amd", [], "rocm-5.4.3"),
        ("rocm-hygon", [], "dtk-23.04"),
        ("dtk", ["gfx936"], "dtk-25.04.2"),
        ("sycl-hygon", ["gfx916"], "dtk-23.04+dpcpp-2022-12"),
        ("opencl-hygon", [], "dtk-23.04"),
        ("sycl-intel", [], "oneapi-2024.2.1"),
        ("opencl-intel", [], "oneapi-2024.2.1"),
    ],
)
def test_image_of_a_target(target: str, archs: list[str], image: str, catalog: RecipeCatalog) -> None:
    found = image_for(target, catalog, archs=archs)
    assert found.image == image
    assert found.because
    assert resolve(found.image, catalog, archs=found.archs).archs == found.archs


def test_a_passed_over_image_is_told(catalog: RecipeCatalog) -> None:
    assert "not cuda-11.8.0: arch-not-in-stack" in image_for("cuda", catalog, archs=["sm_120"]).because


def test_no_image_has_the_arch(catalog: RecipeCatalog) -> None:
    with pytest.raises(BadInputError, match="arch-not-in-stack"):
        image_for("sycl-hygon", catalog, archs=["gfx936"])
    with pytest.raises(UsageError, match="sycl-nvidia"):
        image_for("sycl-nvida", catalog)
    with pytest.raises(UsageError, match="sm_"):
        image_for("cuda", catalog, archs=["sm_7"])


LOGS = {
    "kernel-sets-not-disjoint": "x.cpp:1: Assertion `KSIdMap[EntriesIt->name] == KSIdIt->second && "
    '"Kernel sets are not disjoint"\' failed',
    "unexpected-sycl-target": "clang-16: warning: linked binaries do not contain expected 'nvptx64' "
    "target [-Wsycl-target]",
    "cubin-permission-denied": "clang-offload-bundler: error: 'scratch/libsycl-complex-fp64-11cc6d.cubin': "
    "Permission denied",
    "hip-kernel-not-found": "PI HIP ERROR: hipErrorNotFound Function: hip_piKernelCreate",
    "hip-no-binary": 'hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"',
    "cuda-illegal-address": "Name: CUDA_ERROR_ILLEGAL_ADDRESS",
    "cuda-out-of-resources": "Name: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    "memory-access-fault": "Memory access fault by GPU node-2 (Agent handle: 0x565) on address 0x7f",
    "kernel-not-supported": "Check failed: (e.code() == errc::success) is false: SYCL Error, code=sycl:13: "
    "KERNEL NOT SUPPORTED",
    "hygon-function-not-found": "[LOG_ERROR]: cannot find the function _ZTSZZ39tvmgen_default_",
    "sycl-vec-bool-convert": "types.hpp:870:18: error: no matching function for call to 'convertImpl'",
    "unroll-hint-ignored": "Warning: Unroll hint get ignore at CodeGenLLVM backend,  consider",
    "invalid-kernel-name": "PI_ERROR_INVALID_KERNEL_NAME -46",
    "wrong-device-binary": "Native API returns: -42 (PI_ERROR_INVALID_BINARY)",
    "profiling-restricted": "==PROF== ERR_NVGPUCTRPERM The user does not have permission",
    "ptxas-too-new": "ptxas fatal   : Unsupported .version 8.3; current version is '7.2'",
    "opencl-without-devices": "No OpenCL platforms found!",
    "package-not-installable": " hip-runtime-amd : Depends: comgr (= 2.5.0.50403-121~20.04) "
    "but it is not installable",
    "package-version-gone": "E: Failed to fetch http://ftp.debian.org/debian/pool/main/g/git/git_2.39.2-1.1_amd64"
    ".deb  404  Not Found [IP: 151.101.2.132 80]",
    "apt-key-expired": "W: GPG error: https://repo.radeon.com/rocm/apt/5.4.3 ubuntu InRelease: The following "
    "signatures were invalid: EXPKEYSIG 9386B48A1A693C5C James Adrian Edwards",
    "apt-key-replaced": "W: GPG error: https://apt.repos.intel.com/oneapi all InRelease: The following "
    "signatures couldn't be verified because the public key is not available: NO_PUBKEY BAC6F0C353D04109",
    "base-gone": "manifest for nvidia/cuda:11.2.2-devel-ubuntu20.04 not found: manifest unknown",
    "tvm-rocm-bitcode": "oclc_isa_version_908.bc: No such file or directory",
}


@pytest.mark.parametrize("issue", LOGS)
def test_known_issues_are_found_in_logs(issue: str, catalog: RecipeCatalog) -> None:
    found = known_causes(["building", LOGS[issue], "done"], [one.row for one in catalog.issues.values()])
    assert issue in [one.issue for one in found]


@pytest.mark.parametrize(
    "line",
    [
        "dial tcp: lookup registry-1.docker.io on 127.0.0.53:53: server misbehaving",
        "dial tcp 192.0.2.7:443: connect: network is unreachable",
        "dial tcp: lookup ghcr.io on 192.0.2.1:53: no such host",
    ],
)
def test_an_engine_without_network_is_known(line: str, catalog: RecipeCatalog) -> None:
    found = known_causes([line], [one.row for one in catalog.issues.values()])
    assert [one.issue for one in found] == ["no-name-resolution"]


def test_the_problems_of_the_teams_report_are_known(catalog: RecipeCatalog) -> None:
    assert LOGS.keys() - catalog.issues.keys() == set()


def test_no_known_issue_is_found_in_a_good_log(catalog: RecipeCatalog) -> None:
    lines = [
        "[100%] Linking CXX executable clang",
        "Successfully built 0123456789ab",
        "warning: unused variable",
    ]
    assert known_causes(lines, [one.row for one in catalog.issues.values()]) == ()


def test_evidence_counts_for_the_same_recipe_only(tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    assert load_evidence(path) == ()
    record_evidence(
        [Evidence("cpu", "built", "a" * 64, "a test"), Evidence("cpu", "rendered", "a" * 64, "b")], path
    )
    record_evidence([Evidence("cpu", "built", "b" * 64, "a test")], path)
    records = load_evidence(path)
    assert len(records) == 2
    assert states(["cpu"], "b" * 64, records) == {
        "rendered": "unknown",
        "dry-built": "no",
        "built": "yes",
        "published": "no",
        "run-on-device": "no",
    }
    assert set(states(["cuda-13.0.0"], "b" * 64, records).values()) == {"no"}


BROKEN = ["{", "[]", '{"evidence": [{"name": "cpu"}]}', '{"evidence": 1}', '{"evidence": [%s]}']
PERFECT = '{"name": "cpu", "state": "perfect", "recipe_hash": "", "by": ""}'


@pytest.mark.parametrize("text", BROKEN)
def test_broken_evidence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    path.write_text(text.replace("%s", PERFECT))
    with pytest.raises(BadInputError, match="evidence is broken"):
        load_evidence(path)


def test_evidence_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"evidence is broken\n.*\nwhy: .*Is a directory"):
        load_evidence(tmp_path)


def test_shipped_evidence_says_what_is_true(catalog: RecipeCatalog) -> None:
    """Whatever it claims is of an image that can be named."""
    for record in load_evidence():
        assert resolve(record.name, catalog, allow=list(catalog.rules)).recipe_hash
        assert record.by
