"""Processors by microarchitecture: what their ports, caches and memory do in a cycle, with sources.

`host` finds its row by CPUID (on aarch64 by implementer and part); `LEVEL+zen3` names one, so that a library
for other machines is made anywhere. Without a row the defaults of the instruction set hold everywhere.

Rates of caches are what one core reads from there in a long stream, not what the data path could do. Models
of a row differ in clock, last cache and memory, some of Intel's servers in their second unit for vectors of
512 bits: `tk doctor --calibrate` measures this machine beside its row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.core.target import Cache

X86 = "x86_64"
ARM = "aarch64"
_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Rates:
    """Instructions on vectors of one width that a core starts in a cycle, each kind alone."""

    fma: float
    loads: float
    stores: float


@dataclass(frozen=True, slots=True)
class Cpuid:
    """Processors of one maker: x86 vendor, family and models; Arm's implementer, 8, and parts."""

    vendor: str
    family: int
    models: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Microarchitecture:
    """One row; `name` is empty where it stands for all processors with an instruction set.

    rates: by width of the vectors in bits; a narrower width has those of the next one in the table. l1_kib:
    the first cache, which is read as fast as the ports load. fma_latency: to a sum that is added to again.
    gigahertz: of all cores under vector load, as sold most; gigabytes: a second, that one core reads from
    memory. The last cache is what one core reaches at its own speed.
    """

    name: str
    machine: str
    rates: Mapping[int, Rates]
    fma_latency: float
    l1_kib: int
    l2: Cache
    l3: Cache
    gigahertz: float
    gigabytes: float
    ids: tuple[Cpuid, ...] = ()

    @property
    def l1(self) -> Cache:
        rate = max(one.loads * bits / 8 for bits, one in self.rates.items())
        return Cache(self.l1_kib * _KIB, bytes_per_cycle=rate)

    def rates_of(self, bits: int) -> Rates | None:
        """The rates for vectors of so many bits; None where there are no vectors so wide."""
        return next((self.rates[width] for width in sorted(self.rates) if width >= bits), None)


def _kib(size: float, rate: float) -> Cache:
    return Cache(int(size * _KIB), bytes_per_cycle=rate)


def _mib(size: float, rate: float) -> Cache:
    return Cache(int(size * _MIB), bytes_per_cycle=rate)


# ---------------------------------------------------------------- rows
#
# Sources, by the letters at the rows:
#   F  Agner Fog, Instruction tables and Microarchitecture (agner.org/optimize): latencies, ports, cache ports
#   U  uops.info: latencies and throughputs by instruction and width
#   O  OSACA's machine models (github.com/RRZE-HPC/OSACA, osaca/data): latencies and ports
#   K  kerncraft's machine files (github.com/RRZE-HPC/kerncraft, examples/machine-files): likwid-bench `load`
#      on one core at a fixed clock; EPYC 7452, Xeon E5-2695 v3, E5-2697 v4, Gold 6148 and 6248, Platinum
#      8360Y and 8470
#   I  Intel 64 and IA-32 Architectures Optimization Reference Manual (248966), chapters of each generation
#   A  AMD, Software Optimization Guides 56305 (17h), 56665 (19h), 57647 (19h, models 10h), 58455 (1Ah)
#   M  Arm, Software Optimization Guides of Cortex-A72 (UAN0016), Neoverse N1, V1 and V2
#   T  `tk doctor --calibrate` on such a machine
#   E  an estimate: from the data paths that the maker tells, less what is lost in the rows with K and T
# CPUID models: Linux, arch/x86/kernel/cpu/amd.c and arch/x86/include/asm/intel-family.h; Arm's parts:
# arch/arm64/include/asm/cputype.h.

_AMD, _INTEL, _ARM, _APPLE = "AuthenticAMD", "GenuineIntel", "0x41", "0x61"

ROWS = (
    Microarchitecture(  # rates A F, latency F, caches and memory K
        "zen2", X86, {256: Rates(2, 2, 1)}, 5,
        32, _kib(512, 32), _mib(16, 23), 3.0, 22,
        (Cpuid(_AMD, 0x17, (*range(0x30, 0x50), *range(0x60, 0x80), 0x90, 0x91, *range(0xA0, 0xB0))),),
    ),
    Microarchitecture(  # rates A O T, latency O T, caches and memory E, within 13 % of T
        "zen3", X86, {256: Rates(2, 2, 1)}, 4,
        32, _kib(512, 31), _mib(32, 27), 3.4, 24,
        (Cpuid(_AMD, 0x19, (*range(0x10), *range(0x20, 0x60))),),
    ),
    Microarchitecture(  # rates A O T, latency O, caches and memory T (an EPYC of models 10h)
        "zen4", X86, {256: Rates(2, 2, 1), 512: Rates(1, 1, 0.5)}, 4,
        32, _mib(1, 30), _mib(32, 27), 3.7, 28,
        (Cpuid(_AMD, 0x19, (*range(0x10, 0x20), *range(0x60, 0xB0))),),
    ),
    Microarchitecture(  # all A O T, caches and memory T (an EPYC); of notebooks with half the width: none
        "zen5", X86, {256: Rates(2, 2, 2), 512: Rates(2, 2, 1)}, 4,
        48, _mib(1, 60), _mib(32, 30), 3.9, 47,
        (Cpuid(_AMD, 0x1A, (*range(0x20), *range(0x40, 0x50))),),
    ),
    Microarchitecture(  # rates F I, latency F, caches and memory K
        "haswell", X86, {256: Rates(2, 2, 1)}, 5,
        32, _kib(256, 25), _mib(20, 10), 2.6, 9,
        (Cpuid(_INTEL, 6, (0x3C, 0x3F, 0x45, 0x46)),),
    ),
    Microarchitecture(  # rates F I, latency F, caches and memory K
        "broadwell", X86, {256: Rates(2, 2, 1)}, 5,
        32, _kib(256, 25), _mib(20, 12), 2.6, 11,
        (Cpuid(_INTEL, 6, (0x3D, 0x47, 0x4F, 0x56)),),
    ),
    Microarchitecture(  # rates F I, latency F U, caches I; desktops and notebooks up to the tenth generation
        "skylake", X86, {256: Rates(2, 2, 1)}, 4,
        32, _kib(256, 29), _mib(8, 18), 3.8, 18,
        (Cpuid(_INTEL, 6, (0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6)),),
    ),
    Microarchitecture(  # rates F I, latency F U, caches and memory K; Cascade Lake and Cooper Lake, too
        "skylake-sp", X86, {512: Rates(2, 2, 1)}, 4,
        32, _mib(1, 45), _mib(24, 10), 2.6, 14,
        (Cpuid(_INTEL, 6, (0x55,)),),
    ),
    Microarchitecture(  # rates I O, latency O, caches and memory K
        "icelake-sp", X86, {256: Rates(2, 2, 2), 512: Rates(2, 2, 1)}, 4,
        48, _mib(1.25, 46), _mib(27, 10), 2.8, 15,
        (Cpuid(_INTEL, 6, (0x6A, 0x6C)),),
    ),
    Microarchitecture(  # rates O, latency O, caches and memory K; Emerald Rapids, too
        "sapphire-rapids", X86, {256: Rates(2, 3, 2), 512: Rates(2, 2, 1)}, 4,
        48, _mib(2, 50), _mib(26, 9), 2.8, 14,
        (Cpuid(_INTEL, 6, (0x8F, 0xCF)),),
    ),
    Microarchitecture(  # performance cores, Raptor Lake's too; rates U I, latency U, caches and memory E
        "alder-lake", X86, {256: Rates(2, 3, 2)}, 4,
        48, _mib(1.25, 48), _mib(30, 20), 4.6, 36,
        (Cpuid(_INTEL, 6, (0x97, 0x9A, 0xB7, 0xBA, 0xBF)),),
    ),
    Microarchitecture(  # rates and latency M O, caches and memory E
        "cortex-a72", ARM, {128: Rates(1, 1, 0.5)}, 3,
        32, _mib(1, 10), _mib(1, 10), 1.5, 5,
        (Cpuid(_ARM, 8, (0xD08,)),),
    ),
    Microarchitecture(  # rates and latency M O, caches and memory E, sizes of Graviton 2
        "neoverse-n1", ARM, {128: Rates(2, 2, 1)}, 2,
        64, _mib(1, 22), _mib(32, 9), 2.5, 16,
        (Cpuid(_ARM, 8, (0xD0C,)),),
    ),
    Microarchitecture(  # rates and latency M, caches and memory E, sizes of Graviton 3
        "neoverse-v1", ARM, {128: Rates(4, 3, 2)}, 2,
        64, _mib(1, 30), _mib(32, 12), 2.6, 22,
        (Cpuid(_ARM, 8, (0xD40,)),),
    ),
    Microarchitecture(  # rates and latency M O, caches and memory E, sizes of Graviton 4
        "neoverse-v2", ARM, {128: Rates(4, 3, 2)}, 2,
        64, _mib(2, 30), _mib(36, 12), 2.8, 26,
        (Cpuid(_ARM, 8, (0xD4F,)),),
    ),
    Microarchitecture(  # Firestorm; rates and latency O, caches and memory E, sizes as Apple tells
        "apple-m1", ARM, {128: Rates(4, 3, 2)}, 4,
        128, _mib(12, 32), _mib(8, 18), 3.1, 55,
        (Cpuid(_APPLE, 8, (0x023, 0x025, 0x029)),),
    ),
)  # fmt: skip

_WITHOUT_NAME = (
    Microarchitecture(
        "", X86, {128: Rates(2, 2, 1)}, 4,
        32, _mib(1, 32), _mib(16, 10), 3.0, 12,
    ),
    Microarchitecture(
        "", X86, {256: Rates(2, 2, 1)}, 4,
        32, _mib(1, 32), _mib(16, 10), 3.0, 12,
    ),
    Microarchitecture(
        "", X86, {512: Rates(2, 2, 1)}, 4,
        32, _mib(1, 32), _mib(16, 10), 3.0, 12,
    ),
    Microarchitecture(
        "", ARM, {128: Rates(2, 2, 1)}, 3,
        64, _mib(1, 22), _mib(16, 10), 2.6, 12,
    ),
)  # fmt: skip
"""Defaults of the instruction sets, by the width of their vectors: what most servers have at least."""

NAMES = {row.name: row for row in ROWS}


def default_row(machine: str, bits: int) -> Microarchitecture:
    """What holds for a processor with these vectors of which no more is known."""
    return next(row for row in _WITHOUT_NAME if row.machine == machine and row.rates_of(bits) is not None)


def find_row(cpuinfo: Mapping[str, str]) -> Microarchitecture | None:
    """The row of a processor by what Linux says of it (see `features.host_cpuinfo`); None without one."""
    for vendor, family, model in (
        ("vendor_id", "cpu family", "model"),
        ("CPU implementer", "CPU architecture", "CPU part"),
    ):
        try:
            key = (cpuinfo[vendor], int(cpuinfo[family], 0), int(cpuinfo[model], 0))
        except (KeyError, ValueError):
            continue
        for row in ROWS:
            if any((one.vendor, one.family) == key[:2] and key[2] in one.models for one in row.ids):
                return row
    return None
