"""Which tests a change can break: print the test files that import, also through others, what was changed.

python -m tests.changed [COMMIT]

A change is what differs from where the branch left COMMIT (by default main), committed or not, and new files.
Prints `tests` where all may be concerned, as with data that is no code, and nothing where nothing changed.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, KeysView
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOPS = ("compiler", "toolchain", "tests", "benchmarks")
ALL = "tests"
OF_SOURCES = "tests/rules"
OF_PAGES = "tests/docs"


def main(base: str = "main") -> None:
    """Print what pytest is to be given."""
    sys.stdout.writelines(f"{one}\n" for one in concerned(changed(ROOT, base), ROOT))


def changed(root: Path, base: str) -> set[str]:
    """Paths that differ from where this branch left `base`."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    (start,) = git("merge-base", "HEAD", base)
    return {
        *git("diff", "--name-only", "--no-renames", start),
        *git("ls-files", "--others", "--exclude-standard"),
    }


def concerned(paths: set[str], root: Path) -> list[str]:
    """The test files and folders that a change of these paths concerns."""
    code = {path for path in paths if path.endswith(".py") and not path.startswith("dockerfiles/")}
    found = {OF_SOURCES} if code else set()
    for path in paths - code:
        if path.endswith(".md"):
            found |= {OF_SOURCES, OF_PAGES}
        else:
            found |= beside(path, root) or {ALL}
    if any(path.endswith("conftest.py") for path in code):
        found.add(ALL)
    return [ALL] if ALL in found else sorted(found | broken(code, root))


def beside(path: str, root: Path) -> set[str]:
    """For golden files and other data of tests, the folder of those tests."""
    folders = (folder for folder in Path(path).parents if folder.parts[:1] == ("tests",))
    return next(({str(one)} for one in folders if any((root / one).glob("test_*.py"))), set())


def broken(code: set[str], root: Path) -> set[str]:
    """Test files that reach one of these files."""
    reached, found = code, set[str]()
    edges = needs(root, code)
    while reached - found:
        found = reached
        reached = found | {path for path, needed in edges.items() if needed & found}
    return {path for path in found if Path(path).name.startswith("test_") and (root / path).exists()}


def needs(root: Path, more: set[str]) -> dict[str, set[str]]:
    """The files that each Python file needs; `more` names files that may be gone."""
    paths = (path for top in TOPS for path in (root / top).rglob("*.py"))
    trees = {str(path.relative_to(root)): ast.parse(path.read_text()) for path in paths}
    files = {module_of(path): path for path in {*trees, *more}}
    homes = {name: home for path, tree in trees.items() for name, home in lazy(path, tree)}
    files |= {name: path for path, tree in trees.items() for name in shared_fixtures(path, tree)}
    found = {}
    for path, tree in trees.items():
        names = {homes.get(name, name) for name in mentioned(path, tree, homes.keys())}
        found[path] = {files[part] for name in names for part in above(name) if part in files}
        folder = path.removesuffix("__init__.py") if loads_its_modules(path, tree) else None
        if "benchmarks" in names and path.startswith(
            "tests/"
        ):  # scripts that import each other without a package
            folder = "benchmarks/"
        found[path] |= {one for one in files.values() if folder and one.startswith(folder)}
    return found


def module_of(path: str) -> str:
    """The name that a file is imported by."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def above(name: str) -> Iterator[str]:
    """A dotted name and what it is in: importing a module imports its packages."""
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(len(parts), 0, -1))


def mentioned(path: str, tree: ast.Module, homes: KeysView[str]) -> Iterator[str]:
    """What a file imports, asks of a package, says in a text (`-m compiler.verify.child`), has as a fixture.

    Imports for type checkers only are needed by nothing that runs. Texts of a conftest are plugins, which are
    fixtures; those of a package that imports lazily are for others.
    """
    texts = not path.endswith("conftest.py") and "__getattr__" not in functions(tree)
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if not is_for_types(node):
            waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield from {f"{node.value.id}.{node.attr}"} & homes
        elif texts and isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.arg) and path.startswith("tests/"):
            yield f"fixture {node.arg}"


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def lazy(path: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names that a package imports when they are asked for, and where they come from."""
    for block in filter(is_for_types, tree.body):
        for node in ast.walk(block):
            if isinstance(node, ast.ImportFrom):
                yield from (
                    (f"{module_of(path)}.{one.name}", f"{node.module}.{one.name}") for one in node.names
                )


def shared_fixtures(path: str, tree: ast.Module) -> Iterator[str]:
    """Fixtures that tests of other files may have."""
    if path.startswith("tests/support/") or path.endswith("conftest.py"):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and "fixture" in " ".join(
                map(ast.unparse, node.decorator_list)
            ):
                yield f"fixture {node.name}"


def loads_its_modules(path: str, tree: ast.Module) -> bool:
    """Whether a package imports its modules by names that it finds out, and at once."""
    lazily = "__getattr__" in functions(tree)
    return path.endswith("__init__.py") and not lazily and "import_module" in ast.unparse(tree)


def functions(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


if __name__ == "__main__":
    main(*sys.argv[1:])
