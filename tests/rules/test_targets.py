"""Targets are data: names occur in their package only, and a new one is one file and one line."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler.targets import all_targets
from tests.support.command import environment
from tests.support.sources import ROOT, Source, violations

NAMES = {word for row in all_targets() for word in (row.name, *row.aliases)}
COMPOUND = {name for name in NAMES if "-" in name}
"""Names that can mean nothing else; the others are words of languages and vendors, too."""

# (file or folder, word) -> what the word is there, if not a target
OTHER_MEANINGS = {
    ("compiler/render/vocabulary_cuda.py", "cuda"): "the vocabulary's own name, for its language",
    ("compiler/render/vocabulary_cuda.py", "hip"): "the vocabulary's own name, for its language",
    ("compiler/loops/matrix_units", "cuda"): "the language of an instruction's text",
    ("compiler/loops/matrix_units", "hip"): "the language of an instruction's text",
    ("compiler/verify/emulate.py", "cuda"): "the language of a module's text",
    ("compiler/verify/emulate.py", "hip"): "the language of a module's text",
    ("toolchain/images/steps.py", "cuda"): "a backend of DPC++",
    ("toolchain/lint/vendors.py", "cuda"): "a part of a path",
    ("toolchain/images/steps.py", "hip"): "a backend of DPC++",
    ("compiler/runtime/src/devices/opencl_choice.cpp", "cpu"): "a kind of OpenCL device",
    ("compiler/runtime/sycl", "cpu"): "a kind of SYCL device",
    ("compiler/runtime/sycl", "cuda"): "a backend of SYCL",
    ("compiler/runtime/sycl", "hip"): "a backend of SYCL",
}
_COMPOUND = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(COMPOUND)))})(?![\w-])")
_C_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_OWN = "compiler/targets/"

FICTITIOUS = """
from dataclasses import replace

from compiler.render.vocabulary_cpp import CPP
from compiler.targets.cpu import COMMON_FLAGS, cpu_facts
from compiler.targets.target import Target, TargetRow


def _target(arch):
    facts = replace(cpu_facts("x86-64"), name="abacus-beads", arch=arch)
    return Target(f"abacus-beads:{arch}", facts, CPP, facts.features, lambda _facts, _cxx: COMMON_FLAGS)


ROWS = (TargetRow("abacus-beads", "abaci", ("wood", "brass"), "wood", _target, aliases=("abacus",)),)
"""


def names_a_target(source: Source) -> Iterator[str]:
    """Compound names anywhere in the text; short ones where a string is nothing but the name."""
    if source.path.startswith(_OWN):
        return
    for number, line in enumerate(source.text.splitlines(), 1):
        if found := _COMPOUND.search(line):
            yield f"line {number}: names the target {found[1]}"
    for number, text in _strings(source):
        if text in NAMES - COMPOUND and not _means_something_else(source.path, text):
            yield f"line {number}: names the target {text}"


def _means_something_else(path: str, word: str) -> bool:
    places = (path, path.rpartition("/")[0])
    return any((place, word) in OTHER_MEANINGS for place in places)


def _strings(source: Source) -> Iterator[tuple[int, str]]:
    if source.path.endswith(".py"):
        for node in source.nodes():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.lineno, node.value
        return
    for number, line in enumerate(source.text.splitlines(), 1):
        yield from ((number, found) for found in _C_STRING.findall(line.partition("//")[0]))


def c_sources() -> list[Source]:
    paths = [one for one in (ROOT / "compiler").rglob("*") if one.suffix in (".c", ".h", ".cpp", ".hpp")]
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths]


def test_no_python_outside_names_a_target() -> None:
    assert violations(names_a_target, "compiler", "toolchain") == []


def test_no_c_source_names_a_target() -> None:
    sources = c_sources()
    assert sources
    assert [f"{one.path}: {found}" for one in sources for found in names_a_target(one)] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("compiler/x.py", 'get_target("cpu")'),
        ("compiler/x.py", "# opencl-cpu is slow"),
        ("toolchain/x.py", 'options = {"target": "rocm-amd:gfx906"}'),
        ("compiler/runtime/x.cpp", 'if (name == "dtk") return;'),
        ("compiler/runtime/x.h", "// as on sycl-intel"),
    ],
)
def test_the_rule_can_fail(path: str, text: str) -> None:
    assert list(names_a_target(Source(path, text)))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("compiler/targets/x.py", 'get_target("cpu")'),
        ("compiler/x.py", 'kind = "sycl-shim"; vendor = "nvidia"'),
        ("compiler/runtime/x.cpp", "// cpu, cuda and hip"),
    ],
)
def test_the_rule_lets_pass(path: str, text: str) -> None:
    assert not list(names_a_target(Source(path, text)))


def test_other_meanings_are_still_there() -> None:
    gone = [
        (place, word)
        for place, word in OTHER_MEANINGS
        if not any(f'"{word}"' in path.read_text() for path in _files(ROOT / place))
    ]
    assert gone == []


def _files(place: Path) -> list[Path]:
    return [path for path in place.iterdir() if path.is_file()] if place.is_dir() else [place]


def test_a_new_target_is_one_file_and_one_line(tmp_path: Path) -> None:
    """A copy of the compiler with a file and a line more knows the target everywhere it is asked for one."""
    _copy_with(tmp_path, file=FICTITIOUS, line='    "abacus",\n')
    program = (
        "import compiler\n"
        "known = {one.name: one for one in compiler.list_targets()}\n"
        "print(known['abacus-beads'].arch, known['abacus-beads'].runs.answer)\n"
        "print(compiler.choose_targets(['abacus:brass']))\n"
    )
    done = _python(tmp_path, "-c", program)
    assert done.stdout.splitlines() == ["wood not known", "(('abacus-beads', 'brass'),)"], done.stderr
    listed = _python(tmp_path, "-m", "toolchain", "targets")
    assert re.search(r"^abacus-beads +abacus +abaci +wood ", listed.stdout, re.MULTILINE), listed.stderr


def _copy_with(directory: Path, *, file: str, line: str) -> None:
    """The packages with one more file among the targets, and one more line in their table."""
    for name in ("toolchain", "recipes", "dockerfiles"):
        (directory / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "compiler", directory / "compiler", ignore=shutil.ignore_patterns("__pycache__"))
    targets = directory / "compiler" / "targets"
    (targets / "abacus.py").write_text(file)
    table = targets / "__init__.py"
    before, found, after = table.read_text().partition("_LANGUAGES = (\n")
    assert found
    end = after.index(")\n")
    table.write_text(before + found + after[:end] + line + after[end:])


def _python(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = environment({"PYTHONPATH": str(directory), "TK_CACHE_DIR": str(directory / "cache")})
    argv = [sys.executable, "-P", *arguments]
    return subprocess.run(argv, cwd=directory, env=env, capture_output=True, text=True, check=False)
