"""Who may import whom: data flows through the compiler in one direction."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

import pytest

from tests.support.sources import ROOT, Source, python_sources, violations

# package of compiler/ -> packages it may import besides itself
LAYERS: dict[str, set[str]] = {
    "core": set(),
    "cluster": {"core"},
    "loops": {"core"},
    "runtime": {"core"},
    "graph": {"core", "loops"},
    "frontend": {"core", "graph"},
    "schedule": {"core", "loops"},
    "lower": {"core", "loops"},
    "render": {"core", "loops"},
    "targets": {"core", "render", "runtime"},
    "reports": {"core"},
    "plugin": {"core", "loops", "graph", "schedule"},
}
LAYERS["verify"] = {*LAYERS, "stages", "pipeline"}
LAYERS["stages"] = {*LAYERS} - {"verify"}
LAYERS["workbench"] = {*LAYERS, "pipeline"}
LAYERS["tune"] = {*LAYERS, "pipeline"}
LAYERS["reduce"] = {*LAYERS, "pipeline"}
LAYERS["pipeline"] = {*LAYERS}
LAYERS["compile"] = {*LAYERS}
LAYERS["inspect"] = {*LAYERS}
LAYERS["replay"] = {*LAYERS}
LAYERS["device_inspection"] = {"core", "runtime", "reports", "targets"}
LAYERS["library_inspection"] = {"core", "runtime", "reports", "replay", "device_inspection"}
LAYERS["view"] = {*LAYERS}
DOORS = {"compiler/__init__.py", "compiler/schedule/__init__.py"}
"""What they offer is imported when it is asked for, from wherever it is."""


def toolchain_layers() -> dict[str, set[str]]:
    """Package of toolchain/ -> packages that it may import besides itself, as docs/architecture.md says."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("\n## From a recipe to a container\n")[2].partition("\n## ")[0]
    layers: dict[str, set[str]] = {}
    for names, allowed in re.findall(r"^\| (`.*?) \| (.*?) \|", section, re.MULTILINE):
        above = {"nothing": set(), "all of these": {*layers}}.get(allowed, set(allowed.split(", ")))
        layers |= dict.fromkeys(re.findall(r"`(\w+)`", names), above)
    return layers


LAYERS_OF = {"compiler": LAYERS, "toolchain": toolchain_layers()}

# third-party package -> where it may be imported
THIRD_PARTY: dict[str, set[str]] = {
    "numpy": {"compiler.graph", "compiler.frontend", "compiler.loops", "compiler.schedule",
              "compiler.runtime", "compiler.stages", "compiler.pipeline", "compiler.verify", "compiler.tune",
              "compiler.reduce", "compiler.workbench", "toolchain.explain", "toolchain.tensors",
              "toolchain.zoo"},
    "ml_dtypes": {"compiler.graph", "compiler.frontend", "compiler.loops", "compiler.runtime",
                  "compiler.verify"},
    "onnx": {"compiler.frontend", "compiler.verify", "compiler.reduce", "toolchain.zoo"},
    "google": {"compiler.frontend"},  # protobuf, which onnx brings along
    "docker": {"toolchain.engine", "toolchain.containers", "toolchain.devices"},
    # One place downloads; the engine's SDK and two callers need its errors.
    "requests": {"toolchain.web", "toolchain.engine", "toolchain.provision", "toolchain.zoo"},
    "urllib3": {"toolchain.engine"},
    "rich": {"toolchain.progress", "toolchain.engine", "toolchain.tuning"},
    "yaml": {"toolchain.recipes", "toolchain.devices", "toolchain.images"},
    "pydantic": {"compiler.tune", "toolchain.recipes", "toolchain.site_schema", "toolchain.images",
                 "toolchain.devices", "toolchain.provision", "toolchain.records", "toolchain.matrix"},
    "sqlalchemy": {"compiler.tune"},
    "dask": {"compiler.cluster"},
    "distributed": {"compiler.cluster"},
    "xgboost": {"compiler.tune"},
    "packaging": {"toolchain.recipes", "toolchain.images", "toolchain.provision"},
    "tomli_w": {"toolchain.images"},
    "cyclonedx": {"toolchain.provision", "toolchain.deploy"},
    "packageurl": {"toolchain.provision", "toolchain.deploy"},  # comes with cyclonedx-python-lib
    "platformdirs": {"toolchain.site", "toolchain.images", "toolchain.provision", "toolchain.records"},
    "jinja2": {"toolchain.images", "toolchain.workflows", "toolchain.pages"},
    "markupsafe": {"toolchain.pages"},  # comes with jinja2
    "matplotlib": {"toolchain.charts"},
    "openpyxl": {"toolchain.report"},
    "dockerfile_parse": {"toolchain.lint", "toolchain.images"},
    "filelock": {"toolchain.exclusive"},
    "typer": {"toolchain.main", "toolchain.reference", "toolchain.options", "toolchain.commands",
              "toolchain.console"},
}  # fmt: skip


def imported(source: Source) -> Iterator[str]:
    """Dotted names of all modules that a file imports, wherever in the file."""
    for node in source.nodes():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def wrong_layer(source: Source) -> Iterator[str]:
    top, own = source.package.split(".")
    if source.path in DOORS or own == "__init__":
        return
    layers = LAYERS_OF[top]
    allowed = layers.get(own, set(layers)) | {own}
    for name in sorted(set(imported(source))):
        parts = name.split(".")
        if top == "compiler" and parts[0] == "toolchain":
            yield f"imports {name}: the compiler knows nothing of the command line"
        elif parts[0] == top and len(parts) > 1 and parts[1] in layers and parts[1] not in allowed:
            yield f"imports {name}: `{own}` may import {sorted(allowed)}"


_APPLY_STEPS = {"__init__.py", "known_steps.py", "schedule.py", "trace.py"}


def up_the_schedule(source: Source) -> Iterator[str]:
    """What primitives are made of knows no primitive, and primitives know nothing of who applies them."""
    folder, _, rest = source.path.partition("compiler/schedule/")
    if folder or not rest or rest in _APPLY_STEPS or rest.startswith("rules/"):
        return
    above = (
        "schedule",
        "trace",
        "rules",
        "chooser",
        *(() if rest.startswith("primitives/") else ("primitives",)),
    )
    for name in sorted(set(imported(source))):
        if name.startswith(tuple(f"compiler.schedule.{item}" for item in above)):
            yield f"imports {name}, which is above it"


def behind_the_front_door(source: Source) -> Iterator[str]:
    for node in source.nodes():
        modules = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        yield from (
            f"imports {name}: use `compiler` itself" for name in modules if name.startswith("compiler.")
        )


def wrong_third_party(source: Source) -> Iterator[str]:
    for name in sorted(set(imported(source))):
        top = name.split(".")[0]
        if top in sys.stdlib_module_names or top in ("compiler", "toolchain"):
            continue
        if top not in THIRD_PARTY:
            yield f"imports {top}: not a dependency (docs/dependencies.md)"
        elif source.package not in THIRD_PARTY[top]:
            yield f"imports {top}, which is allowed in {sorted(THIRD_PARTY[top])}"


@pytest.mark.parametrize("top", LAYERS_OF)
def test_every_package_has_a_layer(top: str) -> None:
    packages = {source.package.split(".")[1] for source in python_sources(top)} - {"__init__"}
    assert packages - LAYERS_OF[top].keys() == set(), "add the package to its table"


def test_layers() -> None:
    assert violations(wrong_layer, "compiler", "toolchain") == []


def test_no_arrow_runs_back_up_in_the_schedule() -> None:
    assert violations(up_the_schedule, "compiler") == []


def test_toolchain_uses_the_front_door_only() -> None:
    assert violations(behind_the_front_door, "toolchain") == []


def test_third_party_packages_stay_in_their_places() -> None:
    assert violations(wrong_third_party, "compiler", "toolchain") == []


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (wrong_layer, "compiler/loops/x.py", "from compiler.graph.ir import Graph"),
        (wrong_layer, "compiler/core/x.py", "def f():\n    import compiler.loops.ir"),
        (wrong_layer, "compiler/render/x.py", "from compiler import targets"),
        (wrong_layer, "compiler/pipeline.py", "import toolchain.main"),
        (wrong_layer, "toolchain/images/x.py", "from toolchain.engine.client import Engine"),
        (wrong_layer, "toolchain/engine/x.py", "def f():\n    from toolchain import provision"),
        (wrong_layer, "toolchain/commands/x.py", "from toolchain.main import app"),
        (wrong_layer, "toolchain/settings.py", "import toolchain.console"),
        (
            up_the_schedule,
            "compiler/schedule/regions.py",
            "from compiler.schedule.primitives.base import Value",
        ),
        (
            up_the_schedule,
            "compiler/schedule/primitives/x.py",
            "from compiler.schedule.rules import schedule_func",
        ),
        (behind_the_front_door, "toolchain/x.py", "from compiler.core.files import write_atomic"),
        (behind_the_front_door, "toolchain/x.py", "import compiler.pipeline"),
        (wrong_third_party, "compiler/core/x.py", "import numpy as np"),
        (wrong_third_party, "compiler/graph/x.py", "import onnx"),
        (wrong_third_party, "compiler/graph/x.py", "import scipy"),
    ],
)
def test_the_rules_can_fail(rule: object, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))  # type: ignore[operator]  # parameters are objects


def test_no_module_is_called_like_what_the_front_door_offers() -> None:
    """Importing such a module would put it in the place of the function: `compiler.name` is then a module."""
    import pkgutil

    import compiler

    modules = {one.name for one in pkgutil.iter_modules(compiler.__path__)}
    tree = ast.parse((ROOT / "compiler" / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    offered = {one.asname for node in imports for one in node.names if one.asname}
    assert offered > {name for names in compiler._HOMES.values() for name in names}
    assert modules & offered == set()
