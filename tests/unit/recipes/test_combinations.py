"""What goes together: combination, verdict, rule and source, and what is offered instead."""

from __future__ import annotations

import functools

import pytest

from compiler import BadInputError, ExitCode, UsageError
from toolchain.recipes.names import stack_name
from toolchain.recipes.resolve import RecipeCatalog, examine, load_catalog, resolve

OK, WARN, REFUSE = "ok", "warn", "refuse"

# (name, archs, verdict, rules that speak, words of the source of the first, nearest)
CASES: list[tuple[str, tuple[str, ...], str, tuple[str, ...], str, str]] = [
    # what works
    ("cpu", (), OK, (), "", ""),
    ("cpu-sycl", (), OK, (), "", ""),
    ("rocm-5.2-debian", (), OK, (), "", ""),
    ("cuda-12-pip", ("sm_70",), OK, (), "", ""),
    ("llvm-15", (), OK, (), "", ""),
    ("rocm-4.5.2", ("gfx906",), OK, (), "", ""),
    ("rocm-5.4", ("gfx906",), OK, (), "", ""),
    ("rocm-5.4.3+dpcpp-2022-12", ("gfx906",), OK, (), "", ""),
    ("rocm-5.4.3+dpcpp-2022-12+ubuntu-22.04", ("gfx90a",), OK, (), "", ""),
    ("rocm-5.2.3+dpcpp-2022-09", ("gfx906",), OK, (), "", ""),
    ("rocm-5.7.1", ("gfx906",), OK, (), "", ""),
    ("rocm-6.2+dpcpp-6.3.0", ("gfx942",), OK, (), "", ""),
    ("cuda-11.8+dpcpp-2022-12", ("sm_70",), OK, (), "", ""),
    ("cuda-11.8", ("sm_90",), OK, (), "", ""),
    ("cuda-12.8", ("sm_70", "sm_120"), OK, (), "", ""),
    ("cuda-13", ("sm_75",), OK, (), "", ""),
    ("dtk-23.04", ("gfx906",), OK, (), "", ""),
    ("dtk-25.04", ("gfx938",), OK, (), "", ""),
    ("oneapi-2024.2", ("spir64",), OK, (), "", ""),
    ("tvm-sycl-rocm-2022-09", (), OK, (), "", ""),
    ("rocm-5.4.3+dpcpp-2022-09+llvm-14+tvm-sycl", ("gfx906",), OK, (), "", ""),
    # what works with a caveat: the team's own set-ups among them
    ("cuda-11.2+dpcpp-2022-12", ("sm_70",), WARN, ("cuda-below-11.6-dpcpp",), "GetStartedGuide", ""),
    ("cuda-11.4+dpcpp-2022-09", ("sm_80",), WARN, ("cuda-below-11.6-dpcpp",), "GetStartedGuide", ""),
    ("rocm-5.4+dpcpp-2023-03+llvm-14+tvm-sycl", ("gfx906",), WARN, ("tvm-sycl-newer-dpcpp",),
     "first and second", ""),
    ("cuda-12.1+dpcpp-2022-12", ("sm_70",), WARN, ("cuda-12-dpcpp-2022",), "GetStartedGuide", ""),
    ("cuda-11.2+dpcpp-2022-12+tvm-sycl", ("sm_70",), WARN,
     ("cuda-below-11.6-dpcpp", "dpcpp-2022-12-numbers", "tvm-without-llvm"), "GetStartedGuide", ""),
    ("tvm-sycl-cuda", (), WARN, ("cuda-below-11.6-dpcpp", "dpcpp-2022-12-numbers"), "GetStartedGuide", ""),
    ("tvm-sycl-rocm", (), WARN, ("dpcpp-2022-12-numbers",), "test report", ""),
    ("tvm-sycl-hygon", (), WARN, ("dtk-dpcpp-experimental", "dpcpp-2022-12-numbers"), "test report", ""),
    ("rocm-tvm", (), WARN, ("tvm-native-rocm-wrong",), "test report", ""),
    ("rocm-5.4+tvm-0.10", ("gfx906",), WARN, ("tvm-native-rocm-wrong", "tvm-without-llvm"), "test report",
     ""),
    ("rocm-6.0", ("gfx906",), WARN, ("gfx906-rocm-6",), "rocm-5.7.0", ""),
    ("rocm-6.4", ("gfx906",), WARN, ("gfx906-rocm-6",), "rocm-5.7.0", ""),
    ("rocm-5.4+dpcpp-nightly-2023-12-06", ("gfx906",), WARN, ("dpcpp-daily-build",), "releases page", ""),
    ("rocm-5.2-debian+dpcpp-2022-12", ("gfx906",), WARN, ("dpcpp-debian-hip",), "HIP_INCLUDE_DIR", ""),
    ("dtk-23.04", ("gfx916",), WARN, ("gfx916-is-gfx906",), "hip.cmake", ""),
    ("dtk-23.04+dpcpp-2022-12", ("gfx906",), WARN, ("dtk-dpcpp-experimental",), "test report", ""),
    ("dtk-23.04+llvm-14+tvm", ("gfx906",), WARN, ("dtk-native-tvm",), "rocm-Hygon", ""),
    # what does not work
    ("rocm-5.5+dpcpp-2022-12", ("gfx906",), REFUSE, ("rocm-5.5-dpcpp",), "AMD plugin 2024.1",
     "rocm-5.4.3+dpcpp-2022-12"),
    ("rocm-5.7+dpcpp-2022-09", ("gfx906",), REFUSE, ("rocm-5.5-dpcpp",), "AMD plugin 2024.1",
     "rocm-5.4.3+dpcpp-2022-09"),
    ("rocm-6.0+dpcpp-2022-12", ("gfx942",), REFUSE, ("rocm-5.5-dpcpp",), "AMD plugin 2024.1",
     "rocm-6.0.0+dpcpp-6.3.0"),
    ("rocm-5.2+ubuntu-22.04", ("gfx906",), REFUSE, ("rocm-ubuntu-22.04",), "20a178c", "rocm-5.2.3"),
    ("rocm-5.1+dpcpp-2022-09+ubuntu-22.04", ("gfx906",), REFUSE, ("rocm-ubuntu-22.04",), "20a178c",
     "rocm-5.1.3+dpcpp-2022-09"),
    ("rocm-5.4+dpcpp-2023-WW27", ("gfx906",), REFUSE, ("dpcpp-tag-is-no-compiler",), "issue 13815",
     "rocm-5.4.3+dpcpp-2023-03"),
    ("cuda-11.8+dpcpp-2025-WW03", ("sm_80",), REFUSE, ("dpcpp-tag-is-no-compiler",), "issue 13815",
     "cuda-11.8.0+dpcpp-2022-12"),
    ("cuda-13", ("sm_70",), REFUSE, ("cuda-13-volta",), "cuDecomp", "cuda-12.8.1"),
    ("cuda-13", ("sm_60", "sm_80"), REFUSE, ("cuda-13-volta",), "cuDecomp", "cuda-12.8.1"),
    ("cuda-11.2", ("sm_90",), REFUSE, ("arch-not-in-stack",), "stack's row", "cuda-11.8.0"),
    ("cuda-12.6", ("sm_120",), REFUSE, ("arch-not-in-stack",), "stack's row", "cuda-12.8.1"),
    ("rocm-5.4", ("gfx942",), REFUSE, ("arch-not-in-stack",), "stack's row", "rocm-6.0.0"),
    ("rocm-5.2-debian", ("gfx1100",), REFUSE, ("arch-not-in-stack",), "stack's row", "rocm-6.4.1"),
    ("dtk-23.04", ("gfx936",), REFUSE, ("arch-not-in-stack",), "stack's row", "dtk-25.04"),
    ("cuda-11.2+tvm-sycl", ("sm_70",), REFUSE, ("tvm-sycl-needs-dpcpp", "tvm-without-llvm"), "sycl_module.cc",
     "cuda-11.2.2+dpcpp-2022-09+tvm-sycl-0.10-reload22"),
    ("cuda-12.8+dpcpp-2022-12+llvm-14+tvm-sycl", ("sm_70",), REFUSE,
     ("tvm-0.10-python", "cuda-12-dpcpp-2022", "dpcpp-2022-12-numbers"), "from_source.rst",
     "cuda-11.8.0+dpcpp-2022-12+llvm-14+tvm-sycl-0.10-reload22+ubuntu-20.04"),
    ("rocm-5.4+llvm-14+tvm+ubuntu-22.04", ("gfx906",), REFUSE, ("tvm-0.10-python", "tvm-native-rocm-wrong"),
     "from_source.rst", "rocm-5.4.3+llvm-14+tvm-0.10.0"),
    ("dtk-22.10+dpcpp-2022-12", ("gfx906",), REFUSE, ("dpcpp-gcc-7", "dtk-dpcpp-experimental"), "GCC 7.1",
     "dtk-23.04+dpcpp-2022-12"),
    ("cuda-12-pip+dpcpp-2022-12", ("sm_70",), REFUSE, ("cuda-pip-has-no-toolkit", "cuda-12-dpcpp-2022"),
     "GetStartedGuide", "cuda-11.8.0+dpcpp-2022-12"),
    ("cuda-12-pip+llvm-15+tvm", ("sm_70",), REFUSE, ("tvm-0.10-python", "cuda-pip-has-no-toolkit-for-tvm"),
     "from_source.rst", "cuda-11.6.2+llvm-15+tvm-0.10.0"),
    ("cuda-11.8+tvm-rocm+ubuntu-20.04", ("sm_70",), REFUSE, ("tvm-rocm-needs-rocm",), "USE_MIOPEN", ""),
    ("cpu+llvm-14+llvm-source+ubuntu-20.04", (), REFUSE, ("one-llvm",), "prefixes",
     "cpu+llvm-source-14.0.6+ubuntu-20.04"),
    ("dtk-23.10+llvm-14", ("gfx906",), REFUSE, ("llvm-centos",), "June 2024", "dtk-23.04+llvm-14"),
    ("dtk-23.10+tvm", ("gfx906",), REFUSE, ("tvm-centos", "dtk-native-tvm", "tvm-without-llvm"), "June 2024",
     "dtk-23.04+tvm-0.10.0"),
    ("rocm-5.4+dpcpp-2022-09+llvm-14+tvm+tvm-sycl", ("gfx906",), REFUSE, ("one-tvm-upstream-or-sycl",),
     "prefix", "rocm-5.4.3+dpcpp-2022-09+llvm-14+tvm-sycl-0.10-reload22"),
    ("rocm-5.2+dpcpp-2022-09+llvm-14+tvm-rocm+tvm-sycl", ("gfx906",), REFUSE, ("one-tvm-sycl-or-rocm",),
     "prefix", "rocm-5.2.3+dpcpp-2022-09+llvm-14+tvm-sycl-0.10-reload22"),
    ("rocm-5.2+tvm-rocm+tvm+llvm-14", ("gfx906",), REFUSE,
     ("one-tvm-upstream-or-rocm", "tvm-native-rocm-wrong"), "prefix", "rocm-5.2.3+llvm-14+tvm-rocm-5.2"),
    ("oneapi-2022+intel-gpu-22.12", (), OK, (), "", ""),
    ("cpu+intel-gpu-22.12", (), WARN, ("intel-gpu-2022-ubuntu-20.04",), "installation procedure", ""),
    ("oneapi-2022+intel-gpu-24.22", (), REFUSE, ("intel-gpu-2024-ubuntu-22.04",), "installation procedure",
     "oneapi-2023.1.0+intel-gpu-24.22.29735.20"),
    ("rocm-5.4+dpcpp-6.3.0", ("gfx906",), REFUSE, ("dpcpp-2024-hwloc",), "prerequisites",
     "rocm-5.4.3+dpcpp-6.3.0+ubuntu-22.04"),
]  # fmt: skip


@functools.cache
def catalog() -> RecipeCatalog:
    return load_catalog()


def identity(case: object) -> str | None:
    return case if isinstance(case, str) else None


@pytest.mark.parametrize(("name", "archs", "verdict", "rules", "source", "nearest"), CASES, ids=identity)
def test_combination(
    name: str, archs: tuple[str, ...], verdict: str, rules: tuple[str, ...], source: str, nearest: str
) -> None:
    found = examine(name, catalog(), archs=archs)
    assert tuple(one.rule for one in found.findings) == rules
    if verdict == REFUSE:
        assert found.findings[0].verdict == REFUSE
        assert found.findings[0].nearest == nearest
        with pytest.raises(BadInputError) as caught:
            resolve(name, catalog(), archs=archs)
        assert caught.value.code == ExitCode.BAD_INPUT
        for part in (rules[0], source, nearest, "recipes/rules.yaml:"):
            assert part in str(caught.value)
        return
    resolution = resolve(name, catalog(), archs=archs)
    assert len(resolution.recipe_hash) == 64
    assert {one.verdict for one in found.findings} == ({WARN} if rules else set())
    if rules:
        assert source in found.findings[0].source


def test_there_are_enough() -> None:
    assert len(CASES) >= 40
    assert len([one for one in CASES if one[2] == REFUSE]) >= 15


def test_every_rule_speaks_in_some_case() -> None:
    said = {rule for case in CASES for rule in case[3]}
    assert catalog().rules.keys() - said == set()


@pytest.mark.parametrize("case", [one for one in CASES if one[5]], ids=lambda case: case[0])
def test_the_nearest_works(case: tuple[str, tuple[str, ...], str, tuple[str, ...], str, str]) -> None:
    assert resolve(case[5], catalog(), archs=case[1]).name == case[5]


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("rocm-5.4", "rocm-5.4.3"),
        ("rocm-5.4.0", "rocm-5.4.0"),
        ("rocm-5", "rocm-5.7.1"),
        ("rocm", "rocm-6.4.1"),
        ("cuda-11", "cuda-11.8.0"),
        ("cuda-11.2+dpcpp-2022-12+tvm-sycl", "cuda-11.2.2+dpcpp-2022-12+tvm-sycl-0.10-reload22"),
        ("cuda-11.2+tvm-sycl-0.10+dpcpp-2022-12", "cuda-11.2.2+dpcpp-2022-12+tvm-sycl-0.10"),
        ("dtk-24.04", "dtk-24.04"),
        ("dtk-24", "dtk-24.04.3"),
        ("rocm-5.2-debian", "rocm-5.2.3-debian"),
        ("rocm-debian", "rocm-5.2.3-debian"),
        ("cuda-pip", "cuda-12-pip"),
        ("cpu", "cpu"),
        ("rocm-5.4+ubuntu", "rocm-5.4.3"),
        ("rocm-5.4+ubuntu-22.04", "rocm-5.4.3+ubuntu-22.04"),
        ("rocm-5.4+dpcpp-2022", "rocm-5.4.3+dpcpp-2022-12"),
        ("tvm-sycl-cuda", "cuda-11.2.2+dpcpp-2022-12+llvm-14+tvm-sycl-0.10"),
    ],
)
def test_canonical_name(name: str, canonical: str) -> None:
    found = resolve(name, catalog())
    assert found.name == canonical
    assert resolve(canonical, catalog(), archs=found.archs).name == canonical


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("rcom-5.4", "rocm-5.4.3"),
        ("rocm-9", "rocm-"),
        ("sycl-nvidia", "cuda-11.8.0+dpcpp-2022-12"),
        ("rocm-5.4+dpccp-2022-12", "dpcpp-2022-12"),
        ("rocm-5.4+dpcpp-2022-13", "2022-12"),
        ("rocm-5.4+dpcpp-2022-12+dpcpp-2022-09", "twice"),
        ("rocm-5.4+ubuntu-24.04", "ubuntu-22.04"),
        ("rocm-5.4++dpcpp", "components"),
        ("rocm-5.4+", "components"),
        ("", "tk image list"),
        ("rocm 5.4", "tk image list"),
        ("rocm-5.4;ls", "tk image list"),
        ("$(id)", "tk image list"),
        ("../etc", "tk image list"),
        ("rocm-5.4" + "+dpcpp" * 50, "letters"),
        ("cpu" + "+llvm" * 20, "parts"),
        ("cpu+llvm-14+llvm-15", "twice"),
        ("tvm-sycl-cuda+llvm-15", "tvm-sycl-cuda"),
    ],
)
def test_unknown_name(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(name, catalog())
    assert caught.value.code == ExitCode.USAGE
    assert hint in str(caught.value)


def test_unknown_arch_and_rule() -> None:
    with pytest.raises(UsageError, match="gfx906"):
        resolve("rocm-5.4", catalog(), archs=["gfx96"])
    with pytest.raises(UsageError, match=r"rocm-5\.5-dpcpp"):
        resolve("rocm-5.4", catalog(), allow=["rocm-5.5-dpccp"])


def test_a_waiver_is_recorded() -> None:
    found = resolve("rocm-5.5+dpcpp-2022-12", catalog(), allow=["rocm-5.5-dpcpp", "gfx906-rocm-6"])
    assert found.allowed == ("rocm-5.5-dpcpp",)
    assert [one.rule for one in found.findings] == ["rocm-5.5-dpcpp"]


def test_the_arch_counts_only_where_it_is_built_in() -> None:
    def hashes(name: str, archs: list[str]) -> set[str]:
        return {resolve(name, catalog(), archs=[arch]).recipe_hash for arch in archs}

    assert len(hashes("rocm-5.4+dpcpp-2022-12", ["gfx906", "gfx90a"])) == 1
    assert len(hashes("rocm-5.4+dpcpp-2022-12+tvm-sycl", ["gfx906", "gfx90a"])) == 2


def test_every_combination_of_two_is_resolved_or_refused_by_a_rule() -> None:
    """No recipe has a placeholder that nothing fills, unless a rule says first that it cannot work."""
    stacks = [stack_name(stack, one.row.version) for stack in catalog().stacks.values() for one in stack.rows]
    parts = [
        f"{name}-{one.row.version}" for name, part in catalog().components.items() for one in part.releases
    ]
    resolved = 0
    for first in stacks:
        for parts_of in [*((one,) for one in parts), ("dpcpp-2022-12", "llvm-14", "tvm-sycl-0.10")]:
            found = examine("+".join([first, *parts_of]), catalog())
            if found.refusing:
                alone = found.combination.stack.stack.vendor == "none"
                alone |= "tvm-rocm-needs-rocm" in {one.rule for one in found.refusing}
                assert found.refusing[0].nearest or alone, found.name
                continue
            resolve(found.name, catalog())
            resolved += 1
    assert resolved > 300
