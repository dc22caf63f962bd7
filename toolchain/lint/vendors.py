"""Rules about GPU stacks and SYCL: combinations and flags that are known not to work, with who found it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolchain.lint import find
from toolchain.lint.dockerfile import Dockerfile
from toolchain.lint.rule import Hit, LintRule

_CMAKE_FOR_DPCPP = (3, 20)
_DPCPP_ERA = re.compile(r"\b(2021|2022)-(\d{2})\b(?!-\d)")


def _anywhere(dockerfile: Dockerfile, pattern: str, flags: int = 0) -> Iterator[Hit]:
    for instruction in dockerfile.instructions:
        for match in re.finditer(pattern, f"{instruction.value}\n{instruction.heredoc}", flags):
            yield find.hit(instruction, match[0])


def _old_cmake(dockerfile: Dockerfile) -> Iterator[Hit]:
    pattern = r"(?<!--)cmake[-_/v=.]*[^\s;&|]*?\bv?(\d+\.\d+(?:\.\d+)?)|\bcmake==(\d+\.\d+(?:\.\d+)?)"
    for instruction in dockerfile.named("RUN", "ADD", "ENV", "ARG"):
        seen: set[str] = set()
        for match in re.finditer(pattern, instruction.script, re.IGNORECASE):
            version = match[1] or match[2]
            if find.version_of(version) < _CMAKE_FOR_DPCPP and version not in seen and not _is_flag(match[0]):
                seen.add(version)
                yield find.hit(instruction, f"CMake {version}", match[0])
    if find.builds_dpcpp(dockerfile):
        yield from _cmake_of_focal(dockerfile)


def _is_flag(text: str) -> bool:
    return bool(re.match(r"cmake_(minimum|policy|cxx|c|cuda|hip)", text, re.IGNORECASE))


def _cmake_of_focal(dockerfile: Dockerfile) -> Iterator[Hit]:
    old = any(
        re.search(r"ubuntu[:-]?(18|20)\.?04|focal|bionic", name) for _, name in find.base_images(dockerfile)
    )
    if not old or "kitware" in find.text_of(dockerfile).lower():
        return
    for instruction, command in find.runs(dockerfile):
        if "cmake" in find.apt_installed(command):
            yield find.hit(instruction, "CMake 3.16 or older, from Ubuntu", "cmake")


def _runtime_tag(dockerfile: Dockerfile) -> Iterator[Hit]:
    yield from _anywhere(dockerfile, r"\b20\d\d-WW\d{1,2}\b")


def _joined_arch(dockerfile: Dockerfile) -> Iterator[Hit]:
    yield from _anywhere(dockerfile, r"-fsycl-targets=\S*-(sm_\d+|gfx[0-9a-f]+)\S*")


def _werror(dockerfile: Dockerfile) -> Iterator[Hit]:
    if "-fsycl" not in find.text_of(dockerfile):
        return
    yield from _anywhere(dockerfile, r"(?<!\S)[\"']?\S*-Werror(?!=)\b")


def _no_offload_arch(dockerfile: Dockerfile) -> Iterator[Hit]:
    text = find.text_of(dockerfile)
    if re.search(r"--offload-arch=|--amdgpu-arch|-mcpu=gfx", text):
        return
    yield from _anywhere(dockerfile, r"-fsycl-targets=\S*amdgcn-amd-amdhsa\S*")


def _assertions(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        if (
            "configure.py" in command.text
            and "buildbot" in command.text
            and "--no-assertions" not in command.words
        ):
            yield find.hit(instruction, command.text, "configure.py")


def _gfx916(dockerfile: Dockerfile) -> Iterator[Hit]:
    yield from _anywhere(dockerfile, r"\bgfx916\b")


def _group(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        joins = command.program in ("usermod", "adduser", "gpasswd", "useradd") and re.search(
            r"\b(video|render)\b", command.text
        )
        makes = command.program in ("groupadd", "addgroup") and re.search(r"\brender\b", command.text)
        if joins or makes:
            yield find.hit(instruction, command.text, command.program)


def _group_by_name(dockerfile: Dockerfile) -> Iterator[Hit]:
    pattern = r"--group-add[= ](video|render)\b"
    for comment in dockerfile.comments:
        if match := re.search(pattern, comment.text):
            yield comment.line, match[0]
    yield from _anywhere(dockerfile, pattern)


def _rocm_base(dockerfile: Dockerfile) -> Iterator[tuple[str, str]]:
    """Reference and version of each ROCm base."""
    for _, reference in find.base_images(dockerfile):
        name = reference.partition("@")[0]
        if re.search(r"(^|/)rocm/|(^|/)rocm-", name):
            yield name, find.tag_of(reference)


def _missing_base(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, reference in find.base_images(dockerfile):
        match = re.search(r"rocm/dev-ubuntu-(22|24)\.04:(\d+(?:\.\d+)*)", reference)
        if match and find.version_of(match[2]) < ((5, 3) if match[1] == "22" else (6, 2)):
            yield find.hit(instruction, reference, "FROM")


def _rocm_too_new(dockerfile: Dockerfile) -> Iterator[Hit]:
    if not find.builds_dpcpp(dockerfile):
        return
    for instruction in dockerfile.instructions:
        release = _DPCPP_ERA.search(f"{instruction.value}\n{instruction.heredoc}")
        for name, version in _rocm_base(dockerfile):
            if release and find.version_of(version) >= (5, 5):
                yield find.hit(instruction, f"DPC++ {release[0]} on {name}", release[0])


def _arch_too_old(dockerfile: Dockerfile) -> Iterator[Hit]:
    for name, version in _rocm_base(dockerfile):
        if find.version_of(version) >= (6, 0):
            yield from ((line, f"{found} on {name}") for line, found in _anywhere(dockerfile, r"\bgfx906\b"))
    for _, reference in find.base_images(dockerfile):
        if re.search(r"nvidia/cuda:1[3-9]\.", reference):
            hits = _anywhere(dockerfile, r"\b(sm|compute)_(5\d|6\d|70|72)\b")
            yield from ((line, f"{found} on {reference.partition('@')[0]}") for line, found in hits)


def _old_selector(dockerfile: Dockerfile) -> Iterator[Hit]:
    of_its_era = bool(_DPCPP_ERA.search(find.text_of(dockerfile)))
    for instruction in dockerfile.named("ENV"):
        for name, value in find.settings(instruction):
            if name == "SYCL_BE" or (name == "SYCL_DEVICE_FILTER" and not of_its_era):
                yield find.hit(instruction, f"{name}={value}", name)


def _nvidia_env(dockerfile: Dockerfile) -> Iterator[Hit]:
    bases = [name for _, name in find.base_images(dockerfile)]
    if any("nvidia/" in name for name in bases) or "NVIDIA_VISIBLE_DEVICES" in find.text_of(dockerfile):
        return
    for instruction, command in find.runs(dockerfile):
        packages = [
            one
            for one in find.apt_installed(command)
            if re.match(r"(cuda-toolkit|cuda-runtime|cuda)(-\d|=|$)", one)
        ]
        if packages:
            yield find.hit(instruction, packages[0])


def _temporary_kernels(dockerfile: Dockerfile) -> Iterator[Hit]:
    yield from _anywhere(dockerfile, r"(?:-D|\b)SYCL_TEMP_FOLDER\b[= ]\"?/tmp\S*")


def _cuda_on_path(dockerfile: Dockerfile) -> Iterator[Hit]:
    if not find.builds_dpcpp(dockerfile):
        return
    for instruction in dockerfile.named("ENV"):
        for name, value in find.settings(instruction):
            if name in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH") and re.search(r"cuda", value):
                yield find.hit(instruction, f"{name}={value}", name)


_SYCL_GUIDE = "https://github.com/intel/llvm/blob/sycl/sycl/doc/GetStartedGuide.md"
RULES = (
    LintRule(
        "cmake-too-old", "error", "a CMake before 3.20",
        "DPC++ (2022-12 and later) does not configure with it",
        "cmake 3.20 or newer, as a pinned archive of Kitware with its sha256 or cmake==VERSION from pip",
        _SYCL_GUIDE, _old_cmake,
    ),
    LintRule(
        "dpcpp-runtime-tag", "error", "a YYYY-WWnn tag is no compiler",
        "those releases of intel/llvm hold CPU and FPGA runtimes only",
        "take a compiler release, such as 2022-12, or a nightly",
        "intel/llvm issue 13815", _runtime_tag,
    ),
    LintRule(
        "sycl-arch-in-triple", "error", "an arch inside -fsycl-targets",
        "the compiler drops the device code without an error; the program fails when it runs",
        "-fsycl-targets=nvptx64-nvidia-cuda -Xsycl-target-backend --cuda-gpu-arch=sm_80 "
        "(AMD: --offload-arch=gfx906); to silence the warning about expected targets: -Wno-sycl-target",
        "intel/llvm issue 7511", _joined_arch,
    ),
    LintRule(
        "sycl-werror", "warning", "-Werror beside -fsycl",
        "the driver's warning `linked binaries do not contain expected target` becomes fatal",
        "leave -Werror out for SYCL, or add -Wno-sycl-target",
        "intel/llvm issues 6636 and 10621", _werror,
    ),
    LintRule(
        "amdgcn-without-arch", "error", "SYCL for AMD without an arch",
        "amdgcn has no default: the compiler stops",
        "-Xsycl-target-backend=amdgcn-amd-amdhsa --offload-arch=gfx906",
        _SYCL_GUIDE, _no_offload_arch,
    ),
    LintRule(
        "dpcpp-assertions", "warning", "DPC++ is built with assertions",
        "that is the default of configure.py, and lets programs stop with `Kernel sets are not disjoint`",
        "configure.py --no-assertions",
        "intel/llvm issue 7676 and pull request 10551", _assertions,
    ),
    LintRule(
        "gfx916", "warning", "gfx916 is no arch of a compiler",
        "the Z100 is gfx906 for compilers; Hygon's own images name gfx906, 926, 928, 936 and 938",
        "gfx906",
        "PaddlePaddle cmake/hip.cmake; AMDGPU_TARGETS of the DTK 23.04 image", _gfx916,
    ),
    LintRule(
        "group-in-image", "warning", "group membership for a GPU is fixed inside the image",
        "the kernel compares numbers, and the number of `render` differs from host to host (109, 106, 993)",
        "leave it out; give the number of the device's group at run time, as `tk image run` does",
        "https://github.com/ROCm/ROCm-docker/issues/90", _group,
    ),
    LintRule(
        "group-by-name", "warning", "--group-add with a name",
        "the name is looked up in the image, whose number for it is another than the host's",
        "--group-add $(stat -c %g /dev/dri/renderD128)",
        "https://github.com/ROCm/ROCm-docker/issues/90", _group_by_name,
    ),
    LintRule(
        "base-does-not-exist", "error", "a ROCm image that was never made",
        "dev-ubuntu-22.04 begins with ROCm 5.3, dev-ubuntu-24.04 with 6.2",
        "rocm/dev-ubuntu-20.04 for the older ones",
        "https://github.com/ROCm/ROCm-docker build_all.sh (20a178c)", _missing_base,
    ),
    LintRule(
        "rocm-too-new-for-dpcpp", "error", "DPC++ of 2022 on ROCm 5.5 or newer",
        "the device libraries changed in 5.5; HIP programs do not link",
        "ROCm 5.2 to 5.4.3",
        _SYCL_GUIDE + "; Codeplay's AMD plugin 2023.1 release notes", _rocm_too_new,
    ),
    LintRule(
        "arch-too-old", "warning", "an arch that this version of the stack no longer supports",
        "gfx906 ended with ROCm 5.7, Volta and older with CUDA 12",
        "ROCm 5.7 or older for gfx906; CUDA 12 or older for sm_70",
        "https://rocm.docs.amd.com (5.6 and 5.7.0 release notes); CUDA 13.0 release notes", _arch_too_old,
    ),
    LintRule(
        "sycl-old-selector", "note", "a device selector of an older DPC++",
        "SYCL_BE ended in 2021, SYCL_DEVICE_FILTER in 2023",
        "ONEAPI_DEVICE_SELECTOR=cuda:* (hip:*, level_zero:*, opencl:*)",
        "https://github.com/intel/llvm/blob/sycl/sycl/doc/EnvironmentVariables.md", _old_selector,
    ),
    LintRule(
        "nvidia-env-missing", "warning", "CUDA on a base that does not ask for a GPU",
        "only NVIDIA's images set NVIDIA_VISIBLE_DEVICES; without it the container gets no GPU",
        "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
        _nvidia_env,
    ),
    LintRule(
        "kernels-in-shared-tmp", "warning", "kernels that are compiled at run time go to /tmp",
        "several users and containers write the same names there",
        "a private folder, such as a volume of the run",
        "TVM-SYCL src/runtime/sycl/sycl_module.cc; intel/llvm issue 7677", _temporary_kernels,
    ),
    LintRule(
        "cuda-headers-on-path", "warning", "CUDA's headers on the search path while DPC++ is built",
        "CUDA's OpenCL headers hide the ones that DPC++ brings",
        "CUDA_LIB_PATH=<cuda>/lib64/stubs and --cmake-opt=-DCUDA_TOOLKIT_ROOT_DIR=<cuda>",
        _SYCL_GUIDE, _cuda_on_path,
    ),
)  # fmt: skip
