"""Every network of the zoo, compiled with this machine's toolchains for GPUs: cubins, code objects, SPIR-V.

The numbers that the toolchains tell of each device function are checked and shown in a table at the end; with
`-s` each row as it comes. `bin/just gpu-compile` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import compiler
from compiler.core.diagnostics import HostError
from compiler.runtime.elf import read_images
from tests.support import gpu_images
from tests.support.gpu_images import CUDA, HIP, HIP_NARROW, Row, Time
from toolchain import zoo

LEFT_OUT = {"perceptron-2gb"}
"""As in test_networks.py: nine times one kernel, and 2.4 GB of constants to carry."""
QUICK = "mnist"
NETWORKS = [
    pytest.param(name, marks=[] if name == QUICK else [pytest.mark.slow])
    for name in zoo.networks()
    if name not in LEFT_OUT
]
OPENCL = ("opencl-nvidia", "opencl-amd", "opencl-intel")

Record = Callable[[str, object], None]


@pytest.fixture(scope="module", params=NETWORKS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A network as a file, which its tests share."""
    path = tmp_path_factory.mktemp("network") / f"{request.param}.onnx"
    zoo.make(request.param, path)
    yield path
    path.unlink()


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Path]:
    """Where a library goes; some have half a gigabyte, so none stays."""
    path = tmp_path / "m.so"
    yield path
    path.unlink(missing_ok=True)


def compiled(model: Path, target: str, archs: tuple[str, ...], library: Path) -> Time:
    """The time of a compile; skips where there is no toolchain for the target."""
    try:
        return gpu_images.compiled_here(model, target, archs, library)
    except HostError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("target", "archs"), [CUDA, *(pytest.param(*one, marks=pytest.mark.slow) for one in (HIP, HIP_NARROW))]
)
def test_binaries(
    model: Path, target: str, archs: tuple[str, ...], library: Path, record_property: Record
) -> None:
    took = compiled(model, target, archs, library)
    gpu_images.tell(gpu_images.binaries(model.stem, target, archs, library, took), record_property)


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", OPENCL)
def test_spirv_of_opencl(model: Path, target: str, library: Path, record_property: Record) -> None:
    took = compiled(model, target, (), library)
    manifest = compiler.manifest_of(library)
    spirv = [data for kind, _, data in read_images(library) if kind == "spirv"]
    if not spirv:
        pytest.skip(f"no llvm-spirv: {manifest['toolchain']}")
    names = gpu_images.device_functions(manifest)
    assert sorted(gpu_images.spirv_entries(spirv[0])) == sorted(names)
    row = Row(model.stem, target, took, len(names), shared_bytes=gpu_images.shared_most(manifest))
    gpu_images.tell(row, record_property)
