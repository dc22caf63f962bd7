"""A site's own recipes: rows and files beside the shipped ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler import BadInputError, UsageError
from toolchain.recipes.resolve import examine, load_catalog, resolve


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_version_is_one_row(tmp_path: Path) -> None:
    """`each` of the shipped file holds for a site's row, too."""
    write(tmp_path, "stacks/rocm.yaml", """\
stack: rocm
rows:
  - version: "5.4.4"
    bases:
      - system: ubuntu-20.04
        reference: "registry.example:5000/team/rocm:5.4.4"
        source: our registry
        parameters: {suite: ubuntu}
""")  # fmt: skip
    found = resolve("rocm-5.4", load_catalog([tmp_path]))
    assert found.name == "rocm-5.4.4"
    assert found.base.reference == "registry.example:5000/team/rocm:5.4.4"
    assert found.stack.where == f"{tmp_path}/stacks/rocm.yaml:3"
    assert found.stack.layer.env["ROCM_PATH"] == "/opt/rocm"
    assert found.stack.layer.repositories[0].uri == "https://repo.radeon.com/rocm/apt/5.4.4/"
    assert found.archs == ("gfx906",)
    with pytest.raises(UsageError):
        resolve("rocm-5.4.4", load_catalog())


def test_a_row_replaces_the_shipped_one_of_its_version(tmp_path: Path) -> None:
    write(tmp_path, "stacks/cuda.yaml", """\
stack: cuda
rows:
  - version: "11.8.0"
    archs: [sm_70]
    bases:
      - {system: ubuntu-22.04, reference: "mirror.example/cuda:11.8.0", source: our mirror}
""")  # fmt: skip
    catalog = load_catalog([tmp_path])
    assert resolve("cuda-11.8", catalog).base.reference == "mirror.example/cuda:11.8.0"
    assert [one.row.version for one in catalog.stacks["cuda"].rows].count("11.8.0") == 1
    assert examine("cuda-11.8", catalog, archs=["sm_80"]).refusing


def test_a_stack_a_component_and_a_rule_of_the_site(tmp_path: Path) -> None:
    write(tmp_path, "stacks/acme.yaml", """\
stack: acme
title: ACME
vendor: none
name: "acme-{version}"
rows:
  - version: "2.0"
    bases: [{system: debian-12, reference: "acme.example/base:2.0", source: us}]
    provides: {acme: "2.0"}
    prefixes: {acme: /opt/acme}
    sources: {provides: us}
""")  # fmt: skip
    write(tmp_path, "components/tool.yaml", """\
component: tool
title: our tool
releases:
  - version: "1"
    released: "2024-01"
    source: us
    install:
      - when: {has: {acme: ">=2"}}
        env: {TOOL_ACME: "{acme.prefix}"}
      - when: {lacks: [acme]}
        env: {TOOL_ACME: none}
""")  # fmt: skip
    write(tmp_path, "rules.yaml", """\
rules:
  - {id: tool-rocm, when: {has: {tool: any, rocm: "<6"}}, verdict: refuse, because: "it crashes", source: us}
""")  # fmt: skip
    write(tmp_path, "environments.yaml", """\
environments:
  - {name: ours, title: what we use, image: acme-2.0+tool-1, source: us}
""")  # fmt: skip
    write(tmp_path, "targets.yaml", """\
targets:
  - {target: cpu, images: [ours], because: "our compiler"}
""")  # fmt: skip
    catalog = load_catalog([tmp_path])
    found = resolve("ours", catalog)
    assert found.name == "acme-2.0+tool-1"
    assert found.components[0].layer.env == {"TOOL_ACME": "/opt/acme"}
    assert resolve("cpu+tool", catalog).components[0].layer.env == {"TOOL_ACME": "none"}
    refused = examine("rocm-5.4+tool", catalog).refusing
    assert [(one.rule, one.nearest) for one in refused] == [("tool-rocm", "rocm-6.0.0+tool-1")]
    assert f"{tmp_path}/rules.yaml:2" in refused[0].where
    assert catalog.targets["cpu"].row.images == ("ours",)


def test_two_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, "environments.yaml", f"""\
environments:
  - {{name: {name}, title: {name}, image: cpu, source: us}}
""")  # fmt: skip
    catalog = load_catalog([tmp_path / "one", tmp_path / "two"])
    assert resolve("one", catalog).name == resolve("two", catalog).name == "cpu"


def test_shipped_rules_cannot_be_taken_away(tmp_path: Path) -> None:
    write(tmp_path, "rules.yaml", """\
rules:
  - {id: rocm-5.5-dpcpp, when: {}, verdict: warn, because: "we know better", source: us}
""")  # fmt: skip
    with pytest.raises(BadInputError, match=r"already described in recipes/rules\.yaml"):
        load_catalog([tmp_path])


def test_none_takes_away_what_each_says(tmp_path: Path) -> None:
    write(tmp_path, "stacks/cuda.yaml", """\
stack: cuda
rows:
  - version: "11.9"
    driver: none
    archs: [sm_70]
    bases: [{system: ubuntu-22.04, reference: "mirror.example/cuda:11.9", source: us}]
""")  # fmt: skip
    row = resolve("cuda-11.9", load_catalog([tmp_path])).stack.row
    assert getattr(row, "driver", "missing") is None


def test_a_missing_folder() -> None:
    with pytest.raises(BadInputError, match="does not exist"):
        load_catalog([Path("/nowhere")])


def test_what_a_recipe_leaves_open_is_told_with_its_place(tmp_path: Path) -> None:
    write(tmp_path, "components/open.yaml", """\
component: open
title: needs ROCm and does not say so
releases:
  - {version: "1", released: "2024-01", source: us, install: [{path: ["{rocm.prefix}/x"]}]}
""")  # fmt: skip
    catalog = load_catalog([tmp_path])
    assert resolve("rocm-5.4+open", catalog).components[0].layer.path == ("/opt/rocm/x",)
    with pytest.raises(BadInputError, match=r"uses \{rocm.prefix\}, which nothing") as caught:
        resolve("cpu+open", catalog)
    assert caught.value.where == f"{tmp_path}/components/open.yaml:4"
