"""Every shipped recipe is built to its last instruction, with stubs in place of all that it fetches.

Bases are a Debian that says it is the recipe's system and has Python, pip and git for real; apt repositories,
Python index, git trees and downloads come from a mirror with empty packages. So every instruction runs, every
file that is copied must be there, and what is asked of DPC++'s configure.py is seen from its side. Stubs
refuse what the real thing refuses: pip a pin that is not for the base's Python, apt a vendor's list whose key
no longer counts, DPC++'s configuration a CUDA without the driver's stub and a clone that nothing serves. With
`--update-golden` what was dry-built is written down as evidence, which `tk image list` shows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import stub_mirror, stub_programs
from tests.support.engine import TestEngine
from tests.support.python_pins import REQUIRES_PYTHON
from tests.support.recipes import catalog, dpcpp_names, plan, shipped_names
from tests.support.stub_mirror import StubMirror
from toolchain.data import data_directory
from toolchain.engine import store
from toolchain.engine.build import build_image
from toolchain.engine.client import Engine
from toolchain.images.formats.bake import every_need
from toolchain.images.plan import UNRESOLVED, BaseImage, ContextFile, Copy, From, Pins, Plan, Run, Stage
from toolchain.images.planner import plan_image
from toolchain.recipes.evidence import FILE, Evidence, record_evidence
from toolchain.recipes.resolve import Component, Resolution, resolve
from toolchain.recipes.schema import DownloadFile
from toolchain.site import SiteConfig

pytestmark = pytest.mark.slow

_STAND_IN = "dry-base"
_RELEASES_OF_2022 = ("2022-06", "2022-09", "2022-12")
_CLONED_ALWAYS = "https://github.com/KhronosGroup/OpenCL-Headers"
_OUTDATED_LISTS = {
    "cuda": ({"11.2.2", "11.4.2"}, ("cuda.list", "nvidia-ml.list")),
    "oneapi": ({"2022.2", "2023.1.0", "2023.2.1", "2024.1.0"}, ("oneAPI.list", "intel-graphics.list")),
}
"""Versions whose bases have lists of packages with keys that no longer count: NVIDIA replaced its key in 2022
(intel/llvm's and TVM's Dockerfiles), Intel its own later (intel/oneapi-containers issues 53 and 71)."""
_OF_OTHER_PYTHONS = {"attrs==26.1.0": ">=3.9", "typing_extensions==4.16.0": ">=3.9"}
"""What was pinned once for Python 3.8, and which Pythons the index says it is for."""
_PIP_OF_SYSTEM = "/usr/local/lib/python3.11/dist-packages/pip"


@dataclasses.dataclass(frozen=True, slots=True)
class Workshop:
    """The engine, the mirror, and the site that makes builds use it."""

    engine: Engine
    mirror: StubMirror
    site: SiteConfig
    base: str


@pytest.fixture(scope="module")
def workshop(docker_engine: TestEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with _opened(docker_engine, tmp_path_factory.mktemp("mirror")) as opened:
        yield opened


@contextlib.contextmanager
def _opened(under_test: TestEngine, folder: Path) -> Iterator[Workshop]:
    engine = under_test.open()
    with engine.guard("look at the network"):
        network = engine.api.inspect_network("podman" if engine.kind == "podman" else "bridge")
    base = build_image(engine, _stand_in(under_test.base, _resolution("cpu")))
    status = engine.read_file(base.reference, "/var/lib/dpkg/status") or b""
    with stub_mirror.serving(folder) as mirror:
        mirror.installed = frozenset(re.findall(r"^Package: (\S+)$", status.decode(), re.MULTILINE))
        _fill(mirror)
        site = mirror.site(network["IPAM"]["Config"][0]["Gateway"])
        yield Workshop(engine, mirror, site, under_test.base)
    ours = [one for one in store.list_images(engine, untagged=True) if one.stand_in or one.name == _STAND_IN]
    store.remove_images(engine, ours, force=True)


def _fill(mirror: StubMirror) -> None:
    for name in shipped_names():
        resolution = _resolution(name)
        for one in (plan(name), *every_need(plan(name))):
            mirror.add_packages([*one.apt, "python3-venv"])
            mirror.add_wheels(one.pip)
        for component in resolution.components:
            _add_sources(mirror, component)
        layers = [resolution.stack.layer, *(one.layer for one in resolution.components)]
        for layer in layers:
            for repository in layer.repositories:
                mirror.downloads[repository.key] = mirror.public_key()
            for download in layer.downloads:
                mirror.downloads[download.url] = _stub_of(mirror, download)


def _stub_of(mirror: StubMirror, download: DownloadFile) -> bytes:
    if download.unpack == "tar":
        return stub_mirror.archive(stub_programs.PYTHON_TREE)
    assert download.unpack == "deb", "a stub for other downloads is still to be written"
    name = download.url.rpartition("/")[2].partition("_")[0]
    mirror.add_packages([name])
    return mirror.packages[name]


def _add_sources(mirror: StubMirror, component: Component) -> None:
    build = component.build
    if build is None:
        return
    mirror.add_wheels(build.python_packages)
    if f"{build.git.url} {build.git.ref}" in mirror.commits:
        return
    for one in build.fetches:
        _add_library(mirror, one.url, one.ref)
    files = stub_programs.TVM_TREE | ({f"{build.folder}/CMakeLists.txt": ""} if build.folder else {})
    if build.system == "dpcpp":
        _add_library(mirror, _CLONED_ALWAYS, "main")
        locked = [(f"{one.url}.git", mirror.commits[f"{one.url} {one.ref}"]) for one in build.fetches]
        files = stub_programs.dpcpp_tree(
            locked or [(_CLONED_ALWAYS, mirror.commits[f"{_CLONED_ALWAYS} main"])]
        )
    mirror.add_tree(build.git.url, build.git.ref, files)


def _add_library(mirror: StubMirror, url: str, ref: str) -> None:
    if f"{url} {ref}" not in mirror.commits:
        mirror.add_tree(url, ref, {"README": f"{url} {ref}\n"})


def _resolution(name: str) -> Resolution:
    return resolve(name, catalog(), allow=tuple(catalog().rules))


def _unpinned(resolution: Resolution, mirror: StubMirror) -> Resolution:
    """The same with nothing pinned but the mirror's key, as stubs have checksums and commits of their own."""
    own_key = {"key_sha256": UNRESOLVED, "key_fingerprint": mirror.fingerprint()}

    def free(one: Component) -> Component:
        downloads = tuple(file.model_copy(update={"sha256": UNRESOLVED}) for file in one.layer.downloads)
        sources = tuple(s.model_copy(update=own_key) for s in one.layer.repositories)
        layer = one.layer.model_copy(update={"downloads": downloads, "repositories": sources})
        if one.build is None:
            return dataclasses.replace(one, layer=layer)
        git, *fetches = (
            tree.model_copy(update={"commit": UNRESOLVED}) for tree in (one.build.git, *one.build.fetches)
        )
        build = one.build.model_copy(update={"git": git, "fetches": tuple(fetches)})
        return dataclasses.replace(one, layer=layer, build=build)

    parts = tuple(free(one) for one in resolution.components)
    return dataclasses.replace(resolution, stack=free(resolution.stack), components=parts)


def _pins(mirror: StubMirror, resolution: Resolution) -> Pins:
    downloads = {url: mirror.sha256(url) for url in mirror.downloads}
    needs = {
        one.kind: Pins(
            downloads=downloads,
            git={
                tree.url: mirror.commits[f"{tree.url} {tree.ref}"]
                for tree in (one.build.git, *one.build.fetches)
            },
        )
        for one in resolution.components
        if one.build is not None
    }
    return Pins(downloads=downloads, needs=needs)


def _stand_in(base: str, resolution: Resolution) -> Plan:
    """A base that says it is the recipe's system, with what stubs need to run for real."""
    system, version = resolution.system.system, resolution.system.version
    versions, names = _OUTDATED_LISTS.get(resolution.stack.kind, (set(), ()))
    lists = names if resolution.stack.version in versions else ()
    files = (
        ContextFile("os-release", f'ID={system}\nVERSION_ID="{version}"\n'.encode()),
        ContextFile("sources.list", b"deb [trusted=yes] https://stub.invalid/base stub main\n"),
        ContextFile("cmake", stub_programs.CMAKE.encode(), 0o755),
        ContextFile("pip/__init__.py", b""),
        ContextFile("pip/__main__.py", stub_programs.PIP.encode()),
        ContextFile("pip/base.json", json.dumps(_pythons(resolution)).encode()),
        *(
            ContextFile(f"lists/{one}", f"deb https://outdated.invalid/{one} stub main\n".encode())
            for one in lists
        ),
    )
    real = ("git", "gpg", "python3", "python3-pip", "python3-venv")
    steps = (
        From(base, "base"),
        Run((("apt-get", "update"), ("apt-get", "install", "--yes", "--no-install-recommends", *real))),
        Copy(("cmake",), "/usr/local/bin/cmake"),
        Copy(("sources.list",), "/etc/apt/sources.list"),
        Copy(("os-release",), "/usr/lib/os-release"),
        Copy(("pip",), _PIP_OF_SYSTEM),
        *([Copy(("lists",), "/etc/apt/sources.list.d")] if lists else []),
    )
    tag = f"{system}-{version}{'-outdated' if lists else ''}"
    return Plan(_STAND_IN, f"tk-test/{_STAND_IN}", tag, BaseImage(base), (Stage("base", steps),), files)


def _pythons(resolution: Resolution) -> dict[str, Any]:
    """What the system's pip refuses by: the base's Python, and which Pythons pins are for."""
    requires = json.loads(REQUIRES_PYTHON.read_text()) | _OF_OTHER_PYTHONS
    return {"python": resolution.provides.get("python", "2.7"), "requires": requires}


@pytest.fixture(scope="module")
def evidence(request: pytest.FixtureRequest) -> Iterator[list[Evidence]]:
    found: list[Evidence] = []
    yield found
    if request.config.getoption("--update-golden"):
        record_evidence(found, data_directory("recipes") / FILE)


@pytest.mark.parametrize("name", shipped_names())
def test_every_instruction_runs(name: str, workshop: Workshop, evidence: list[Evidence]) -> None:
    _dry_build(name, workshop)
    by = "tests/images/test_dry_build.py, with stubs"
    evidence.append(Evidence(name, "dry-built", _resolution(name).recipe_hash, by))


def test_components_are_copied_with_podman_too(
    podman_engine: TestEngine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with _opened(podman_engine, tmp_path_factory.mktemp("mirror")) as opened:
        _dry_build("tvm-sycl-rocm", opened)


def _dry_build(name: str, workshop: Workshop) -> None:
    resolution = _resolution(name)
    stand_in = build_image(workshop.engine, _stand_in(workshop.base, resolution))
    made = plan_image(
        _unpinned(resolution, workshop.mirror),
        site=workshop.site,
        lock=_pins(workshop.mirror, resolution),
        base=stand_in.reference,
    )
    built = build_image(workshop.engine, made, site=workshop.site)
    facts = workshop.engine.image(built.reference)
    assert facts is not None
    assert facts["Config"]["Labels"]["tk.stand-in"] == stand_in.reference
    assert facts["Config"]["User"] == "10000:10000"
    _check_environment(made, facts["Config"]["Env"])
    for component in resolution.components:
        _check_component(workshop, built.reference, resolution, component)


def _check_environment(made: Plan, pairs: list[str]) -> None:
    values = dict(one.split("=", 1) for one in pairs)
    assert values["PATH"].endswith("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    assert not any("$" in value for value in values.values())
    resolution = made.resolution
    assert resolution is not None
    layers = [resolution.stack.layer, *(one.layer for one in resolution.components)]
    for layer in layers:
        assert set(layer.path) <= set(values["PATH"].split(":"))
        assert set(layer.libraries) <= set(values.get("LD_LIBRARY_PATH", "").split(":"))


def _check_component(workshop: Workshop, image: str, resolution: Resolution, component: Component) -> None:
    """What was built is in the image, and what its sources' configuration was asked is what the facts say."""
    build = component.build
    if build is None:
        return
    if build.system == "files":
        kept = workshop.engine.read_file(image, f"{build.prefix}/CMakeLists.txt")
        assert kept == stub_programs.TVM_TREE["CMakeLists.txt"].encode()
        return
    data = workshop.engine.read_file(image, f"{build.prefix}/recorded.json")
    assert data is not None
    recorded: Any = json.loads(data)
    if build.system == "dpcpp":
        assert recorded["configure"] == _configure_arguments(resolution, component.version)
        assert recorded["compile"] == ["-o", "/build"]
        return
    assert f"-DCMAKE_INSTALL_PREFIX={build.prefix}" in recorded["configure"]
    if build.python is None:
        return
    module = workshop.engine.read_file(image, f"{build.prefix}/python/tvm/__init__.py")
    assert module == stub_programs.TVM_TREE["python/tvm/__init__.py"].encode()


def _configure_arguments(resolution: Resolution, version: str) -> list[str]:
    """Arguments of configure.py, by stack and release (intel/llvm buildbot/configure.py at b2217df9, later).

    Assertions are on by default there; ROCm's place was SYCL_BUILD_PI_HIP_ROCM_DIR until the plugins became
    Unified Runtime adapters.
    """
    old = version in _RELEASES_OF_2022 or version.startswith(("2023-", "nightly-2023"))
    rocm = "SYCL_BUILD_PI_HIP_ROCM_DIR" if old else "UR_HIP_ROCM_DIR"
    cuda = "CUDA_TOOLKIT_ROOT_DIR" if old else "CUDAToolkit_ROOT"
    by_stack = {
        "cuda": ["--cuda", f"--cmake-opt=-D{cuda}=/usr/local/cuda"],
        "rocm": ["--hip", "--hip-platform", "AMD", f"--cmake-opt=-D{rocm}=/opt/rocm"],
        "dtk": ["--hip", "--hip-platform", "AMD", f"--cmake-opt=-D{rocm}=/opt/dtk"],
        "oneapi": [],
    }
    return [
        *(f"--cmake-opt=-DCMAKE_{one}_COMPILER_LAUNCHER=ccache" for one in ("C", "CXX")),
        *("-o", "/build", "-t", "Release", "--no-assertions"),
        *by_stack[resolution.stack.kind],
        "--cmake-opt=-DCMAKE_INSTALL_PREFIX=/opt/dpcpp",
    ]


def test_releases_of_dpcpp_are_among_them() -> None:
    assert {one.rpartition("+dpcpp-")[2] for one in dpcpp_names()} >= set(_RELEASES_OF_2022)


def test_a_wrong_checksum_or_commit_stops_the_build(workshop: Workshop) -> None:
    from compiler import BuildError

    resolution = _resolution("rocm-5.4.3+dpcpp-2022-12")
    stand_in = build_image(workshop.engine, _stand_in(workshop.base, resolution)).reference
    right = _pins(workshop.mirror, resolution)
    wrong_sum = dataclasses.replace(right, downloads=dict.fromkeys(right.downloads, "0" * 64))
    need = dataclasses.replace(right.needs["dpcpp"], git=dict.fromkeys(right.needs["dpcpp"].git, "1" * 40))
    for lock, said in (
        (wrong_sum, f"expected {'0' * 64}"),
        (dataclasses.replace(right, needs={"dpcpp": need}), "1" * 40),
    ):
        made = plan_image(
            _unpinned(resolution, workshop.mirror), site=workshop.site, lock=lock, base=stand_in
        )
        with pytest.raises(BuildError) as caught:
            build_image(workshop.engine, made, site=workshop.site)
        assert said in caught.value.why


def test_what_is_unresolved_is_refused_before_anything_is_built(workshop: Workshop) -> None:
    from compiler import BadInputError

    resolution = _unpinned(_resolution("rocm-5.4.3"), workshop.mirror)
    before = len(workshop.mirror.asked)
    with pytest.raises(BadInputError) as caught:
        build_image(workshop.engine, plan_image(resolution, site=workshop.site, base=workshop.base))
    assert "sha256 of https://github.com/indygreg/python-build-standalone" in caught.value.why
    assert "tk image lock rocm-5.4.3" in caught.value.hint
    assert len(workshop.mirror.asked) == before


def test_paths_of_the_stub_are_not_in_layers(workshop: Workshop, tmp_path: Path) -> None:
    """The site's mirrors are secrets of the build: no layer and no history names them."""
    import tarfile

    resolution = _resolution("cuda-12-pip")
    stand_in = build_image(workshop.engine, _stand_in(workshop.base, resolution)).reference
    made = plan_image(resolution, site=workshop.site, base=stand_in)
    built = build_image(workshop.engine, made, site=workshop.site)
    saved = tmp_path / "image.tar"
    with workshop.engine.guard("save the image"), saved.open("wb") as stream:
        for chunk in workshop.engine.api.get_image(built.reference):
            stream.write(chunk)
    mark = f":{workshop.mirror.port}/".encode()
    with tarfile.open(saved) as outer:
        for member in outer.getmembers():
            content = outer.extractfile(member)
            if content is None:
                continue
            data = content.read()
            assert mark not in data, member.name
            if member.name.endswith("layer.tar"):
                _assert_not_in(mark, data, member.name, tmp_path)


def _assert_not_in(mark: bytes, layer: bytes, name: str, folder: Path) -> None:
    import tarfile

    path = folder / "layer.tar"
    path.write_bytes(layer)
    with tarfile.open(path) as tar:
        for member in tar.getmembers():
            content = tar.extractfile(member) if member.isfile() else None
            assert content is None or mark not in content.read(), f"{name}: {member.name}"
