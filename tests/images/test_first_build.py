"""The first commands as a new user types them: nothing was locked, built or set up before.

The base images come from a registry of the tests, which the user's `site.yaml` names in place of Docker's, as
an office without direct internet has it. For `cpu-sycl` apt's and pip's packages are real. For `rocm-5.4` and
`sycl-nvidia` everything is a stub but the steps themselves, by a copy of `tk` whose recipes trust the stubs'
key, commits and checksums: the vendor's own cannot be had here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from compiler import load_settings
from tests.images.test_dry_build import _fill, _resolution, _stand_in
from tests.support import command, stub_mirror
from tests.support.documents import shell_commands
from tests.support.engine import TestEngine
from tests.support.stub_mirror import StubMirror
from toolchain.engine import store
from toolchain.engine.build import build_image
from toolchain.engine.client import Engine

pytestmark = pytest.mark.slow

_DEBIAN = "debian:bookworm-slim"
_MINUTES = 60.0
_HOSTS = ("stub.invalid", "repo.radeon.com", "github.com", "apt.llvm.org", "developer.download.nvidia.com")
"""Where the steps of these images fetch from."""


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with an engine, a home and a site.yaml; `checkout` is the `tk` that is installed."""

    home: Path
    engine: str
    checkout: Path

    @property
    def environment(self) -> Mapping[str, str]:
        folders = {
            "HOME": "",
            "XDG_CONFIG_HOME": "config",
            "XDG_STATE_HOME": "state",
            "XDG_DATA_HOME": "data",
        }
        own = {name: str(self.home / folder) for name, folder in folders.items()}
        return {**own, "DOCKER_HOST": self.engine, "PYTHONPATH": str(self.checkout)}

    def types(self, words: str, folder: Path | None = None) -> command.Result:
        """Run what is typed, as it stands; by default in the home folder."""
        program, *arguments = words.split()
        assert program == "tk"
        return command.tk(*arguments, cwd=folder or self.home, env=self.environment, timeout=30 * _MINUTES)


def _user(home: Path, engine: TestEngine, site: str, checkout: Path = command.ROOT) -> User:
    (home / "config" / "tk").mkdir(parents=True)
    (home / "config" / "tk" / "site.yaml").write_text(site)
    return User(home, engine.url, checkout)


def _hub(registry: str) -> str:
    return f"mirrors:\n  registry:\n    - original: docker.io\n      mirror: {registry}/hub\n"


def _put(engine: Engine, image: str, registry: str, reference: str) -> None:
    """Put an image of the engine into the registry, as if it were Docker's `reference`."""
    full = reference if "/" in reference else f"library/{reference}"
    repository, _, tag = f"{registry}/hub/{full}".rpartition(":")
    with engine.guard("fill the registry"):
        engine.api.tag(image, repository, tag)
        for line in engine.api.push(repository, tag=tag, stream=True, decode=True):
            assert "error" not in line, line
        engine.api.remove_image(f"{repository}:{tag}")


@pytest.fixture(scope="module")
def cleaned(docker_engine: TestEngine) -> Iterator[Engine]:
    """The engine, from which all images of ours are removed before and after."""
    if not docker_engine.private:
        pytest.skip("it would remove images from an engine that is not ours")
    engine = docker_engine.open()

    def clean() -> None:
        store.remove_images(engine, list(store.list_images(engine, untagged=True)), force=True)

    clean()
    yield engine
    clean()


@pytest.fixture(scope="module")
def newcomer(
    cleaned: Engine, docker_engine: TestEngine, registry: str, tmp_path_factory: pytest.TempPathFactory
) -> User:
    """A user whom nothing stands in the way of: real packages, and a registry with the base."""
    _put(cleaned, docker_engine.base, registry, _DEBIAN)
    return _user(tmp_path_factory.mktemp("newcomer"), docker_engine, _hub(registry))


def test_build_setup_compile_as_typed(newcomer: User, tmp_path: Path) -> None:
    """Acceptance: `tk image build cpu-sycl`, `tk setup cpu-sycl`, `tk compile ... --build`, to the end."""
    built = newcomer.types("tk image build cpu-sycl")
    assert built.code == 0, built.err[-3000:]
    said = built.err.splitlines()
    lock = newcomer.home / "state" / "tk" / "tk.lock"
    assert f"locking cpu-sycl in {lock}: no lock fixes its versions yet" in said
    assert len(said) < 60, "what steps print is in the log"
    text = lock.read_text()
    assert re.search(r'base_digest = "sha256:[0-9a-f]{64}"', text)

    ready = newcomer.types("tk setup cpu-sycl")
    assert ready.code == 0, ready.err[-3000:]
    assert ready.out.strip() == "tk image shell cpu-sycl"
    assert f"{built.out.strip()}: found; it works" in ready.err

    assert newcomer.types("tk zoo make mnist").code == 0
    made = newcomer.types("tk compile mnist.onnx --target sycl-cpu --build")
    assert made.code == 0, made.err[-3000:]
    inside = newcomer.types("tk compile mnist.onnx --target sycl-cpu --image cpu-sycl --build -o inside.so")
    assert inside.code == 0, inside.err[-3000:]
    assert newcomer.types("tk inspect inside.so").code == 0


def test_a_colleague_with_the_lock_builds_the_same(newcomer: User, cleaned: Engine, tmp_path: Path) -> None:
    """A second clone with the committed lock: the same context bytes, the same inventory."""
    folders = [tmp_path / "first", tmp_path / "second"]
    renders, inventories = [], []
    for folder in folders:
        (folder / ".git").mkdir(parents=True)
        if folder is not folders[0]:
            shutil.copy(folders[0] / "tk.lock", folder)
        built = newcomer.types("tk image build cpu-sycl", folder)
        assert built.code == 0, built.err[-3000:]
        assert newcomer.types("tk image render cpu-sycl -o context", folder).code == 0
        renders.append({
            path.relative_to(folder): path.read_bytes()
            for path in sorted((folder / "context").rglob("*")) if path.is_file()
        })  # fmt: skip
        inventories.append(newcomer.types("tk image sbom cpu-sycl", folder).out)
        checked = newcomer.types("tk image check cpu-sycl --locked", folder)
        assert checked.code == 0, checked.out
        with cleaned.guard("forget"):
            cleaned.api.remove_image(built.out.strip(), force=True)
    first, second = renders
    assert {path.name: data for path, data in first.items()} == {
        path.name: data for path, data in second.items()
    }
    assert inventories[0] == inventories[1] != ""


def test_without_the_base_the_way_out_is_told(
    cleaned: Engine, docker_engine: TestEngine, tmp_path: Path
) -> None:
    """No internet: what is missing, and how a bundle brings it; nothing is written."""
    offline = _user(tmp_path, docker_engine, _hub("127.0.0.1:9"))
    tried = offline.types("tk image build cpu")
    assert tried.code == 4, tried.err
    assert "debian:bookworm-slim" in tried.err
    assert "tk image bundle export cpu" in tried.err
    assert "tk image bundle import" in tried.err
    assert not (tmp_path / "state" / "tk" / "tk.lock").exists()


def test_several_names_and_a_push(newcomer: User, cleaned: Engine, registry: str) -> None:
    done = newcomer.types(f"tk image build cpu llvm-15 --jobs 2 --push --registry {registry} --json")
    assert done.code == 0, done.err[-3000:]
    images = done.json["images"]
    assert [one["reference"].partition(":")[0] for one in images] == ["tk/cpu", "tk/llvm"]
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one["pushed"]["digest"]) for one in images)
    assert "building 2 images, 2 at a time" in done.err


# -- with stand-ins for the internet --


@pytest.fixture(scope="module")
def visitor(
    cleaned: Engine, docker_engine: TestEngine, registry: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[User]:
    """A user for whom registry, apt repositories, git and downloads are the tests' stand-ins."""
    folder = tmp_path_factory.mktemp("visitor")
    with cleaned.guard("look at the network"):
        gateway = cleaned.api.inspect_network("bridge")["IPAM"]["Config"][0]["Gateway"]
    with stub_mirror.serving(tmp_path_factory.mktemp("mirror")) as mirror:
        real = build_image(cleaned, _stand_in(docker_engine.base, _resolution("cpu")))
        status = cleaned.read_file(real.reference, "/var/lib/dpkg/status") or b""
        mirror.installed = frozenset(re.findall(r"^Package: (\S+)$", status.decode(), re.MULTILINE))
        _fill(mirror)
        for name in ("rocm-5.4", "cuda-11.8+dpcpp-2022-12"):
            resolution = _resolution(name)
            image = build_image(cleaned, _stand_in(docker_engine.base, resolution)).reference
            _put(cleaned, image, registry, resolution.base.reference)
        site = _hub(registry).replace("mirrors:\n", f"mirrors:\n{_mirrors(mirror, gateway)}")
        yield _user(folder / "home", docker_engine, site, _trusting(folder / "tk", mirror))


def _mirrors(mirror: StubMirror, gateway: str) -> str:
    here = f"http://{gateway}:{mirror.port}"
    lines = []
    for kind in ("apt", "url", "git"):
        lines.append(f"  {kind}:\n")
        lines += [f"    - original: https://{one}/\n      mirror: {here}/{kind}/{one}/\n" for one in _HOSTS]
    return "".join(lines) + f"  pip:\n    index: {here}/pypi/simple/\n"


def _trusting(folder: Path, mirror: StubMirror) -> Path:
    """A copy of this checkout whose recipes have the stand-ins' key, commits and checksums."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(command.ROOT / "toolchain", folder / "toolchain", symlinks=True, ignore=ignored)
    shutil.copytree(command.ROOT / "recipes", folder / "recipes")
    for name in ("compiler", "dockerfiles", "pyproject.toml"):
        (folder / name).symlink_to(command.ROOT / name)
    for path in folder.glob("recipes/*/*.yaml"):
        text = re.sub(r"(key_fingerprint: )\w+", rf"\g<1>{mirror.fingerprint()}", path.read_text())
        text = re.sub(r"digest: \"?sha256:[0-9a-f]{64}\"?", "digest: unresolved", text)
        for known, commit in mirror.commits.items():
            url, _, ref = known.partition(" ")
            text = re.sub(
                rf'(url: "{re.escape(url)}", ref: {re.escape(ref)}, commit: )\w+', rf"\g<1>{commit}", text
            )
        for url in mirror.downloads:
            text = re.sub(rf"({re.escape(url)}\"\s+sha256: )\w+", rf"\g<1>{mirror.sha256(url)}", text)
        path.write_text(text)
    return folder


def test_a_vendors_stack_as_typed(visitor: User) -> None:
    """`tk image build rocm-5.4` and `tk setup rocm-5.4`: the build to its end; what stubs cannot do fails."""
    built = visitor.types("tk image build rocm-5.4")
    assert built.code == 0, built.err[-3000:]
    assert built.out.startswith("tk/rocm:5.4.3-")
    assert "vouches" not in built.err
    ready = visitor.types("tk setup rocm-5.4")
    assert ready.code == 1, ready.err[-3000:]  # the compilers are stubs, so smoke tests fail, and say so
    assert "hipcc fails" in ready.err
    assert "found; some of its tests FAIL" in ready.err


def test_compiling_for_a_vendor_as_typed(visitor: User) -> None:
    """`tk compile --target sycl-nvidia`: told what to add; with --build to the compiler, which is a stub."""
    assert visitor.types("tk zoo make mnist").code == 0
    explained = visitor.types("tk compile mnist.onnx --target sycl-nvidia --explain")
    assert explained.code == 0, explained.err
    bare = visitor.types("tk compile mnist.onnx --target sycl-nvidia")
    assert bare.code == 4, bare.err
    assert "`tk image build cuda-11.8.0+dpcpp-2022-12` makes it; where a command has --build" in bare.err
    done = visitor.types("tk compile mnist.onnx --target sycl-nvidia --build")
    assert "error: cannot build" not in done.err, done.err[-3000:]
    images = [one for one in visitor.types("tk image ls --json").json if one["name"].startswith("cuda-")]
    assert [one["state"] for one in images] == ["built"], done.err[-3000:]
    assert done.code in (4, 5), done.err  # no real DPC++: the compile itself is not run to its end


def test_the_section_of_the_readme_as_typed(newcomer: User) -> None:
    """README's section on images, line by line."""
    section = (command.ROOT / "README.md").read_text().partition("\n## Images\n")[2].partition("\n## ")[0]
    lines = shell_commands(section)
    assert len(lines) > 8
    for line in lines:
        done = newcomer.types(line)
        allowed = (0, 4) if line.startswith("tk doctor") else (0,)  # 4: it found a problem, and says which
        assert done.code in allowed, f"{line}\n{done.out}\n{done.err[-3000:]}"
        assert done.out
    assert (newcomer.home / "mnist.so").exists()


def test_the_page_on_building_as_typed(
    newcomer: User, visitor: User, cleaned: Engine, docker_engine: TestEngine
) -> None:
    """Every `sh` block of docs/building.md; a vendor's stack is made of stubs, whose smoke tests fail."""
    with cleaned.guard("name a base"):
        cleaned.api.tag(docker_engine.base, "my/debian", "bookworm")
    codes = {}
    for line in shell_commands((command.ROOT / "docs" / "building.md").read_text()):
        user = visitor if "rocm" in line or line.endswith(" ls") else newcomer
        done = user.types(line)
        codes[line] = done.code
        assert done.out, f"{line}\n{done.err[-3000:]}"
    assert codes.pop("tk image check rocm-5.4+dpcpp-2022-12") == 1
    assert len(codes) == 4
    assert set(codes.values()) == {0}, codes


def test_logs_are_named_and_whole(newcomer: User, cleaned: Engine) -> None:
    log = load_settings().cache_dir / "logs" / "build"
    assert any("apt" in path.read_text() for path in log.glob("tk-cpu*.log"))
