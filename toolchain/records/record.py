"""A record: one network tried once on one target, with all that is needed to believe it and to repeat it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

LONGEST_LOG = 64 * 1024
"""Characters of a log that a record keeps: its beginning and its end."""


class State(StrEnum):
    """How a trial ended."""

    VERIFIED = "verified"  # outputs equal the reference's, on a device of the target
    EMULATED = "emulated"  # the same, in the emulator
    EMULATED_UNCHECKED = "emulated-unchecked"  # the same, where the emulator watches no access
    MEASURED = "measured"  # timed, compared with nothing
    COMPILED_ONLY = "compiled-only"  # a library was made; no device to run it on, or it was not asked for
    WRONG = "wrong"
    UNSUPPORTED = "unsupported"
    COMPILE_FAILED = "compile-failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed-out"
    OUT_OF_MEMORY = "out-of-memory"
    OUT_OF_DISK = "out-of-disk"  # more was written than a trial may; a full disk is `not-run`
    NOT_RUN = "not-run"


PASSED = frozenset(
    {State.VERIFIED, State.EMULATED, State.EMULATED_UNCHECKED, State.MEASURED, State.COMPILED_ONLY}
)
FAILED = frozenset(State) - PASSED - {State.NOT_RUN}


class _Document(BaseModel):
    """A part of a record: frozen, and without fields that this version does not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, ser_json_inf_nan="strings"
    )

    @model_validator(mode="before")
    @classmethod
    def _in_utf8(cls, values: Any) -> Any:
        """Bytes of file names and logs that are no UTF-8 are spelled out: JSON has no place for them."""
        return _spelled(values)


def _spelled(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _spelled(one) for key, one in value.items()}
    return tuple(map(_spelled, value)) if isinstance(value, (list, tuple)) else value


class Subject(_Document):
    """The model that was tried: its network in the zoo, or the file's own name, and its content.

    revision: of the ONNX model zoo (`mnist-8`), or empty. model: the path as it was given.
    """

    network: str
    family: str = ""
    revision: str = ""
    model: str = ""
    model_sha256: str = ""


class Place(_Document):
    """Where and how it was tried.

    device: what runs the kernels, in its driver's words; empty for this machine's cores. selector: how
    `--device` names it, known also where nothing ran; empty: the first that fits. image: of a container;
    empty on the machine itself. worker: `here`, an engine's address, or a worker's name.
    """

    target: str
    arch: str = ""
    device: str = ""
    selector: str = ""
    threads: int | None = None
    precision: Literal["f32", "tf32x3", "tf32", "f16", "bf16"] = "f32"
    image: str = ""
    worker: str = "here"
    machine: str = ""


class Versions(_Document):
    """What made the result; each is a text that changes when the thing does. Empty: not known or not used."""

    tk: str = ""
    tk_sha256: str = ""
    toolchain: str = ""
    driver: str = ""
    reference: str = ""
    system: str = ""
    python: str = ""


class Accuracy(_Document):
    """The worst element of the worst output; `needed` and `tolerance` are parts of the output's scale."""

    reference: str
    output: str
    where: tuple[int, ...]
    actual: float
    expected: float
    needed: float
    tolerance: float
    problem: str = ""


class Latency(_Document):
    """Milliseconds of one inference. `low_ms` to `high_ms` is the 95 % confidence interval of the median.

    engine: `tk`, or whose time it is. spread: (p90 - p10) / p50. noisy: why the machine was too uneasy for
    the numbers to decide anything; empty where it was not.
    """

    engine: str = "tk"
    p50_ms: float
    p90_ms: float
    p99_ms: float
    low_ms: float
    high_ms: float
    spread: float
    runs: int
    threads: int | None = None
    per_second: float | None = None
    noisy: str = ""


class DeviceState(_Document):
    """What the machine said of itself at the time; None where it does not tell."""

    clock_mhz: float | None = None
    temperature_c: float | None = None
    load: float | None = None


class UnsupportedOperator(_Document):
    """An operator that cannot be compiled: how many nodes, and why."""

    operator: str
    count: int
    why: str


class KnownCause(_Document):
    """A known issue of `recipes/issues` that the log shows."""

    issue: str
    cause: str
    action: str


class Record(_Document):
    """One trial.

    schema_version: one that knows more fields gets the next number. id: unique, sorts by time. run: what
    started it; records of one `tk matrix run` share it. key: of all inputs; another trial with the same key
    need not be made. seconds: by step. command: repeats it. baselines: other engines, timed in turns with
    ours.
    """

    schema_version: Literal[1] = 1
    id: Annotated[str, Field(pattern=r"^[0-9]{8}T[0-9]{12}-[0-9a-f]{8}$")]
    kind: Literal["cell", "bench"]
    run: str = ""
    key: str = ""
    when: AwareDatetime
    state: State
    why: str = ""
    subject: Subject
    place: Place
    versions: Versions = Versions()
    seconds: dict[str, float] = {}
    accuracy: Accuracy | None = None
    latency: Latency | None = None
    baselines: tuple[Latency, ...] = ()
    before: DeviceState = DeviceState()
    after: DeviceState = DeviceState()
    library_bytes: int | None = None
    library_sha256: str = ""
    peak_memory: int | None = None
    operators: tuple[UnsupportedOperator, ...] = ()
    causes: tuple[KnownCause, ...] = ()
    command: tuple[str, ...] = ()
    log: str = ""


def shortened_log(text: str) -> str:
    """The beginning and the end of a log that is longer than what a record keeps."""
    if len(text) <= LONGEST_LOG:
        return text
    half = LONGEST_LOG // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"
