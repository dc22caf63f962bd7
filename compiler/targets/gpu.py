"""What GPU targets share: rows of architectures, the facts that several of them allow, images of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace

from compiler.core.cache import ContentCache, content_key
from compiler.core.compilers import DEFECT, SHOWN_LINES
from compiler.core.diagnostics import BuildError, UsageError, did_you_mean
from compiler.core.settings import Settings
from compiler.core.target import Cache, TargetFacts
from compiler.targets.device import SOURCE, Image, Images, Resource

SCOPES = frozenset({"global", "constant", "shared", "scratch", "register", "fragment"})
GRID = (("grid_x", 2**31 - 1), ("grid_y", 65535), ("grid_z", 65535))
"""CUDA C++ Programming Guide, technical specifications per compute capability; HIP reports the same."""

SHUFFLES = frozenset({"subgroup_shuffle_xor"})
"""Intrinsics of all languages in which lanes of a sub-group exchange values."""

_BRANCHES = 4
"""Of a recorded run, at most: as many as the widest of the networks have (Inception's)."""

_VECTOR_BITS = 128
"""The widest load or store of one thread."""


@dataclass(frozen=True, slots=True)
class GpuArch:
    """One architecture of GPUs; sizes in bytes; `units`, `hertz`, `bandwidth` and `l2` are those of `card`.

    lanes: threads of a sub-group. shared: what the arrays of a block may take; shared_most: with the larger
    size that a launch may ask for. registers: of 32 bits, of one thread; registers_unit: of all of a unit.
    fma: f32 multiply-adds that a unit starts in a cycle. features: capabilities that rules and passes ask for
    besides matrix units, which `matrix_rates.py` has.
    """

    name: str
    card: str
    units: int
    lanes: int
    shared: int
    shared_most: int
    registers: int
    registers_unit: int
    threads_unit: int
    fma: int
    hertz: float
    bandwidth: float
    l2: int
    features: frozenset[str]

    def limits(self) -> dict[str, int]:
        """The named limits of `TargetFacts`."""
        return {
            "threads_per_block": 1024,
            "shared_bytes": self.shared,
            "shared_bytes_most": self.shared_most,
            "registers_per_thread": self.registers,
            "registers_per_unit": self.registers_unit,
            "threads_per_unit": self.threads_unit,
            "units": self.units,
            "stack_bytes": 1024,
            **dict(GRID),
        }


def gpu_arch(
    name: str, card: str, units: int, threads: int, fma: int,
    gigahertz: float, gigabytes: float, l2_mib: int,
    *, lanes: int, static_kib: int, shared_kib: int, registers: int, registers_unit: int,
    features: frozenset[str] = frozenset(),
) -> GpuArch:  # fmt: skip
    """A row of a table of architectures, in the units of data sheets: a `GpuArch`.

    threads: of a unit. static_kib, shared_kib: `shared` and `shared_most`.
    """
    return GpuArch(
        name=name,
        card=card,
        units=units,
        lanes=lanes,
        shared=static_kib << 10,
        shared_most=shared_kib << 10,
        registers=registers,
        registers_unit=registers_unit,
        threads_unit=threads,
        fma=fma,
        hertz=gigahertz * 1e9,
        bandwidth=gigabytes * 1e9,
        l2=l2_mib << 20,
        features=features,
    )


INTEL = gpu_arch(
    "spir64", "Arc A770", 32, 2048, 128, 2.1, 560, 16,
    lanes=16, static_kib=64, shared_kib=64, registers=128, registers_unit=65536,
)  # fmt: skip
"""Any GPU of Intel, by its driver; memory and registers of the oldest supported sub-slice (its GPU Guide)."""

INTEL_PVC = gpu_arch(
    "intel_gpu_pvc", "Max 1550, one stack", 64, 1024, 128, 1.6, 1638, 204,
    lanes=16, static_kib=128, shared_kib=128, registers=128, registers_unit=131072,
)  # fmt: skip
INTEL_DG2 = gpu_arch(
    "intel_gpu_dg2_g10", "Arc A770", 32, 1024, 128, 2.1, 560, 16,
    lanes=8, static_kib=64, shared_kib=64, registers=128, registers_unit=131072,
)  # fmt: skip
"""GPUs of Intel with matrix engines, whose tiles have as many columns as a sub-group lanes.

An Xe core has 64 and 128 hardware threads, each with 128 registers of 64 and of 32 bytes, and 128 KB of
shared memory, of which a block may take 64 on DG2 (oneAPI GPU Optimization Guide, "Intel Xe GPU
Architecture"); the rest is of data sheets.
"""


@dataclass(frozen=True, slots=True)
class Built:
    """What a toolchain made of a module for one architecture."""

    images: tuple[Image, ...]
    resources: tuple[Resource, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """A toolchain that compiles modules; `identity` changes whenever its output might.

    compile: (module's text, arch, whether an intermediate form is wanted beside the binary) -> what it made.
    """

    description: str
    identity: str
    compile: Callable[[str, str, bool], Built]


def chosen_archs(text: str, known: Mapping[str, GpuArch], aliases: Mapping[str, str]) -> tuple[GpuArch, ...]:
    """The architectures of a list such as `sm_70,sm_90`, in the order of the table.

    Raises UsageError for unknown names, and for those whose sub-groups differ: they cannot share kernels.
    """
    asked = [aliases.get(name, name) for name in text.split(",")]
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise UsageError(
            f"unknown architecture `{unknown[0]}`",
            where=f"architecture `{text}`",
            why=f"known are {', '.join((*known, *aliases))}",
            hint=did_you_mean(unknown[0], (*known, *aliases)),
        )
    found = tuple(arch for name, arch in known.items() if name in asked)
    if len({arch.lanes for arch in found}) > 1:
        sizes = ", ".join(f"{arch.name} {arch.lanes}" for arch in found)
        raise UsageError(
            "these architectures cannot share one library",
            where=f"architecture `{text}`",
            why=f"their sub-groups have different sizes: {sizes}",
            hint="compile a library for each size",
        )
    return found


def gpu_facts(
    name: str,
    language: str,
    archs: Sequence[GpuArch],
    matrix_rates: tuple[tuple[str, int], ...] = (),
    words: frozenset[str] = frozenset(),
) -> TargetFacts:
    """What all of the architectures allow: the smallest limits, the common features; words: its own."""
    limits = [arch.limits() for arch in archs]
    features = frozenset.intersection(*(arch.features for arch in archs))
    return TargetFacts(
        name=name,
        language=language,
        arch=",".join(arch.name for arch in archs),
        features=features,
        intrinsics=features | SHUFFLES | words | {unit for unit, _ in matrix_rates},
        vector_bits=_VECTOR_BITS,
        vector_registers=min(arch.registers for arch in archs),
        fma_per_cycle=min(arch.fma for arch in archs) * 32 / _VECTOR_BITS,
        hertz=min(arch.hertz for arch in archs),
        bandwidth=min(arch.bandwidth / arch.units for arch in archs),
        l1=Cache(min(arch.shared_most for arch in archs), 128),
        l2=Cache(min(arch.l2 for arch in archs), 128),
        l3=Cache(0, 128),
        scopes=SCOPES,
        subgroup_sizes=(archs[0].lanes,),
        limits=tuple((key, min(one[key] for one in limits)) for key in limits[0]),
        max_lanes=16,
        launches=True,
        binds_threads=True,
        matrix_rates=matrix_rates,
    )


def with_branches(facts: TargetFacts, edge_nanoseconds: int) -> TargetFacts:
    """The facts of a target whose recorded runs may have launches side by side."""
    limits = (("branches", _BRANCHES), ("edge_nanoseconds", edge_nanoseconds))
    return replace(facts, limits=(*facts.limits, *limits))


def build_images(
    text: str,
    archs: Sequence[str],
    tools: Sequence[Tool],
    settings: Settings,
    *,
    intermediate: str = "",
    notes: tuple[str, ...] = (),
) -> Images:
    """A module's source, and what each tool made of it for its architecture, at the same time; or before.

    `intermediate` is the architecture whose intermediate form is wanted, too. Raises what the tools raise.
    """
    cache = ContentCache(settings.cache_dir / "images")

    def build(arch: str, tool: Tool) -> Built:
        return _cached(cache, text, arch, tool, more=arch == intermediate)

    with ThreadPoolExecutor(max_workers=max(1, min(settings.jobs, len(archs)))) as pool:
        built = tuple(pool.map(build, archs, tools))
    images = (Image(SOURCE, "", text.encode()), *(image for item in built for image in item.images))
    used = "; ".join(dict.fromkeys(tool.description for tool in tools))
    return Images(images, used, tuple(row for item in built for row in item.resources), notes)


def _cached(cache: ContentCache, text: str, arch: str, tool: Tool, *, more: bool) -> Built:
    key = content_key("image 2", text, arch, tool.identity, "with intermediate form" if more else "")
    if (found := _stored(cache, key)) is not None:
        return found
    built = tool.compile(text, arch, more)
    for image in built.images:
        cache.put(key, image.data, f".{image.kind}")
    record = {
        "images": [[image.kind, image.arch] for image in built.images],
        "resources": [asdict(item) for item in built.resources],
    }
    cache.put(key, json.dumps(record).encode(), ".json")
    return built


def _stored(cache: ContentCache, key: str) -> Built | None:
    path = cache.get(key, ".json")
    if path is None:
        return None
    record = json.loads(path.read_bytes())
    images = []
    for kind, arch in record["images"]:
        data = cache.get(key, f".{kind}")
        if data is None:
            return None
        images.append(Image(kind, arch, data.read_bytes()))
    return Built(tuple(images), tuple(Resource(**item) for item in record["resources"]))


def refused(command: str, log: str) -> BuildError:
    """What to raise when a compiler rejects a module."""
    errors = [line for line in log.splitlines() if "error" in line] or log.splitlines()
    return BuildError(
        "the device's compiler rejected generated code",
        where=command,
        why="\n".join(errors[:SHOWN_LINES]),
        hint=DEFECT,
    )
