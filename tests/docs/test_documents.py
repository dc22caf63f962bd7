"""What the documents show is true: commands run, pages are current, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import command
from tests.support.command import ROOT, environment
from toolchain.reference import reference_page

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
SHOWING = [path for path in DOCUMENTS if "```console" in path.read_text()]


@dataclass(frozen=True, slots=True)
class Shown:
    """A command in a console block, the exit code that it announces, and output lines that follow."""

    line: str
    code: int
    output: tuple[str, ...]


def shown(path: Path) -> list[Shown]:
    found: list[Shown] = []
    for block in re.findall(r"```console\n(.*?)```", path.read_text(), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, *output = part.rstrip("\n").split("\n")
            announced = re.search(r"# exit (\d+)", line)
            text = line.partition(" # exit")[0]
            found.append(Shown(text, int(announced[1]) if announced else 0, tuple(output)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", SHOWING, ids=lambda path: path.name)
def test_shown_commands_do_what_is_shown(path: Path, tmp_path: Path) -> None:
    commands = shown(path)
    assert commands
    for one in commands:
        code, output = execute(one.line, tmp_path)
        assert code == one.code, f"$ {one.line}\n{output}"
        lines = {numberless(line) for line in output.splitlines()}
        for line in one.output:
            assert numberless(line) in lines, f"$ {one.line}\nshows {line!r}, but prints\n{output}"


def execute(line: str, directory: Path) -> tuple[int, str]:
    program, *arguments = shlex.split(line)
    if program == "tk":
        result = command.tk(*arguments, cwd=directory)
        assert "Traceback" not in result.err
        return result.code, result.out + result.err
    assert program in ("ls", "cat"), f"the test knows no `{program}`"
    done = subprocess.run([program, *arguments], cwd=directory, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def numberless(line: str) -> str:
    return re.sub(r"[\d.]+", "N", line.strip())


@pytest.mark.slow
def test_python_of_the_readme_runs(tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert command.tk("zoo", "make", "mnist", cwd=tmp_path).code == 0
    assert command.tk("compile", "mnist.onnx", cwd=tmp_path).code == 0
    for one in code:
        argv = [sys.executable, "-c", one]
        done = subprocess.run(
            argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert code


def test_decoders_as_shown(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "decoders.md").read_text()
    for line in re.findall(r"^\$ (.*)", text, re.MULTILINE):
        assert execute(line, tmp_path)[0] == 0, line
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    argv = [sys.executable, "-c", f"{code}\nprint(len(tokens))"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["16"]), done.stderr


def test_recipes_that_documents_name_exist() -> None:
    recipes = set(re.findall(r"^([a-z][a-z-]*)[^:\n]*:(?!=)", (ROOT / "Justfile").read_text(), re.MULTILINE))
    named = {name for path in DOCUMENTS for name in re.findall(r"bin/just ([a-z-]+)", path.read_text())}
    assert named
    assert named <= recipes


def test_the_command_line_page_is_current() -> None:
    assert (ROOT / "docs" / "cli.md").read_text() == reference_page(), "run `bin/just docs`"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose)
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (path.parent / target).exists()] == []


def test_readme_lists_every_command() -> None:
    text = (ROOT / "README.md").read_text()
    commands = re.findall(r"^## `tk (\w+)", reference_page(), re.MULTILINE)
    assert commands
    assert [name for name in commands if f"tk {name}" not in text] == []


def test_lines_fit() -> None:
    wide = [
        f"{path.name}:{number}"
        for path in DOCUMENTS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > 120 and not line.startswith("|") and path.parent.name != "decisions"
    ]
    assert wide == []


def test_dependencies_are_explained() -> None:
    """Every distribution that pyproject.toml asks for has its row."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    text = (ROOT / "docs" / "dependencies.md").read_text()
    names = [re.split(r"[<>=\[ ]", one)[0] for one in wanted]
    assert [name for name in names if name not in text] == []
    assert all(f"`{extra}`" in text for extra in project["optional-dependencies"])


def test_the_glossary_has_names_of_the_code() -> None:
    """What stands between backticks in a row's first column is a word of the sources."""
    text = (ROOT / "docs" / "architecture.md").read_text().partition("\n## Glossary\n")[2]
    rows = re.findall(r"^\| (?!here |---)(.*?) \|", text, re.MULTILINE)
    names = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    sources = [path for folder in ("compiler", "toolchain") for path in (ROOT / folder).rglob("*.py")]
    words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_-]*", " ".join(path.read_text() for path in sources)))
    assert len(names) > 80
    assert names - words == set()
