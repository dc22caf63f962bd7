"""Targets by name, features by name, compilers and their messages."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compiler.core.diagnostics import BuildError, HostError, UsageError
from compiler.core.settings import load_settings
from compiler.runtime.library import start_runtime
from compiler.targets import get_target
from compiler.targets.build import KernelBuild
from compiler.targets.cpu import cpu_flags, host_caches
from compiler.targets.features import (
    LEVELS,
    closure,
    features_text,
    host_features,
    host_flags,
    parse_features,
)
from compiler.targets.microarchitectures import NAMES
from compiler.targets.toolchain import Cxx, find_cxx

GCC9 = Cxx("g++-9", "gcc", (9, 4, 0), "x86_64", "id")
CLANG11 = Cxx("clang++-11", "clang", (11, 0, 1), "x86_64", "id")


def settings(tmp_path: Path, **more: str):  # noqa: ANN201 - a record of the code under test
    return load_settings({"HOME": str(tmp_path), "TK_CACHE_DIR": str(tmp_path / "cache"), **more})


@pytest.mark.parametrize(
    ("arch", "bits", "registers"),
    [("x86-64", 128, 16), ("x86-64-v3", 256, 16), ("x86-64-v4", 512, 32), ("armv8-a", 128, 32)],
)
def test_vector_units(arch: str, bits: int, registers: int) -> None:
    facts = get_target("cpu", arch).facts
    assert (facts.vector_bits, facts.vector_registers) == (bits, registers)


def test_arch_in_name_and_apart_are_the_same() -> None:
    assert get_target("cpu:x86-64-v3").facts == get_target("cpu", "x86-64-v3").facts


def test_level_with_features() -> None:
    features = parse_features("x86-64-v4+amx-bf16")
    assert "amx-tile" in features
    assert "avx512f" in features
    assert "-mamx-bf16" in cpu_flags(get_target("cpu:x86-64-v4+amx-bf16").facts, find_cxx(load_settings()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cpux", ["unknown target `cpux`", "did you mean 'cpu'?"]),
        ("cpu:x86-64-v5", ["unknown architecture", "x86-64-v4"]),
        ("cpu:x86-64-v3+avx512ff", ["unknown processor feature `avx512ff`", "avx512f"]),
        ("cpu:x86-64-v3+zem3", ["unknown processor feature `zem3`", "did you mean 'zen3'?"]),
        ("cpu:x86-64-v3+zen2+zen3", ["two microarchitectures", "zen2 and zen3"]),
        ("cpu:x86-64-v4+zen3", ["zen3 does not have", "vectors of 256 bits"]),
        ("cpu:x86-64+neoverse-n1", ["neoverse-n1 does not have", "a processor of aarch64"]),
        ("cpu:armv8-a+avx2", ["unknown processor feature `avx2`", "what may follow armv8-a"]),
    ],
)
def test_unknown_names_are_usage_errors(text: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        get_target(text)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("text", [*LEVELS, "x86-64-v3+avx512f", "x86-64-v4+amx-bf16", "x86-64+sse4.1"])
def test_features_have_one_text(text: str) -> None:
    features = parse_features(text)
    assert parse_features(features_text(features)) == features
    assert features_text(features).split("+")[0] == text.split("+")[0]


def test_this_machine_is_named_by_what_it_has() -> None:
    host = get_target("cpu")
    assert "host" not in host.text
    again = get_target(host.text)
    assert (again.features, again.facts.vector_bits) == (host.features, host.facts.vector_bits)
    same = ("microarchitecture", "fma_per_cycle", "loads_per_cycle", "hertz", "bandwidth")
    assert all(getattr(again.facts, name) == getattr(host.facts, name) for name in same)


def test_two_architectures_are_refused() -> None:
    with pytest.raises(UsageError, match="two architectures"):
        get_target("cpu:x86-64-v3", "x86-64-v4")


def test_host_features_are_closed_under_implication() -> None:
    flags = frozenset({"pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "avx512f", "fma"})
    assert host_features(flags) == ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")  # avx is missing
    assert set(closure(("avx512f",))) >= {"avx2", "fma", "f16c", "avx", "sse4.2"}


def test_flags_from_cpuinfo(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor : 0\nflags\t\t: fpu avx2 fma\n")
    assert host_flags(path) == {"fpu", "avx2", "fma"}
    with pytest.raises(HostError, match="name the architecture"):
        host_flags(tmp_path / "missing")


def test_caches_from_sysfs(tmp_path: Path) -> None:
    for number, (level, kind, size) in enumerate(
        [(1, "Data", 48), (1, "Instruction", 32), (2, "Unified", 2048)]
    ):
        entry = tmp_path / f"index{number}"
        entry.mkdir()
        (entry / "level").write_text(f"{level}\n")
        (entry / "type").write_text(f"{kind}\n")
        (entry / "size").write_text(f"{size}K\n")
        (entry / "coherency_line_size").write_text("64\n")
    row = NAMES["zen3"]
    l1, l2, l3 = host_caches(row, tmp_path)
    assert (l1.bytes, l2.bytes) == (48 << 10, 2 << 20)
    assert (l1.bytes_per_cycle, l2.bytes_per_cycle) == (row.l1.bytes_per_cycle, row.l2.bytes_per_cycle)
    assert l3 == row.l3  # the system did not tell


def test_flags_never_say_native_and_keep_ieee() -> None:
    flags = cpu_flags(get_target("cpu:x86-64-v4").facts, CLANG11)
    assert "-mprefer-vector-width=512" in flags
    assert not {"-march=native", "-ffast-math", "-Ofast"} & set(flags)


def test_old_compiler_is_told_what_it_lacks() -> None:
    with pytest.raises(HostError, match="does not know the processor feature amx-tile"):
        cpu_flags(get_target("cpu:x86-64-v4+amx-bf16").facts, GCC9)


def test_compiler_for_another_machine_is_refused() -> None:
    with pytest.raises(HostError, match="makes code for x86_64, not for aarch64"):
        cpu_flags(get_target("cpu:armv8-a").facts, GCC9)


def test_a_compiler_for_another_machine_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    macros = ["__GNUC__ 12", "__GNUC_MINOR__ 1", "__GNUC_PATCHLEVEL__ 0", "__aarch64__ 1"]
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(HostError, match="no C\\+\\+ compiler for riscv64") as caught:
        find_cxx(settings(tmp_path), "riscv64")
    assert "apt install g++-riscv64-linux-gnu" in caught.value.hint
    cross, native = tmp_path / "riscv64-linux-gnu-g++", tmp_path / "mine"
    for path, defined in ((cross, macros), (native, [*macros[:-1], "__x86_64__ 1"])):
        text = "\n".join(f"#define {one}" for one in defined)
        path.write_text(f"#!/bin/sh\n/bin/cat <<'EOF'\n{text}\nEOF\n")
        path.chmod(0o755)
    assert find_cxx(settings(tmp_path), "riscv64").path == str(cross)
    assert find_cxx(settings(tmp_path, TK_CXX=str(native)), "riscv64").path == str(cross)
    assert find_cxx(settings(tmp_path, TK_CXX=str(native))).path == str(native)
    assert find_cxx(settings(tmp_path, TK_CXX=str(cross)), "aarch64").path == str(cross)


def test_missing_compiler(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="`no-such-cxx` was not found"):
        find_cxx(settings(tmp_path, TK_CXX="no-such-cxx"))


@pytest.mark.parametrize(
    ("macros", "words"), [("__clang_major__ 10", "too old"), ("__TINYC__ 1", "neither g\\+\\+")]
)
def test_unfit_compilers(tmp_path: Path, macros: str, words: str) -> None:
    fake = tmp_path / "cxx"
    extra = "#define __clang__ 1\n#define __clang_minor__ 0\n#define __clang_patchlevel__ 0\n"
    fake.write_text(f"#!/bin/sh\ncat <<'EOF'\n{extra if 'clang' in macros else ''}#define {macros}\nEOF\n")
    fake.chmod(0o755)
    with pytest.raises(HostError, match=words):
        find_cxx(settings(tmp_path, TK_CXX=str(fake)))


def test_objects_are_cached_by_content(tmp_path: Path) -> None:
    known, target = settings(tmp_path), get_target("cpu")
    sources = [("a", "int tk_a() { return 1; }\n"), ("b", "int tk_b() { return 2; }\n")]
    first = []
    for hits in (0, 2):
        with KernelBuild(target, known) as build:
            made = [build.submit(name, text).result() for name, text in sources]
            assert len(build.hits) == hits
        first = first or made
    assert first == made
    assert first[0] != first[1]


def test_the_runtime_is_compiled_while_kernels_are_made(tmp_path: Path) -> None:
    """What links the library finds all of it in the cache."""
    with KernelBuild(get_target("cpu"), settings(tmp_path), extra_flags=("-O0",)) as build:
        build.start_runtime()
    before = set(build.cache.root.rglob("*.o"))
    with ThreadPoolExecutor(max_workers=1) as pool:
        made = [item.result() for item in start_runtime(build.toolchain, build.cache, build.runtime, pool)]
    assert before == set(made)
    assert len(made) == 3


def test_rejected_code_is_a_build_error(tmp_path: Path) -> None:
    with KernelBuild(get_target("cpu"), settings(tmp_path)) as build:
        refused = build.submit("k7", "int f( {\n")
        with pytest.raises(BuildError, match="rejected generated code \\(k7\\)"):
            refused.result()
