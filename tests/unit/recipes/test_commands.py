"""`tk image list`, `show` and `why` as a user runs them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Result
from toolchain.recipes.describe import show_text, why_text
from toolchain.recipes.resolve import RecipeCatalog, examine, load_catalog, resolve

GOLDENS = Path(__file__).parent / "golden"
Tk = Callable[..., Result]

# file of the golden -> name, archs, waivers
GOLDEN: dict[str, tuple[str, list[str], list[str]]] = {
    "rocm-5.4": ("rocm-5.4", [], []),
    "team-on-cuda": ("tvm-sycl-cuda", [], []),
    "team-on-rocm": ("tvm-sycl-rocm", [], []),
    "rocm-tvm": ("rocm-tvm", [], []),
    "cpu": ("cpu", [], []),
    "refused-rocm": ("rocm-5.5+dpcpp-2022-12", [], []),
    "refused-arch": ("cuda-13", ["sm_70"], []),
    "refused-base": ("rocm-5.2+ubuntu-22.04", [], []),
    "refused-tag": ("rocm-5.4+dpcpp-2023-WW27", [], []),
    "warned-arch": ("rocm-6.0", ["gfx906"], []),
    "alias": ("dtk-23.04", ["gfx916"], []),
    "allowed": ("rocm-5.5+dpcpp-2022-12", [], ["rocm-5.5-dpcpp"]),
}


@pytest.fixture(scope="module")
def catalog() -> RecipeCatalog:
    return load_catalog()


def without_lines(text: str) -> str:
    """Line numbers of recipes move with every row: the file is what a golden shows."""
    return re.sub(r"(recipes/[\w./-]+\.yaml):\d+", r"\1:N", text)


@pytest.mark.parametrize("name", GOLDEN)
def test_why(name: str, catalog: RecipeCatalog, golden: Callable[[str, str], None]) -> None:
    asked, archs, allow = GOLDEN[name]
    found = examine(asked, catalog, archs=archs, allow=allow)
    assert bool(found.refusing) == name.startswith("refused")
    golden(f"why-{name}.txt", without_lines(why_text(found)) + "\n")


@pytest.mark.parametrize("name", ["alias", "refused-arch", "allowed"])
def test_why_as_a_command(name: str, tk: Tk) -> None:
    asked, archs, allow = GOLDEN[name]
    options = [*(f"--arch={one}" for one in archs), *(f"--allow={one}" for one in allow)]
    result = tk("image", "why", asked, *options)
    assert (result.code, result.err) == (3 if name.startswith("refused") else 0, "")
    assert without_lines(result.out) == (GOLDENS / f"why-{name}.txt").read_text()


@pytest.mark.parametrize("name", ["rocm-5.4.3+dpcpp-2022-12", "tvm-sycl-cuda", "rocm-tvm", "cpu-sycl"])
def test_show(name: str, catalog: RecipeCatalog, golden: Callable[[str, str], None]) -> None:
    shown = show_text(resolve(name, catalog)) + "\n"
    golden(f"show-{name}.txt", without_lines(re.sub(r"(recipe +)[0-9a-f]{64}", r"\1HASH", shown)))


def test_show_as_json(tk: Tk) -> None:
    shown = tk("image", "show", "rocm-5.4+dpcpp-2022-12", "--json").json
    assert shown["name"] == "rocm-5.4.3+dpcpp-2022-12"
    assert shown["base"]["reference"] == "rocm/dev-ubuntu-20.04:5.4.3"
    assert [one["kind"] for one in shown["components"]] == ["dpcpp", "tk-python"]
    assert "--hip" in shown["components"][0]["build"]["configure"][0]["words"]
    assert shown["unresolved"]


def test_why_as_json(tk: Tk) -> None:
    result = tk("image", "why", "rocm-5.5+dpcpp-2022-12", "--json")
    assert result.code == 3
    (finding,) = result.json["findings"]
    assert finding["rule"] == "rocm-5.5-dpcpp"
    assert finding["nearest"] == "rocm-5.4.3+dpcpp-2022-12"
    assert finding["source"]
    assert result.json["refused"] is True
    assert {"choice", "because"} == set(result.json["choices"][0])


def test_why_lists_what_is_other_than_in_the_teams_own_files(catalog: RecipeCatalog, tk: Tk) -> None:
    named = {name for name, one in catalog.environments.items() if one.row.differences}
    assert named >= {"rocm-tvm", "tvm-sycl-cuda-reload22", "tvm-sycl-rocm-reload22", "tvm-cpu", "tvm-cuda"}
    for name in named:
        text = why_text(examine(name, catalog))
        for one in catalog.environments[name].row.differences:
            assert f"  - before: {one.before}\n    now: {one.now}\n    because: {one.because}" in text
    told = tk("image", "why", "rocm-tvm", "--json").json["differences"]
    assert [one["before"] for one in told] == [
        one.before for one in catalog.environments["rocm-tvm"].row.differences
    ]


def test_show_of_what_a_rule_refuses(tk: Tk) -> None:
    result = tk("image", "show", "cuda-13", "--arch", "sm_70")
    assert result.code == 3
    assert result.out == ""
    for part in ("cuda-13-volta", "cuDecomp", "cuda-12.8.1", "--allow cuda-13-volta"):
        assert part in result.err
    assert tk("image", "show", "cuda-13", "--arch", "sm_70", "--allow", "cuda-13-volta").code == 0


def test_list(tk: Tk) -> None:
    result = tk("image", "list")
    assert result.code == 0, result.err
    header, *rows = result.out.splitlines()
    assert header.split()[-5:] == ["rendered", "dry-built", "built", "published", "run-on-device"]
    names = [row.split()[0] for row in rows if row.strip()]
    for name in (
        "cpu",
        "cpu-sycl",
        "rocm-5.2.3-debian",
        "cuda-12-pip",
        "rocm-5.4.3",
        "cuda-11.2.2",
        "rocm-tvm",
    ):
        assert name in names
    assert "+dpcpp" in names


def test_list_says_no_more_than_is_shown(tk: Tk) -> None:
    """Nothing has run on a device here; the rest is `yes` only with evidence of the same recipe."""
    listed = tk("image", "list", "--json").json
    assert {one["states"]["run-on-device"] for one in listed["images"]} == {"no"}
    assert all(set(one["states"].values()) <= {"yes", "no", "unknown"} for one in listed["images"])
    assert [one["name"] for one in listed["components"]]


def test_a_sites_recipes_are_seen(tk: Tk, tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    folder.mkdir()
    text = "environments:\n  - {name: ours, title: what we use, image: rocm-5.4, source: us}\n"
    (folder / "environments.yaml").write_text(text)
    (tmp_path / "site.yaml").write_text("recipes: [ours]\nallow: [rocm-5.5-dpcpp]\n")
    assert "rocm-5.4.3" in tk("image", "why", "ours").out
    assert "ours" in tk("image", "list").out
    assert tk("image", "show", "rocm-5.5+dpcpp-2022-12").code == 0
    (folder / "environments.yaml").write_text("environments:\n  - {name: Ours}\n")
    result = tk("image", "list")
    assert result.code == 3
    assert "environments.yaml:2" in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("why", "rcom-5.4"), 2, "did you mean 'rocm-5.4.3'?"),
        (("show", "rocm-5.4", "--arch", "gfx96"), 2, "gfx906"),
        (("show", "rocm-5.4", "--allow", "nothing"), 2, "rules:"),
        (("why",), 2, "NAME"),
        (("list", "--site", "missing.yaml"), 3, "missing.yaml"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], code: int, said: str, tk: Tk) -> None:
    result = tk("image", *arguments)
    assert result.code == code
    assert said in result.err
    assert "Traceback" not in result.err
