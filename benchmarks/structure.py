"""How large the code base is and how its names are spread: counts from its syntax trees.

    python benchmarks/structure.py [--root FOLDER] [--json]
    python benchmarks/structure.py --against FILE     # beside an earlier --json

Statements are those of the abstract syntax tree, docstrings aside. A public name is a class or function at
the top of a module, or a method, without `_` before it; names that stand twice in a package are definitions
at the top of modules. For each node class of the loop IR: which files name it. `structure.json` has the
counts of 2026-11-23, to compare with.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("compiler", "toolchain", "toolchain/images", "toolchain/commands", "tests")
PACKAGES = ("compiler", "toolchain")
NODES = ("compiler/loops/ir.py", "compiler/loops/exprs.py")
"""Where the node classes of the loop IR are defined: classes with the decorator `node`."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Part:
    """Counts of one folder. functions: (lines, name), public: what a reader may have to look up."""

    files: int = 0
    statements: int = 0
    functions: list[tuple[int, str]] = field(default_factory=list)
    public: list[str] = field(default_factory=list)
    visitors: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """The counts for `--json`: lines of functions as longest, 95th percentile and median."""
        lines = sorted(length for length, _ in self.functions)
        longest = max(self.functions, default=(0, ""))
        return {
            "files": self.files,
            "statements": self.statements,
            "functions": len(lines),
            "longest function": longest[0],
            "longest function's name": longest[1],
            "95th percentile": lines[int(0.95 * (len(lines) - 1))] if lines else 0,
            "median": lines[len(lines) // 2] if lines else 0,
            "public names": len(self.public),
            "private visitors": len(self.visitors),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, and print a table or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--against", type=Path, help="what --json printed before: a table of both")
    options = parser.parse_args(arguments)
    found = measure(options.root)
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    before = json.loads(options.against.read_text()) if options.against else None
    for line in table(found, before):
        print(line)
    return 0


def measure(root: Path) -> dict[str, Any]:
    """All counts of a checkout."""
    trees = {
        path: ast.parse(path.read_text())
        for package in (*PACKAGES, "tests")
        for path in sorted((root / package).rglob("*.py"))
    }
    parts = {name: part_of(root / name, trees) for name in PARTS}
    files = files_by_node(root, trees)
    return {
        "parts": {name: part.document() for name, part in parts.items()},
        "files that name a node": {name: len(paths) for name, paths in files.items()},
        "names that stand twice in a package": twice(root, trees),
        "public": {name: sorted(parts[name].public) for name in PACKAGES},
        "visitors": parts["compiler"].visitors,
    }


def part_of(folder: Path, trees: Mapping[Path, ast.Module]) -> Part:
    """The counts of a folder's files."""
    part = Part()
    for path, tree in trees.items():
        if not path.is_relative_to(folder):
            continue
        name = path.relative_to(folder).as_posix()
        part.files += 1
        part.statements += sum(isinstance(item, ast.stmt) for item in ast.walk(tree)) - docstrings(tree)
        for item in ast.walk(tree):
            if isinstance(item, _Function):
                part.functions.append(
                    ((item.end_lineno or item.lineno) - item.lineno + 1, f"{name}: {item.name}")
                )
                if item.name.startswith("_visit") or item.name == "visit":
                    part.visitors.append(f"{name}: {item.name}")
        part.public += [f"{name}: {one}" for one in public_names(tree)]
    return part


def docstrings(tree: ast.Module) -> int:
    """Expression statements that are only a text: docstrings of modules, classes, functions and constants."""
    return sum(
        isinstance(item, ast.Expr)
        and isinstance(item.value, ast.Constant)
        and isinstance(item.value.value, str)
        for item in ast.walk(tree)
    )


def public_names(tree: ast.Module) -> Iterator[str]:
    """Classes and functions at the top of a module, and the methods of those classes."""
    for item in tree.body:
        if not isinstance(item, ast.ClassDef | _Function) or item.name.startswith("_"):
            continue
        yield item.name
        if isinstance(item, ast.ClassDef):
            methods = (one.name for one in item.body if isinstance(one, _Function))
            yield from (f"{item.name}.{one}" for one in methods if not one.startswith("_"))


def files_by_node(root: Path, trees: Mapping[Path, ast.Module]) -> dict[str, list[str]]:
    """For each node class the files outside of tests that name it, in the order of its definition."""
    classes = [
        item.name
        for path in NODES
        for item in trees[root / path].body
        if isinstance(item, ast.ClassDef) and any(_is_node(one) for one in item.decorator_list)
    ]
    found: dict[str, list[str]] = {name: [] for name in classes}
    for path, tree in trees.items():
        if path.is_relative_to(root / "tests"):
            continue
        named = {item.id for item in ast.walk(tree) if isinstance(item, ast.Name)}
        named |= {
            item.attr for item in ast.walk(tree) if isinstance(item, ast.Attribute) and _is_ir(item.value)
        }
        named |= {item.name for item in tree.body if isinstance(item, ast.ClassDef)}
        for name in named & found.keys():
            found[name].append(path.relative_to(root).as_posix())
    return found


def _is_ir(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id == "ir"


def _is_node(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Name) and called.id == "node"


def twice(root: Path, trees: Mapping[Path, ast.Module]) -> dict[str, list[str]]:
    """Public definitions at the top of several modules of one package, with these modules."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in trees.items():
        where = path.relative_to(root)
        for item in tree.body:
            if isinstance(item, ast.ClassDef | _Function) and not item.name.startswith("_"):
                places[f"{where.parts[0]}: {item.name}"].append(where.as_posix())
    of_packages = {name: paths for name, paths in places.items() if name.split(":")[0] in PACKAGES}
    return {
        name: paths for name, paths in sorted(of_packages.items()) if len(paths) > 1 and name[-5:] != " main"
    }


def table(found: Mapping[str, Any], before: Mapping[str, Any] | None) -> Iterator[str]:
    """Lines of a Markdown table; with `before` each number beside the earlier one."""
    rows = list(_rows(found))
    old = dict(_rows(before)) if before else {}
    yield "| what | before | now |" if before else "| what | now |"
    yield "|---|---|---|" if before else "|---|---|"
    for name, value in rows:
        yield f"| {name} | {old.get(name, '-')} | {value} |" if before else f"| {name} | {value} |"


def _rows(found: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for part, counts in found["parts"].items():
        yield from ((f"{part}: {what}", value) for what, value in counts.items() if isinstance(value, int))
    spread = Counter(found["files that name a node"])
    yield "node classes of the loop IR", len(spread)
    yield "files that name one, on average", f"{sum(spread.values()) / len(spread):.1f}"
    yield from ((f"files that name {name}", count) for name, count in spread.most_common(12))
    yield "public names that stand twice in a package", len(found["names that stand twice in a package"])


if __name__ == "__main__":
    sys.exit(main())
