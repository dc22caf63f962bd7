"""What the middle of the compiler knows about a target: numbers and capabilities, never its name."""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.core.precision import NARROW
from compiler.core.types import DType, dtype


@dataclass(frozen=True, slots=True)
class Cache:
    """One level of cache as one core sees it; bytes_per_cycle: what it reads from there in a long stream."""

    bytes: int
    line: int = 64
    bytes_per_cycle: float = 16.0

    @property
    def fed(self) -> float:
        """Bytes a cycle that reach a kernel which computes and stores meanwhile.

        Four fifths of a stream's: measured were 0.5 (second cache of a Xeon of AVX-512) and 0.8 (last).
        """
        return 0.8 * self.bytes_per_cycle


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """Frozen facts that graph, schedule and lower receive as an argument; only `compiler.targets` makes them.

    vector_bits: width of the widest vector unit; 0 when the language vectorises by itself.
    vector_registers: architectural vector registers of one thread.
    microarchitecture: name of the processor's row that rates, caches and clock are from; empty: of none.
    fma_per_cycle, loads_per_cycle, stores_per_cycle: instructions of full width that start each cycle.
    fma_latency: cycles until the result of a fused multiply-add can be added to.
    bandwidth: bytes per second that one core reads from memory.
    features: names of instruction-set features, for intrinsics and for refusal at load.
    scopes: storage scopes that the target has.
    limits: named numeric limits (`threads_per_block`, `shared_bytes`, ...). Those of `branches` of a recorded
    run, where there are any, have an `edge_nanoseconds` from one to another.
    max_lanes: the longest vector of the language.
    launches: every outermost loop nest is a launch of its own on a device, nothing runs between them.
    binds_threads: loops are bound to the hardware's axes of blocks and threads.
    matrix_rates: multiply-adds that a unit's matrix unit does in a cycle, by the name of the instruction
    (`compiler.loops.matrix_units`); instructions that are not named there the target does not have.
    precision: what factors of f32 may be rounded to, because the user asked for it; `f32` itself by default.
    """

    name: str
    language: str
    arch: str
    features: frozenset[str] = frozenset()
    vector_bits: int = 128
    vector_registers: int = 16
    microarchitecture: str = ""
    fma_per_cycle: float = 2.0
    loads_per_cycle: float = 2.0
    stores_per_cycle: float = 1.0
    fma_latency: float = 4.0
    hertz: float = 2.5e9
    bandwidth: float = 10e9
    l1: Cache = field(default_factory=lambda: Cache(32 << 10, bytes_per_cycle=64.0))
    l2: Cache = field(default_factory=lambda: Cache(1 << 20, bytes_per_cycle=32.0))
    l3: Cache = field(default_factory=lambda: Cache(16 << 20, bytes_per_cycle=10.0))
    scopes: frozenset[str] = frozenset({"global", "constant", "scratch", "register"})
    subgroup_sizes: tuple[int, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    intrinsics: frozenset[str] = frozenset()
    max_lanes: int = 64
    launches: bool = False
    binds_threads: bool = False
    matrix_rates: tuple[tuple[str, int], ...] = ()
    precision: str = "f32"
    _limit_of: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_limit_of", dict(self.limits))

    @property
    def factors(self) -> DType | None:
        """The type of 16 bits that factors are rounded to, if it was asked for one."""
        return dtype(self.precision) if self.precision in NARROW else None

    def lanes(self, bits: int) -> int:
        """Lanes of one full vector register for elements of `bits` bits (at least 1)."""
        return min(self.max_lanes, max(1, self.vector_bits // bits))

    def limit(self, name: str) -> int | None:
        """The limit called `name`, or None when the target has none."""
        return self._limit_of.get(name)  # rules ask it of thousands of tiles

    @property
    def shared_limit(self) -> int | None:
        """Bytes of shared memory for a launch; more than `shared_bytes` where it can ask for them."""
        return self.limit("shared_bytes_asked") or self.limit("shared_bytes")

    @property
    def peak_flops(self) -> float:
        """Multiply-adds of one core in f32, counted as two operations, per second."""
        return 2.0 * self.fma_per_cycle * self.lanes(32) * self.hertz
