"""Under what a kernel runs here, and what makes an environment another one."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from compiler.core.settings import load_settings, usable_processors
from compiler.targets import get_target
from compiler.targets.features import host_cpuinfo
from compiler.tune.environment import differences, environment_here
from compiler.tune.record import Environment
from tests.support.tuned import HERE


def test_the_host_as_it_calls_itself() -> None:
    target, settings = get_target("cpu"), replace(load_settings(), threads=None)
    made = environment_here(target, settings)
    assert f"{made.target}:{made.arch}" == target.text
    cpuinfo = host_cpuinfo()
    if "model name" in cpuinfo:
        assert made.device == cpuinfo["model name"]
    assert made.device
    assert made.compiler == target.cxx(settings).description
    assert "-std=c++17" in made.flags
    assert made.threads == usable_processors()
    assert made.tk.startswith("0.")
    assert environment_here(target, settings, 7).threads == 7
    assert environment_here(target, replace(settings, threads=5)).threads == 5


def test_threads_of_the_host_do_not_matter_to_a_device() -> None:
    made = environment_here(get_target("opencl-cpu"), load_settings(), 7)
    assert (made.target, made.threads, made.flags) == ("opencl-cpu", 0, "")


@pytest.mark.parametrize("name", [item.name for item in fields(Environment)])
def test_every_field_but_the_version_makes_a_difference(name: str) -> None:
    other = replace(HERE, **{name: 77 if name == "threads" else "another"})  # type: ignore[arg-type]
    assert differences(HERE, other) == (() if name == "tk" else (name,))
