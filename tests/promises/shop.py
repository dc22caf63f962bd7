"""Two small models, their libraries, and folders in which a compile of the second replaces the first."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from compiler.core.files import sha256_file
from tests.promises import commands
from tests.promises.commands import Conditions, Ended
from tests.support.disk_faults import leftovers
from tests.support.onnx_models import model


@dataclass(frozen=True, slots=True)
class Shop:
    """What trials start from.

    `old.onnx` was compiled before, `new.onnx` was not: its objects and library are not in the folder `cache`.
    `old.so` and `new.so` are what they become; `memory` keeps what compilers answered.
    """

    root: Path

    @property
    def remembering(self) -> Conditions:
        """Compilers answer from memory."""
        return Conditions(memory=self.root / "memory")

    def library(self, name: str) -> bytes:
        """The bytes of `old` or `new`."""
        return (self.root / f"{name}.so").read_bytes()

    def digests(self) -> dict[str, str]:
        """Which library has which digest."""
        return {sha256_file(self.root / f"{name}.so"): name for name in ("old", "new")}


@dataclass(frozen=True, slots=True)
class Bench:
    """A folder of one trial: the old library lies at `out/m.so`; cache and temporary files are its own."""

    root: Path
    shop: Shop

    @classmethod
    def at(cls, root: Path, shop: Shop) -> Bench:
        """Make one in an empty folder."""
        for name in ("out", "tmp", "state", "data"):
            (root / name).mkdir(parents=True)
        shutil.copytree(shop.root / "cache", root / "cache", copy_function=_linked, ignore=_own_locks)
        shutil.copy(shop.root / "old.so", root / "out" / "m.so")
        return cls(root, shop)

    @property
    def environment(self) -> dict[str, str]:
        """That of its commands."""
        return {
            "TK_CACHE_DIR": str(self.root / "cache"),
            "TMPDIR": str(self.root / "tmp"),
            "XDG_STATE_HOME": str(self.root / "state"),
            "XDG_DATA_HOME": str(self.root / "data"),
        }

    @property
    def compile_new(self) -> list[object]:
        """A command: compile the new model over the old library."""
        return ["compile", self.shop.root / "new.onnx", "-o", self.output]

    @property
    def output(self) -> Path:
        """The library."""
        return self.root / "out" / "m.so"

    def tk(self, args: list[object], conditions: Conditions | None = None, **changes: object) -> Ended:
        """Run a command here, by default with remembered answers of compilers."""
        wanted = conditions or self.shop.remembering
        return commands.tk(args, self.root / "out", self.environment, wanted, **changes)

    def start(self, args: list[object], conditions: Conditions) -> commands.Started:
        """Start a command here."""
        return commands.start(args, self.root / "out", self.environment, conditions)

    def found(self) -> str:
        """Whether the library is `old`, `new`, `none` or something else."""
        if not self.output.exists():
            return "none"
        return self.shop.digests().get(sha256_file(self.output), "neither")

    def litter(self) -> list[str]:
        """What interrupted work left."""
        places = [self.root / name for name in ("out", "tmp", "cache", "state", "data")]
        found = leftovers(*places)
        return sorted(str(path.relative_to(self.root)) for path in {*found, *(self.root / "tmp").iterdir()})


@cache
def shop() -> Shop:
    """That of this process; it goes when the process ends."""
    held = tempfile.TemporaryDirectory(prefix="promise-shop-")
    atexit.register(held.cleanup)
    made = Shop(Path(held.name))
    (made.root / "memory").mkdir()
    for number, name in enumerate(("old", "new")):
        x = np.zeros((3, 8), np.float32)
        weights = np.full((3, 8), 2 + number, np.float32)
        nodes = [helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
        onnx.save(model(nodes[: 1 + number], {"x": x}, ["y" if number else "p"], {"w": weights}),
                  made.root / f"{name}.onnx")  # fmt: skip
    _compile(made, "old", made.root / "cache")
    shutil.copytree(made.root / "cache", made.root / "other", ignore=_own_locks)
    _compile(made, "new", made.root / "other")
    return made


def _compile(made: Shop, name: str, cache_folder: Path) -> None:
    """Compile into a cache which has, of the caller's, only the objects that this needs."""
    common = os.environ.get("TK_CACHE_DIR")
    started = time.time() - 1
    env = {"TK_CACHE_DIR": str(cache_folder)}
    cache_folder.mkdir(exist_ok=True)
    if common and not (cache_folder / "objects").exists():
        (Path(common) / "objects").mkdir(parents=True, exist_ok=True)
        (cache_folder / "objects").symlink_to(Path(common) / "objects")
    words = ["compile", made.root / f"{name}.onnx", "-o", made.root / f"{name}.so"]
    done = commands.tk(words, made.root, env, made.remembering)
    if done.code != 0:
        raise RuntimeError(done.short)
    if (cache_folder / "objects").is_symlink():
        (cache_folder / "objects").unlink()
        for path in (Path(str(common)) / "objects").rglob("*.o"):
            if path.stat().st_mtime >= started:
                place = cache_folder / "objects" / path.relative_to(Path(str(common)) / "objects")
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)


def _own_locks(_folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(".")]
