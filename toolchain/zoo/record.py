"""What the zoo knows about one network, as data: importing this needs neither numpy nor onnx."""

from __future__ import annotations

from dataclasses import dataclass

UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True)
class Original:
    """Where one revision of the trained model lies in the ONNX model zoo.

    `path` is relative to the repository's `validated` folder. `sha256` is 64 hexadecimal digits as the model
    zoo's own manifest states them, or `unresolved` when no statement of it was found; it is never computed
    here.
    """

    path: str
    sha256: str = UNRESOLVED
    size_bytes: int = 0

    @property
    def name(self) -> str:
        """What the model zoo calls this revision: `mnist-8`; the number is the operator set's."""
        return self.path.rpartition("/")[2].removesuffix(".onnx")


@dataclass(frozen=True, slots=True)
class Network:
    """One network: how it is built, what goes in, and what is published about it.

    `builder` names an entry of the table in `toolchain.zoo.build`, `arguments` are its keyword arguments.
    `inputs` maps an input's name to its dimensions. Those in `choices` are int64, one of so many from 0 on
    (a token, a truth value); the others are float32. `gflop` counts multiply and add as two,
    over convolutions and matrix products, batch 1; `parameters` counts trained values (weights, biases,
    normalisation scale and shift). `logit_gain` scales the last layer's weights, so that random weights still
    give a softmax that is neither flat nor one-hot. `source` says where the architecture comes from.
    `original` is the trained model that `fetch` gets by the network's name, `revisions` are others that are
    got by their own. `exporter` is the program that wrote the model, where it was no builder of ours; then
    dimensions of inputs may be symbols, and `free` has sizes for each of them, with which the model is
    compared: the first of every symbol together, the second, and so on.
    """

    name: str
    family: str
    builder: str
    inputs: tuple[tuple[str, tuple[int | str, ...]], ...]
    source: str
    arguments: tuple[tuple[str, int | str | bool], ...] = ()
    gflop: float | None = None
    parameters: int | None = None
    logit_gain: float = 1.0
    original: Original | None = None
    revisions: tuple[Original, ...] = ()
    choices: tuple[tuple[str, int], ...] = ()
    exporter: str = ""
    free: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def originals(self) -> tuple[Original, ...]:
        """Every revision of the trained model that is known."""
        return (*(() if self.original is None else (self.original,)), *self.revisions)

    @property
    def sizes(self) -> tuple[dict[str, int], ...]:
        """Values for all symbols of `inputs`, as often as there are sizes."""
        names = [name for name, _ in self.free]
        return tuple(
            dict(zip(names, row, strict=True)) for row in zip(*(row for _, row in self.free), strict=True)
        )
