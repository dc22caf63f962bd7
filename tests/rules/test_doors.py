"""One door each for the environment, for programs and for files; and what nobody may use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sources import ROOT, Source, violations

SETTINGS = ("compiler/core/settings.py", "toolchain/settings.py")
PROGRAMS = tuple(f"compiler/core/{name}.py" for name in ("process", "companion", "forked", "allowance"))
# file -> why it opens files for writing itself
CHANGERS = {
    "compiler/core/disk.py": "the door",
}
"""file -> why it removes, renames or makes files itself"""
WRITERS = {
    "compiler/core/files.py": "the door",
    "toolchain/deploy/wheel.py": "members of an archive whose stream the door gives",
}
TARGET_NAMES = {
    "cpu", "cuda", "rocm", "hip", "dtk", "sycl-cpu", "opencl-cpu", "cuda-nvidia", "sycl-nvidia",
    "opencl-nvidia", "rocm-amd", "sycl-amd", "opencl-amd", "rocm-hygon", "sycl-hygon", "opencl-hygon",
    "sycl-intel", "opencl-intel",
}  # fmt: skip

# (file, what is forbidden) -> why it is right there
ALLOWED_TEXT = {
    (
        "compiler/loops/interp_emit.py",
        "eval or exec",
    ): "runs Python that it wrote itself, with numbered names only",
    (
        "compiler/core/settings.py",
        "a literal temporary directory",
    ): "the door: where temporary files lie when the environment names no folder",
}

WEB = "toolchain/web.py"
_OPENERS = {
    "requests.get", "requests.post", "requests.request", "requests.Session", "http.client.HTTPConnection",
    "http.client.HTTPSConnection",
}  # fmt: skip
_COMPARES_A_NAME = "compares a target's name; ask the target for a capability"
_ENVIRONMENT = {"environ", "environb", "getenv", "putenv"}
_STARTERS = {"system", "popen", "fork", "posix_spawn", "posix_spawnp", "startfile"}
_CHANGES = (
    "unlink", "rename", "mkdir", "rmdir", "symlink_to", "hardlink_to", "chmod", "rmtree", "link", "remove",
    "makedirs", "removedirs", "renames", "truncate", "move", "copytree", "copyfile", "copy2", "copymode",
    "symlink", "mkdtemp", "mkstemp", "TemporaryDirectory", "NamedTemporaryFile", "fsync", "fchmod",
)  # fmt: skip
_CHANGES_OF_OS = ("replace", "copy")
_OF_LISTS_TOO = ("remove", "rename", "truncate", "move", "link", "copytree")
"""Methods of lists, streams and objects of ours have these names, too; of modules they are looked at."""
_FORBIDDEN = {
    "pickle": r"\bc?[pP]ickle\b",
    "shell=True": r"\bshell\s*=\s*True",
    "yaml.load": r"\byaml\.(unsafe_|full_)?load\b",
    "a literal temporary directory": r"""['"]/(var/)?tmp\b""",
    "eval or exec": r"(?<![\w.])(eval|exec)\(",
    "a path of somebody's machine": r"""['"]/(root|home|work)/(?!tk['"])""",  # /home/tk: images' own user
}


def reads_environment(source: Source) -> Iterator[str]:
    if source.path in SETTINGS:
        return
    for node in source.nodes():
        if _of_os(node) in _ENVIRONMENT:
            yield f"line {node.lineno}: os.{_of_os(node)}; read it in a settings module"
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (f"line {node.lineno}: {a.name}" for a in node.names if a.name in _ENVIRONMENT)


def starts_programs(source: Source) -> Iterator[str]:
    if source.path in PROGRAMS:
        return
    for node in source.nodes():
        if isinstance(node, ast.Import):
            yield from (f"line {node.lineno}: imports {a.name}" for a in node.names if a.name == "subprocess")
        elif isinstance(node, ast.ImportFrom) and node.module == "subprocess":
            yield f"line {node.lineno}: imports from subprocess; use core/process.py"
        elif _of_os(node) in _STARTERS or _of_os(node).startswith(("exec", "spawn")):
            yield f"line {node.lineno}: os.{_of_os(node)}; use core/process.py"


def writes_files(source: Source) -> Iterator[str]:
    if source.path in WRITERS:
        return
    for node in source.nodes():
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("write_text", "write_bytes"):
            yield f"line {node.lineno}: {name}; use core/files.py"
        if any(one.arg == "fileobj" for one in node.keywords):
            continue  # an archive in a stream that is open already
        if name == "open" and any(_is_write_mode(argument) for argument in (*node.args, *_modes(node))):
            yield f"line {node.lineno}: opens for writing; use core/files.py"


def changes_files(source: Source) -> Iterator[str]:
    """Removing, renaming and making names goes through core/disk.py, where tests make it fail."""
    if source.path in CHANGERS:
        return
    for node in source.nodes():
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        place, name = ast.unparse(node.func.value), node.func.attr
        of_os = place in ("os", "shutil") and name in (*_CHANGES, *_CHANGES_OF_OS)
        of_path = place not in ("disk", "editor", "self.editor") and name in _CHANGES
        renames = name == "replace" and len(node.args) == 1 and not node.keywords
        if of_os or renames or (of_path and name not in _OF_LISTS_TOO):
            yield f"line {node.lineno}: {place}.{name}; use core/disk.py or core/files.py"


def imports_tempfile(source: Source) -> Iterator[str]:
    """It looks for a folder with a file, which a process that is killed leaves."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if re.match(r"\s*(import|from)\s+tempfile\b", line):
            yield f"line {number}: imports tempfile; use core/files.py"


def opens_urls(source: Source) -> Iterator[str]:
    """Downloads know the site's proxy, mirrors and CA bundle; others import http.client for its errors."""
    for node in source.nodes():
        if isinstance(node, ast.Import):
            found = [one.name for one in node.names]
        else:
            found = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(one.startswith(("urllib.request", "ftplib", "httpx")) for one in found):
            yield f"line {node.lineno}: imports {found[0]}; use toolchain/web.py"  # type: ignore[attr-defined]
        if isinstance(node, ast.Attribute) and ast.unparse(node) in _OPENERS and source.path != WEB:
            yield f"line {node.lineno}: {ast.unparse(node)}; use toolchain/web.py"


def compares_target_names(source: Source) -> Iterator[str]:
    if source.path.startswith("compiler/targets/"):
        return
    # In loops/, which knows no targets, `target` is what a cast or a store aims at.
    knows_targets = not source.path.startswith("compiler/loops/")
    for node in source.nodes():
        if isinstance(node, ast.Compare):
            named = _named_targets([node.left, *node.comparators])
            yield from (
                f"line {node.lineno}: {one}" for one in named if knows_targets or one != _COMPARES_A_NAME
            )
        elif isinstance(node, ast.MatchValue):
            yield from (f"line {node.lineno}: {found}" for found in _named_targets([node.value]))


def forbidden_text(source: Source) -> Iterator[str]:
    for what, pattern in _FORBIDDEN.items():
        for number, line in enumerate(source.text.splitlines(), 1):
            if re.search(pattern, line) and (source.path, what) not in ALLOWED_TEXT:
                yield f"line {number}: {what}"


def _of_os(node: ast.AST) -> str:
    """The x of `os.x`, else nothing."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
        return node.attr
    return ""


def _is_write_mode(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(
        re.fullmatch(r"[rbt]*[wax+][rbt+]*", node.value)
    )  # fmt: skip


def _modes(node: ast.Call) -> list[ast.expr]:
    return [keyword.value for keyword in node.keywords if keyword.arg == "mode"]


def _named_targets(parts: list[ast.expr]) -> Iterator[str]:
    for part in parts:
        for node in ast.walk(part):
            if isinstance(node, ast.Constant) and node.value in TARGET_NAMES:
                yield f"compares with {node.value!r}; ask the target for a capability"
        if isinstance(part, ast.Attribute) and part.attr == "name" and _is_target(part.value):
            yield _COMPARES_A_NAME


def _is_target(node: ast.expr) -> bool:
    text = ast.unparse(node).lower()
    return text.endswith(("target", "facts"))


RULES = [
    reads_environment,
    starts_programs,
    writes_files,
    changes_files,
    imports_tempfile,
    opens_urls,
    compares_target_names,
    forbidden_text,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: object) -> None:
    tops = ("compiler", "toolchain") + (("examples", "benchmarks") if rule is forbidden_text else ())
    assert violations(rule, *tops) == []  # type: ignore[arg-type]


def test_forbidden_text_in_c_sources() -> None:
    paths = [path for top in ("compiler", "examples") for path in (ROOT / top).rglob("*.[ch]*")]
    paths = [path for path in paths if path.suffix in (".c", ".h", ".cpp", ".hpp")]
    found = [
        f"{path.relative_to(ROOT)}: {one}"
        for path in paths
        for one in forbidden_text(Source(path.name, path.read_text()))
        if "eval" not in one
    ]
    assert paths
    assert found == []


def test_writers_exist() -> None:
    assert [path for path in (*WRITERS, *CHANGERS) if not Path(ROOT, path).exists()] == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (reads_environment, "import os\nx = os.environ['A']"),
        (reads_environment, "from os import getenv"),
        (starts_programs, "import subprocess"),
        (starts_programs, "from subprocess import run"),
        (starts_programs, "import os\nos.system('ls')"),
        (starts_programs, "import os\nos.execv('ls', [])"),
        (writes_files, "path.write_text('x')"),
        (writes_files, "open(path, 'wb')"),
        (writes_files, "path.open(mode='a')"),
        (changes_files, "path.unlink()"),
        (changes_files, "path.replace(target)"),
        (changes_files, "os.replace(path, target)"),
        (changes_files, "shutil.rmtree(folder)"),
        (changes_files, "folder.mkdir(parents=True)"),
        (imports_tempfile, "def f():\n    from tempfile import gettempdir"),
        (opens_urls, "import urllib.request"),
        (opens_urls, "from urllib.request import urlopen"),
        (opens_urls, "import requests\nrequests.get(url)"),
        (opens_urls, "with requests.Session() as session: pass"),
        (compares_target_names, "if target.name == other: pass"),
        (compares_target_names, "if kind == 'cpu': pass"),
        (compares_target_names, "if kind in ('cuda', 'x'): pass"),
        (compares_target_names, "match kind:\n    case 'hip': pass"),
        (forbidden_text, "import pickle"),
        (forbidden_text, "f(shell=True)"),
        (forbidden_text, "yaml.load(x)"),
        (forbidden_text, "path = '/tmp/x'"),
        (forbidden_text, "eval(text)"),
        (forbidden_text, "path = '/home/me/x'"),
    ],
)
def test_the_rules_can_fail(rule: object, text: str) -> None:
    assert list(rule(Source("compiler/graph/x.py", text)))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (writes_files, "path.open('rb')"),
        (writes_files, "open(path)"),
        (changes_files, "text.replace('a', 'b')"),
        (changes_files, "item.replace(body=body)"),
        (changes_files, "disk.remove(path)"),
        (changes_files, "parts.remove(part)"),
        (compares_target_names, "if node.name == other.name: pass"),
        (forbidden_text, "np.load(path, allow_pickle=False)"),
        (forbidden_text, "evaluator.eval(text)"),
    ],
)
def test_the_rules_let_pass(rule: object, text: str) -> None:
    assert not list(rule(Source("compiler/graph/x.py", text)))  # type: ignore[operator]
