"""The host processor as a target: C++ with vector extensions of the compiler, one object per kernel file.

`cpu` means this machine's features and microarchitecture, found by name; `cpu:ARCH` names a level, perhaps
with features or a microarchitecture (`x86-64-v3+zen3`, `x86-64-v4+avx512vnni`, `host+amx-bf16`, `armv8-a`).
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from compiler.core.answer import Answer, refusal, yes
from compiler.core.diagnostics import HostError, UsageError, did_you_mean
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
    host_cpuinfo,
    host_features,
    host_flags,
    parse_features,
)
from compiler.targets.microarchitectures import (
    ARM,
    NAMES,
    X86,
    Microarchitecture,
    Rates,
    default_row,
    find_row,
)
from compiler.targets.readiness import Readiness, host_compiles
from compiler.targets.target import Target, TargetRow
from compiler.targets.toolchain import Cxx

SYSFS_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
ARMV8 = "armv8-a"
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
    """An instruction set with its features, the machine that code is made for, and the processor's row.

    here: whether it is this machine, whose caches the system knows.
    """

    name: str
    machine: str
    features: tuple[str, ...]
    row: Microarchitecture
    here: bool = False

    @property
    def vectors(self) -> tuple[int, int]:
        """Width in bits and number of the vector registers."""
        return _vectors(self.machine, self.features)


def _cpu_arch(text: str) -> CpuArch:
    """The architecture called `text`; raises UsageError or HostError (see the callees)."""
    parts = text.split("+")
    named = [NAMES[part] for part in parts[1:] if part in NAMES]
    if len(named) > 1:
        what = f"two microarchitectures were given: {named[0].name} and {named[1].name}"
        raise UsageError(what, where=f"architecture `{text}`", hint="name one of them")
    plain = "+".join(part for part in parts if part not in NAMES)
    if parts[0] == "host":
        return _host_arch(text, plain, named[0] if named else None)
    machine, features = (ARM, _no_features(plain)) if parts[0] == ARMV8 else (X86, parse_features(plain))
    row = named[0] if named else default_row(machine, _vectors(machine, features)[0])
    return CpuArch(text, machine, features, _fitting(row, machine, features, text))


def _host_arch(text: str, plain: str, named: Microarchitecture | None) -> CpuArch:
    if platform.machine() in ("aarch64", "arm64"):
        machine, name, features = ARM, plain.replace("host", ARMV8), _no_features(plain)
    else:
        machine, name, features = X86, text, _host_features(plain)
    here = named is None
    row = named or find_row(host_cpuinfo()) or default_row(machine, _vectors(machine, features)[0])
    name = f"{name}+{row.name}" if machine == ARM and row.name else name
    return CpuArch(name, machine, features, _fitting(row, machine, features, text), here)


def _host_features(text: str) -> tuple[str, ...]:
    """The levels' features that this machine has, and those that `host+feature...` names beyond them."""
    extra = checked(text.split("+")[1:], text)
    flags = host_flags()
    missing = [name for name in closure(extra) if FEATURES[name].cpuinfo not in flags]
    if missing:
        raise HostError(
            f"this processor does not have {', '.join(missing)}",
            where=f"architecture `{text}`",
            hint="name the architecture that will run the model, for example --arch x86-64-v4+amx-bf16",
        )
    return closure((*host_features(flags), *extra))


def _no_features(text: str) -> tuple[str, ...]:
    """No feature of aarch64 beyond the level has a name here."""
    if extra := text.split("+")[1:]:
        raise UsageError(
            f"unknown processor feature `{extra[0]}`",
            where=f"architecture `{text}`",
            why=f"what may follow {ARMV8} is a microarchitecture",
            hint=did_you_mean(extra[0], [name for name, row in NAMES.items() if row.machine == ARM]),
        )
    return ()


def _fitting(row: Microarchitecture, machine: str, features: tuple[str, ...], text: str) -> Microarchitecture:
    """The row; raises UsageError where it is one of other machines, or has no vectors so wide."""
    bits, _ = _vectors(machine, features)
    if row.machine != machine or row.rates_of(bits) is None:
        raise UsageError(
            f"{row.name} does not have this instruction set",
            where=f"architecture `{text}`",
            why=f"it is a processor of {row.machine} with vectors of {max(row.rates)} bits",
            hint="name another level, or leave the microarchitecture out",
        )
    return row


def cpu_facts(arch: str) -> TargetFacts:
    """What the compiler knows about a processor of this architecture (sizes of caches: of this machine)."""
    found = _cpu_arch(arch)
    row, (bits, registers) = found.row, found.vectors
    rates = row.rates_of(bits)
    assert rates is not None, "a row fits its instruction set"
    caches = host_caches(row) if found.here else (row.l1, row.l2, row.l3)
    return TargetFacts(
        name="cpu",
        language="c++",
        arch=found.name,
        features=frozenset(found.features),
        vector_bits=bits,
        vector_registers=registers,
        microarchitecture=row.name,
        fma_per_cycle=rates.fma,
        loads_per_cycle=rates.loads,
        stores_per_cycle=rates.stores,
        fma_latency=row.fma_latency,
        hertz=row.gigahertz * 1e9,
        bandwidth=row.gigabytes * 1e9,
        l1=replace(caches[0], bytes_per_cycle=rates.loads * bits / 8),
        l2=caches[1],
        l3=caches[2],
        scopes=frozenset({"global", "constant", "scratch", "register"}),
        intrinsics=frozenset({"masked_memory"} if "avx" in found.features else ()),
        limits=(("stack_bytes", STACK_BYTES),),
    )


def host_rates(bits: int) -> Rates | None:
    """What this machine's row says of vectors with so many bits; None where it has none."""
    return _cpu_arch("host").row.rates_of(bits)


def _vectors(machine: str, features: tuple[str, ...]) -> tuple[int, int]:
    """Width in bits and number of the vector registers."""
    if machine == ARM:
        return 128, 32
    if "avx512f" in features:
        return 512, 32
    return (256, 16) if "avx2" in features else (128, 16)


def host_caches(row: Microarchitecture, root: Path = SYSFS_CACHES) -> tuple[Cache, Cache, Cache]:
    """This machine's data caches: sizes and lines where the system tells them, else the row's."""
    found = {1: row.l1, 2: row.l2, 3: row.l3}
    for level, size, line in _sysfs_caches(root):
        if level in found:
            found[level] = replace(found[level], bytes=size, line=line)
    return found[1], found[2], found[3]


@lru_cache(maxsize=4)
def _sysfs_caches(root: Path) -> tuple[tuple[int, int, int], ...]:
    """Level, bytes and line of each data cache."""
    found = []
    for entry in sorted(root.glob("index*")):
        try:
            kind = (entry / "type").read_text().strip()
            level = int((entry / "level").read_text())
            size = (entry / "size").read_text().strip()
            line = int((entry / "coherency_line_size").read_text())
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and size.endswith("K"):
            found.append((level, int(size[:-1]) << 10, line))
    return tuple(found)


GCC_FLAGS = ("-ftree-vectorize", "-fvect-cost-model=dynamic", "-fno-predictive-commoning")
"""Beside -O2: vectorise what is still scalar, as clang does, and do not carry loads from one iteration to the
next, which costs the registers that hold the accumulators. -O3 takes twice as long and is no faster."""

GCC_ARM_FLAGS = ("-fno-schedule-insns",)
"""Not before registers are chosen: loads that are moved to the front push accumulators out. (Off on x86.)"""


def cpu_flags(facts: TargetFacts, cxx: Cxx) -> tuple[str, ...]:
    """Compiler options for kernels; raises HostError when this compiler cannot produce this code.

    Floating point stays IEEE apart from contraction to fused multiply-add.
    """
    machine = _machine(facts)
    if cxx.machine != machine:
        raise HostError(
            f"{cxx.description} makes code for {cxx.machine}, not for {machine}",
            where=cxx.path,
            hint="set TK_CXX to a compiler for that machine, or choose another --arch",
        )
    common = (*COMMON_FLAGS, *(GCC_FLAGS if cxx.family == "gcc" else ()))
    if machine == ARM:
        return (*common, *(GCC_ARM_FLAGS if cxx.family == "gcc" else ()))
    features = [name for name in FEATURES if name in facts.features]
    _check_known(features, cxx)
    flags = [*common, "-march=x86-64", *(f"-m{name}" for name in features)]
    if facts.vector_bits == 512:  # clang would otherwise split 512-bit vectors into halves
        flags.append("-mprefer-vector-width=512")
    return tuple(flags)


def _machine(facts: TargetFacts) -> str:
    """Whose code is made, as `uname -m` says it."""
    return ARM if facts.arch.partition("+")[0] == ARMV8 else X86


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
    machine = _machine(facts)
    return Target(f"cpu:{_named(facts)}", facts, CPP, _ordered(facts), cpu_flags, machine=machine)


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
    if not facts.arch.startswith("host"):
        return facts.arch
    return "+".join(part for part in (features_text(_ordered(facts)), facts.microarchitecture) if part)


def _ordered(facts: TargetFacts) -> tuple[str, ...]:
    return tuple(name for name in FEATURES if name in facts.features)


def _loads(_settings: Settings) -> Answer:
    return yes("needs the C and C++ runtime only")


def _runs(_settings: Settings) -> Answer:
    try:
        facts = cpu_facts("host")
    except HostError as error:
        return refusal(error)
    return yes(f"{counted(usable_processors(), 'processor')}: {_named(facts)}")


CPU = TargetRow(
    "cpu",
    "host cores, C++",
    ("host", *LEVELS, ARMV8),
    "host",
    _target,
    readiness=Readiness(host_compiles, _loads, _runs),
)

ROWS = (CPU,)
"""Every target of this language."""
