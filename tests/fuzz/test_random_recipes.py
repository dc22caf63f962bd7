"""Random names, bytes and changed recipes: an answer or an error in the user's words, never anything else."""

from __future__ import annotations

import functools
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler import BadInputError, ExitCode, TkError
from toolchain.data import data_directory
from toolchain.recipes import catalog as catalogs
from toolchain.recipes.resolve import RecipeCatalog, examine, load_catalog, resolve
from toolchain.recipes.strict_yaml import parse_strict

ROUNDS = 150


@functools.cache
def catalog() -> RecipeCatalog:
    return load_catalog()


def parts() -> list[str]:
    found = ["", "-", "+", "ubuntu-22.04", "debian", "5.4", "2022-12", "2031-WW99", "x", "tvm-sycl-cuda"]
    for stack in catalog().stacks.values():
        found += [stack.stack.name.replace("{version}", one.row.version) for one in stack.rows]
    for name, component in catalog().components.items():
        found += [name, *(f"{name}-{one.row.version}" for one in component.releases)]
    return found


def archs() -> list[str]:
    rows = [one.row for stack in catalog().stacks.values() for one in stack.rows]
    return [*sorted({arch for row in rows for arch in (*row.archs, *row.arch_aliases)}), "gfx", "sm_1"]


def error_of(action: Callable[[], object]) -> TkError | None:
    try:
        action()
    except TkError as error:
        return error
    return None


@settings(max_examples=300, deadline=None)
@given(
    names=st.lists(st.sampled_from(parts()), min_size=1, max_size=6),
    wanted=st.lists(st.sampled_from(archs()), max_size=2),
    joint=st.sampled_from(["+", "+", "+", "-", " ", ""]),
)
def test_a_name_is_resolved_or_refused(names: list[str], wanted: list[str], joint: str) -> None:
    name = joint.join(names)
    error = error_of(lambda: resolve(name, catalog(), archs=wanted))
    if error is None:
        found = resolve(name, catalog(), archs=wanted)
        assert resolve(found.name, catalog(), archs=wanted).name == found.name
        return
    assert error.hint or error.why
    if error.code == ExitCode.USAGE:
        return
    refusing = examine(name, catalog(), archs=wanted).refusing
    assert refusing, str(error)
    if refusing[0].nearest:
        assert not examine(refusing[0].nearest, catalog(), archs=wanted).refusing


@given(text=st.one_of(st.text(max_size=200).map(str.encode), st.binary(max_size=200)))
def test_bytes_are_read_or_refused(text: bytes) -> None:
    error = error_of(lambda: parse_strict(text, "f"))
    if error is not None:
        assert isinstance(error, BadInputError)
        assert error.where.startswith("f:")


def changed(text: str, random_: random.Random) -> str:
    """One line left out, doubled, moved, indented or with one character changed."""
    lines = text.splitlines()
    at, other = random_.randrange(len(lines)), random_.randrange(len(lines))
    line = lines[at]
    column = random_.randrange(len(line) + 1)
    sign = random_.choice("{}[]:,'\"$`\\-&*!|>%@#?\t\u202e \n0a")
    lines[at : at + 1] = random_.choice(
        [
            [],
            [line, line],
            [lines[other], line],
            [f"  {line}"],
            [line[2:]],
            [line[:column] + sign + line[column:]],
            [line[:column] + line[column + 1 :]],
            [line.replace(": ", ": {nothing} ", 1)],
            [line.replace("a", "$(a)", 1)],
        ]
    )
    return "\n".join(lines) + "\n"


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_changed_recipe_is_read_or_refused(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that is no error leaves every image of the file resolvable, or refused with its place."""
    shipped = data_directory("recipes")
    random_ = random.Random(seed)
    path = random_.choice(sorted(one for one in shipped.rglob("*.yaml") if one.name != "devices.yaml"))
    shutil.copytree(shipped, tmp_path / "recipes")
    target = tmp_path / "recipes" / path.relative_to(shipped)
    target.write_text(changed(path.read_text(), random_))
    monkeypatch.setattr(catalogs, "data_directory", lambda _: tmp_path / "recipes")
    error = error_of(load_and_resolve)
    assert error is None or ".yaml:" in str(error) or error.hint, str(error)


def load_and_resolve() -> None:
    found = load_catalog()
    for stack in found.stacks.values():
        for one in stack.rows:
            resolve(stack.stack.name.replace("{version}", one.row.version), found)
