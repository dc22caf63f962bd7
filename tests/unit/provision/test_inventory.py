"""What is read back from an image, and how it is compared with a lock."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compiler import BuildError, HostError
from tests.support.recipes import plan
from toolchain.images.plan import BaseImage, Download, GitTree, Pins, Plan
from toolchain.provision import inventory
from toolchain.provision.inventory import (
    Deviation,
    Folder,
    ImageContents,
    compare,
    parse_inventory,
    read_inventory,
)

OUTPUT = """
== os
PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
ID=debian
VERSION_ID="12"

== deb
installed\tgcc\t4:12.2.0-3\tamd64\tgcc-defaults
installed\tlibc6\t2.36-9+deb12u9\tamd64\tglibc
config-files\told\t1\tamd64\told
installed\tbase-files\t12.4\tamd64\tbase-files

== python
NumPy\t1.26.4\t/opt/venv/lib/python3.11/site-packages/numpy-1.26.4.dist-info/METADATA
ml_dtypes\t0.5.0\t/opt/venv/lib/python3.11/site-packages/ml_dtypes-0.5.0.dist-info/METADATA
packaging\t24\t/opt/venv/lib/python3.11/site-packages/setuptools/_vendor/packaging-24.dist-info/METADATA
apt\t2.6\t/usr/lib/python3/dist-packages/python_apt-2.6.dist-info/METADATA
pip\t23\t/usr/local/python/lib/python3.11/site-packages/pip-23.dist-info/METADATA
\t\t/broken.dist-info/METADATA

== files
{key}  /etc/apt/keyrings/tk-rocm.asc

== folders
3\t4096\t/opt/dpcpp

== end
""".format(key="a" * 64)
LLVM = "https://github.com/intel/llvm"
KEY = Download("https://repo.radeon.com/rocm.gpg.key", "a" * 64, "/etc/apt/keyrings/tk-rocm.asc")
NEED = Plan(
    name="dpcpp-2022-12 on rocm-5.4.3", repository="tk/dpcpp", tag="2022-12", base=BaseImage("x:1"),
    stages=(),
    git=(GitTree(LLVM, "2022-12", "c" * 40, "/src"),), provides=("/opt/dpcpp",),
)  # fmt: skip
PLAN = Plan(
    name="cpu", repository="tk/cpu", tag="1", base=BaseImage("debian:bookworm"), stages=(), apt=("gcc",),
    pip=("numpy",), downloads=(KEY,), needs=(NEED,),
)  # fmt: skip
PINS = Pins(
    apt={"gcc": "4:12.2.0-3", "libc6:amd64": "2.36-9+deb12u9"},
    pip={"numpy": ("1.26.4", ()), "ml-dtypes": ("0.5.0", ())},
    downloads={KEY.url: "a" * 64},
    needs={"dpcpp": Pins(git={LLVM: "c" * 40})},
)


def read(text: str = OUTPUT, commits: dict[str, str] | None = None, **labels: str) -> ImageContents:
    return parse_inventory(text, "tk/cpu:1", "sha256:" + "e" * 64, labels, commits or {LLVM: "c" * 40})


def base() -> ImageContents:
    return dataclasses.replace(read(), packages=tuple(p for p in read().packages if p.name == "base-files"))


def test_sections() -> None:
    found = read()
    assert found.os["VERSION_ID"] == "12"
    assert [(one.kind, one.name, one.version) for one in found.packages] == [
        ("deb", "base-files", "12.4"),
        ("deb", "gcc", "4:12.2.0-3"),
        ("deb", "libc6", "2.36-9+deb12u9"),
        ("python", "ml-dtypes", "0.5.0"),
        ("python", "numpy", "1.26.4"),
        ("python", "pip", "23"),
    ]
    assert found.packages[4].where == "/opt/venv/lib/python3.11/site-packages"
    assert found.folders == (Folder("/opt/dpcpp", 3, 4096),)
    assert found.files == {KEY.path: "a" * 64}


def test_as_locked() -> None:
    assert compare(read(), PLAN, PINS, base=base()) == ()
    assert compare(read(), PLAN) == ()


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"apt": {"gcc": "4:12.3"}}, Deviation("different", "apt package", "gcc", "4:12.3", "4:12.2.0-3")),
        (
            {"pip": {"numpy": ("2.0", ())}},
            Deviation("different", "Python package", "numpy", "2.0", "1.26.4"),
        ),
        ({"pip": {"scipy": ("1", ())}}, Deviation("missing", "Python package", "scipy", "1", "")),
        ({"downloads": {KEY.url: "b" * 64}}, Deviation("different", "file", KEY.path, "b" * 64, "a" * 64)),
        (
            {"needs": {"dpcpp": Pins(git={LLVM: "f" * 40})}},
            Deviation("different", "commit", LLVM, "f" * 40, "c" * 40),
        ),
    ],
)
def test_differences(changes: dict[str, Any], difference: Deviation) -> None:
    assert difference in compare(read(), PLAN, dataclasses.replace(PINS, **changes))


def test_what_is_asked_for_must_be_there_what_is_pulled_in_need_not() -> None:
    plan = dataclasses.replace(PLAN, apt=("gcc", "clang"))
    pins = dataclasses.replace(PINS, apt={**PINS.apt, "clang": "14", "python3-venv": "3.11"})
    assert compare(read(), plan, pins) == (Deviation("missing", "apt package", "clang", "", ""),)


def test_packages_that_nobody_locked() -> None:
    few = dataclasses.replace(PINS, apt={"gcc": "4:12.2.0-3"}, pip={"numpy": ("1.26.4", ())})
    assert compare(read(), PLAN, few) == ()
    assert compare(read(), PLAN, few, base=base()) == (
        Deviation("not locked", "Python package", "ml-dtypes", "", "0.5.0"),
        Deviation("not locked", "apt package", "libc6", "", "2.36-9+deb12u9"),
    )


def test_another_base_digest() -> None:
    label = {"org.opencontainers.image.base.digest": "sha256:" + "1" * 64}
    pins = dataclasses.replace(PINS, base_digest="sha256:" + "2" * 64)
    (found,) = compare(read(**label), PLAN, pins)
    assert (found.kind, found.what, found.name) == ("different", "base", "debian:bookworm")


def test_without_a_lock_what_is_asked_for_is_checked() -> None:
    plan = dataclasses.replace(
        PLAN, apt=("gcc=4:13", "clang"), downloads=(dataclasses.replace(KEY, sha256="b" * 64),)
    )
    assert [(one.kind, one.name) for one in compare(read(), plan)] == [
        ("missing", "clang"),
        ("different", "gcc"),
        ("different", KEY.path),
    ]


class Engine:
    """An engine whose image answers the script with `output`."""

    def __init__(self, output: str, code: int = 0, *, there: bool = True) -> None:
        self.done = SimpleNamespace(code=code, output=output)
        self.there = there
        self.asked: list[tuple[Any, ...]] = []

    def image(self, reference: str) -> dict[str, Any] | None:
        if not self.there:
            return None
        labels = {"tk.commit": "d" * 40} if "dpcpp" in reference else {"tk.plan": "x"}
        return {"Id": "sha256:1", "Config": {"Labels": labels}}

    def run(self, image: str, argv: list[str], **options: Any) -> Any:
        self.asked.append((image, argv, options))
        return self.done


def test_reading_changes_nothing_and_has_no_network() -> None:
    engine = Engine(OUTPUT)
    found = read_inventory(engine, "tk/cpu:1", PLAN)
    ((image, argv, options),) = engine.asked
    assert image == "tk/cpu:1"
    assert argv[4:] == [KEY.path, "--", "/opt/dpcpp"]
    assert options["host"]["network_mode"] == "none"
    assert options["host"]["read_only"] is True
    assert found.commits == {LLVM: "d" * 40}


def test_every_tree_that_a_component_was_built_from_has_its_own_commit() -> None:
    planned = plan("rocm-5.4.3+dpcpp-2022-12")
    made = {need.reference: dict(need.labels) for need in planned.needs}

    class Built(Engine):
        def image(self, reference: str) -> dict[str, Any]:
            return {"Id": "sha256:1", "Config": {"Labels": made.get(reference, {})}}

    trees = [tree for need in planned.needs for tree in need.git]
    assert len(trees) > 1
    found = read_inventory(Built(OUTPUT), "tk/rocm:1", planned)
    assert found.commits == {tree.url: tree.commit for tree in trees}


def test_what_cannot_be_read() -> None:
    with pytest.raises(HostError):
        read_inventory(Engine("", there=False), "tk/cpu:1")
    for output, code in (("sh: not found", 127), ("\n== os\n", 0)):
        with pytest.raises(BuildError):
            read_inventory(Engine(output, code), "tk/cpu:1")


def test_the_script_on_this_machine(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "one").write_text("1")
    (folder / "deep" / "two").write_text("22")
    script = inventory._SCRIPT.replace("find / -xdev", f"find '{tmp_path}' -xdev")
    metadata = tmp_path / "x" / "demo-1.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\r\nName: Demo\r\nVersion: 1.10\r\n\r\nName: not this\n")
    argv = ["sh", "-c", script, "inventory", str(folder / "one"), "missing", "--", str(folder), "missing"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found = parse_inventory(done.stdout, "here", "", {}, {})
    assert done.stderr == ""
    assert found.folders == (Folder(str(folder), 2, 3),)
    assert list(found.files) == [str(folder / "one")]
    assert [(p.name, p.version) for p in found.packages if p.kind == "python"] == [("demo", "1.10")]
