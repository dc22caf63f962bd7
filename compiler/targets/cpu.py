"""The host processor as a target: C++ with vector extensions of the compiler, one object per kernel file.

`cpu` means this machine's features, found by name; `cpu:ARCH` names a level and extra features
(`x86-64-v3`, `x86-64-v4+avx512vnni`, `host+amx-bf16`) or `armv8-a`.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from compiler.core.answer import Answer, refusal, yes
from compiler.core.diagnostics import HostError
from compiler.core.settings import Settings, usable_processors
from compiler.core.target import Cache, TargetFacts
from compiler.core.units import counted
from compiler.render.vocabulary_cpp import CPP
from compiler.targets.features import (
    FEATURES,
    LEVELS,
    checked,
    closure,
    features_text,
    host_features,
    host_flags,
    parse_features,
)
from compiler.targets.readiness import Readiness, host_compiles
from compiler.targets.target import Target, TargetRow
from compiler.targets.toolchain import Cxx

SYSFS_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
DEFAULT_CACHES = {1: Cache(32 << 10), 2: Cache(1 << 20), 3: Cache(16 << 20)}
STACK_BYTES = 4096
"""Thread-private buffers up to this size lie on the stack, larger ones in the thread's scratch memory."""

COMMON_FLAGS = (
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",  # buffers that share scratch memory may differ in type
    "-fwrapv",  # integers of a model wrap around
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    "-Wall",
    "-Wextra",
    "-Wno-psabi",
    "-Wno-unknown-pragmas",
    "-Wno-unused-but-set-variable",  # at the edge of an image, not all of a tile is needed
)


@dataclass(frozen=True, slots=True)
class CpuArch:
    """An instruction set with its features; `machine` is what the compiler has to produce code for."""

    name: str
    machine: str
    features: tuple[str, ...]


def _cpu_arch(text: str) -> CpuArch:
    """The architecture called `text`; raises UsageError or HostError (see the callees)."""
    if text == "armv8-a":
        return CpuArch(text, "aarch64", ())
    if text == "host" or text.startswith("host+"):
        return _host_arch(text)
    features = parse_features(text)
    return CpuArch(text, "x86_64", features)


def _host_arch(text: str) -> CpuArch:
    extra = checked(text.split("+")[1:], text)
    if platform.machine() in ("aarch64", "arm64"):
        return CpuArch("armv8-a", "aarch64", ())
    flags = host_flags()
    missing = [name for name in closure(extra) if FEATURES[name].cpuinfo not in flags]
    if missing:
        raise HostError(
            f"this processor does not have {', '.join(missing)}",
            where=f"architecture `{text}`",
            hint="name the architecture that will run the model, for example --arch x86-64-v4+amx-bf16",
        )
    return CpuArch(text, "x86_64", closure((*host_features(flags), *extra)))


def cpu_facts(arch: str) -> TargetFacts:
    """What the compiler knows about a processor of this architecture (caches: of this machine for `host`)."""
    found = _cpu_arch(arch)
    bits, registers = _vectors(found)
    caches = host_caches() if arch.startswith("host") else DEFAULT_CACHES
    return TargetFacts(
        name="cpu",
        language="c++",
        arch=found.name,
        features=frozenset(found.features),
        vector_bits=bits,
        vector_registers=registers,
        fma_per_cycle=2.0,
        hertz=3.0e9,
        bandwidth=12e9,
        l1=caches[1],
        l2=caches[2],
        l3=caches[3],
        scopes=frozenset({"global", "constant", "scratch", "register"}),
        intrinsics=frozenset({"masked_memory"} if "avx" in found.features else ()),
        limits=(("stack_bytes", STACK_BYTES),),
    )


def _vectors(arch: CpuArch) -> tuple[int, int]:
    """Width in bits and number of the vector registers."""
    if arch.machine == "aarch64":
        return 128, 32
    if "avx512f" in arch.features:
        return 512, 32
    return (256, 16) if "avx2" in arch.features else (128, 16)


@lru_cache(maxsize=1)
def host_caches(root: Path = SYSFS_CACHES) -> dict[int, Cache]:
    """Sizes of this machine's data caches by level; defaults where the system does not tell."""
    found = dict(DEFAULT_CACHES)
    for entry in sorted(root.glob("index*")):
        try:
            kind = (entry / "type").read_text().strip()
            level = int((entry / "level").read_text())
            size = (entry / "size").read_text().strip()
            line = int((entry / "coherency_line_size").read_text())
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and level in found and size.endswith("K"):
            found[level] = Cache(int(size[:-1]) << 10, line)
    return found


GCC_FLAGS = ("-ftree-vectorize", "-fvect-cost-model=dynamic", "-fno-predictive-commoning")
"""Beside -O2: vectorise what is still scalar, as clang does, and do not carry loads from one iteration to the
next, which costs the registers that hold the accumulators. -O3 takes twice as long and is no faster."""


def cpu_flags(facts: TargetFacts, cxx: Cxx) -> tuple[str, ...]:
    """Compiler options for kernels; raises HostError when this compiler cannot produce this code.

    Floating point stays IEEE apart from contraction to fused multiply-add.
    """
    machine = "aarch64" if facts.arch == "armv8-a" else "x86_64"
    if cxx.machine != machine:
        raise HostError(
            f"{cxx.description} makes code for {cxx.machine}, not for {machine}",
            where=cxx.path,
            hint="set TK_CXX to a compiler for that machine, or choose another --arch",
        )
    common = (*COMMON_FLAGS, *(GCC_FLAGS if cxx.family == "gcc" else ()))
    if machine == "aarch64":
        return common
    features = [name for name in FEATURES if name in facts.features]
    _check_known(features, cxx)
    flags = [*common, "-march=x86-64", *(f"-m{name}" for name in features)]
    if facts.vector_bits == 512:  # clang would otherwise split 512-bit vectors into halves
        flags.append("-mprefer-vector-width=512")
    return tuple(flags)


def _check_known(features: list[str], cxx: Cxx) -> None:
    for name in features:
        oldest = FEATURES[name].gcc if cxx.family == "gcc" else FEATURES[name].clang
        if cxx.version[0] < oldest:
            raise HostError(
                f"{cxx.description} does not know the processor feature {name}",
                where=cxx.path,
                why=f"needed is {cxx.family} {oldest} or newer",
                hint=f"install a newer compiler, or choose an --arch without +{name}",
            )


def plan_flags(_facts: TargetFacts, _cxx: Cxx) -> tuple[str, ...]:
    """Options for the plan around a device's kernels."""
    return COMMON_FLAGS


def _target(arch: str) -> Target:
    facts = cpu_facts(arch)
    return Target(f"cpu:{_named(facts)}", facts, CPP, _ordered(facts), cpu_flags)


def behind_device(name: str, language: str, arch: str, shared_bytes: int) -> tuple[str, TargetFacts]:
    """A target's text and facts for host cores behind a device's interface, with vectors of at most 16 lanes.

    Raises what `cpu_facts` raises.
    """
    known = cpu_facts(arch)
    facts = replace(
        known,
        name=name,
        language=language,
        features=frozenset(),
        intrinsics=frozenset(),  # a vector of which some lanes are off is moved lane by lane
        limits=(*known.limits, ("shared_bytes", shared_bytes)),
        max_lanes=16,
        launches=True,
    )
    return f"{name}:{_named(known)}", facts


def _named(facts: TargetFacts) -> str:
    """An architecture that means the same processor on any machine."""
    return features_text(_ordered(facts)) if facts.arch.startswith("host") else facts.arch


def _ordered(facts: TargetFacts) -> tuple[str, ...]:
    return tuple(name for name in FEATURES if name in facts.features)


def _loads(_settings: Settings) -> Answer:
    return yes("needs the C and C++ runtime only")


def _runs(_settings: Settings) -> Answer:
    try:
        features = features_text(_cpu_arch("host").features)
    except HostError as error:
        return refusal(error)
    return yes(f"{counted(usable_processors(), 'processor')}: {features}")


CPU = TargetRow(
    "cpu",
    "host cores, C++",
    ("host", *LEVELS, "armv8-a"),
    "host",
    _target,
    readiness=Readiness(host_compiles, _loads, _runs),
)

ROWS = (CPU,)
"""Every target of this language."""
