"""`bin/just test-changed` runs what a change can break: a repository is changed in every way."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.changed import changed, concerned

FILES = {
    "compiler/__init__.py": (
        "if TYPE_CHECKING:\n    from compiler.deep import top as top\n"
        "HOMES = {'compiler.deep': 'top'}\ndef __getattr__(name): ...\n"
    ),
    "compiler/deep.py": "def outer():\n    from compiler.core import leaf\n",
    "compiler/core/__init__.py": "",
    "compiler/core/leaf.py": "",
    "compiler/child.py": "",
    "compiler/kinds/__init__.py": "for name in found: import_module(name)\n",
    "compiler/kinds/one.py": "",
    "tests/conftest.py": "pytest_plugins = ('tests.support.plugin',)\n",
    "tests/support/plugin.py": "import compiler.child\n@pytest.fixture\ndef started(): ...\n",
    "tests/unit/test_leaf.py": "from compiler.core.leaf import x\n",
    "tests/unit/test_deep.py": "import compiler.deep\n",
    "tests/unit/test_door.py": "from compiler import top\n",
    "tests/unit/test_attribute.py": "import compiler\ncompiler.top()\n",
    "tests/unit/test_fixture.py": "def test(started): ...\n",
    "tests/unit/test_text.py": "run(['-m', 'compiler.child'])\n",
    "tests/unit/test_kinds.py": "from compiler.kinds import table\n",
    "tests/unit/test_types.py": "if TYPE_CHECKING:\n    from compiler.core import leaf\n",
    "tests/unit/golden/text.txt": "",
    "docs/page.md": "",
}
LEAF = {"test_leaf", "test_deep", "test_door", "test_attribute"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("compiler/core/leaf.py", LEAF),
        ("compiler/core/__init__.py", LEAF),
        ("compiler/deep.py", LEAF - {"test_leaf"}),
        ("compiler/child.py", {"test_fixture", "test_text"}),
        ("compiler/kinds/one.py", {"test_kinds"}),
        ("tests/support/plugin.py", {"test_fixture"}),
        ("tests/unit/test_text.py", {"test_text"}),
    ],
)
def test_code_concerns_what_imports_it(repository: Path, path: str, expected: set[str]) -> None:
    files = {"tests/rules", *(f"tests/unit/{one}.py" for one in expected)}
    assert set(concerned({path}, repository)) == files
    if not path.startswith("tests/"):
        (repository / path).unlink()
        assert set(concerned({path}, repository)) == files


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("docs/page.md", ["tests/docs", "tests/rules"]),
        ("tests/unit/golden/text.txt", ["tests/unit"]),
        ("tests/conftest.py", ["tests"]),
        ("compiler/runtime/model.h", ["tests"]),
        ("pyproject.toml", ["tests"]),
    ],
)
def test_what_is_no_code(repository: Path, path: str, expected: list[str]) -> None:
    assert concerned({path}, repository) == expected


def test_a_change_is_committed_or_not_or_new(repository: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@t.example")
        subprocess.run(["git", *identity, *words], cwd=repository, check=True, capture_output=True)

    def on_main(action: Callable[[], object]) -> None:
        action()
        git("add", "-A")
        git("commit", "-qm", "one")

    git("init", "-q", "-b", "main")
    on_main(lambda: None)
    assert changed(repository, "main") == set()
    git("checkout", "-qb", "work")
    on_main(lambda: (repository / "compiler/deep.py").write_text("x = 1\n"))
    (repository / "compiler/child.py").unlink()
    (repository / "new.py").touch()
    assert changed(repository, "main") == {"compiler/deep.py", "compiler/child.py", "new.py"}
