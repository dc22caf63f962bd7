"""P20: the same input gives the same bytes, whoever compiles it, where and when."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from compiler.core.files import sha256_file
from tests.promises.promise import Case, Ended, Promise
from tests.promises.shop import shop
from tests.support import command
from tests.support.onnx_models import model

_X = np.zeros((2, 4, 6, 5), np.float32)
_WEIGHTS = np.random.default_rng(0).standard_normal((3, 4, 3, 3)).astype(np.float32)
_UNARY = ("Relu", "Tanh", "Sigmoid", "Exp", "Erf", "Abs", "Floor")


@dataclass(frozen=True, slots=True)
class Around:
    """What is different around a compile: variables, the folder; is_empty: there are no objects at all."""

    name: str
    env: tuple[tuple[str, str], ...] = ()
    umask: int = 0o022
    folder: str = "a"
    is_empty: bool = False


VARIATIONS = (
    Around("hash seed", (("PYTHONHASHSEED", "7"),)),
    Around("time zone", (("TZ", "Pacific/Chatham"),)),
    Around(
        "locale",
        (
            ("LC_ALL", "de_DE.UTF-8"),
            ("LANG", "tr_TR.UTF-8"),
        ),
    ),
    Around("one job", (("TK_JOBS", "1"),)),
    Around("many jobs", (("TK_JOBS", "5"),)),
    Around("path", folder="another folder/with ä space"),
    Around(
        "user",
        (
            ("USER", "somebody"),
            ("LOGNAME", "somebody"),
            ("HOSTNAME", "elsewhere"),
        ),
        umask=0o077,
    ),
    Around("clock", (("SOURCE_DATE_EPOCH", "1"),), folder="old files"),
)


@cache
def _root() -> Path:
    held = tempfile.mkdtemp(prefix="promise-same-")
    atexit.register(shutil.rmtree, held, ignore_errors=True)
    for number, proto in enumerate(_models()):
        onnx.save(proto, Path(held, f"{number}.onnx"))
    return Path(held)


def _models() -> Iterator[onnx.ModelProto]:
    """Ten of one to three operators, of each kind of kernel."""
    for op in _UNARY:
        yield model([helper.make_node(op, ["x"], ["y"])], {"x": _X}, ["y"])
    conv = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])
    yield model([conv, helper.make_node("Relu", ["c"], ["y"])], {"x": _X}, ["y"], {"w": _WEIGHTS})
    yield model(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Softmax", ["p"], ["y"])],
        {"x": _X}, ["y"], {"w": _WEIGHTS.reshape(2, 54)[:, :5].repeat(3, 0)[:5]},
    )  # fmt: skip
    yield model([helper.make_node("ReduceSum", ["x"], ["y"])], {"x": _X}, ["y"])


@cache
def _place(around: Around) -> Path:
    """A folder of a variation, with a cache of its own: of what was compiled elsewhere it has the runtime."""
    place = _root() / str(os.getpid()) / around.name / around.folder
    (place / "tmp").mkdir(parents=True)
    if not around.is_empty:
        shutil.copytree(shop().root / "cache" / "objects", place / "cache" / "objects")
    names = [f"{number}.onnx" for number in range(10)]
    for name in names if around.name != "clock" else reversed(names):  # another order in the folder, too
        shutil.copy(_root() / name, place / name)
        if around.name == "clock":
            os.utime(place / name, (1, 1))
    return place


def _compile(around: Around, number: int) -> dict[str, str]:
    """Digests of a library and of all texts that its compile dumps, by file name."""
    place = _place(around)
    output, dump = place / f"{number}.so", place / f"dump-{number}"
    folders = {"TK_CACHE_DIR": str(place / "cache"), "TMPDIR": str(place / "tmp")}
    argv = [sys.executable, "-m", "toolchain", "compile", f"{number}.onnx", "-o", output.name]
    done = subprocess.run(
        [*argv, "--dump", dump.name],
        cwd=place,
        env=command.environment(folders | dict(around.env)),
        capture_output=True,
        text=True,
        check=False,
        umask=around.umask,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    files = [output, *sorted(path for path in dump.rglob("*") if path.is_file())]
    return {str(path.relative_to(place)): sha256_file(path) for path in files}


@cache
def _plain(number: int) -> dict[str, str]:
    return _compile(Around("nothing"), number)


def _same(around: Around, number: int, _folder: Path) -> Ended:
    plain, other = _plain(number), _compile(around, number)
    if different := sorted(
        name for name in plain.keys() | other.keys() if plain.get(name) != other.get(name)
    ):
        return Ended("different", f"{different[:5]}")
    return Ended(f"the same library and {'texts' if len(plain) > 1 else 'no texts'}")


def cases(_drawn: random.Random) -> Iterator[Case]:
    """Every model in every variation."""
    shop()
    for around in VARIATIONS:
        for number in range(10):
            yield Case(f"{around.name}, model {number}", partial(_same, around, number))
    nothing = Around("empty cache", umask=0o077, folder="elsewhere", is_empty=True)
    yield Case("empty cache", partial(_same, nothing, 0))


PROMISE = Promise(
    name="P20",
    promised="the same input gives the same bytes",
    trials="compiles in other surroundings",
    criterion="library, manifest, sources and all other texts of the stages are the same, byte for byte, "
    "with another hash seed, time zone, locale, number of jobs, folder, user, umask and time",
    least=80,
    share=0.006,
    cases=cases,
)
