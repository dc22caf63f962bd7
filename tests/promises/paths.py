"""P9: what a model names outside of its folder is neither read nor written.

Each vector is a path by which CVEs of ONNX (2022-25882, 2024-27318, 2024-5187, 2026-27489, -34446, -34447)
and others of their kind left a folder: `..`, absolute paths, links, devices, encodings. It stands where a
model can name a file, and a file outside is watched for being opened.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler import BadInputError
from compiler.frontend.external import ExternalData
from tests.promises.promise import Case, Ended, Promise
from tests.promises.trial import attempt, compile_here
from tests.promises.watch import Watch
from toolchain.tensors import write_outputs

_COUNT = 64
_RACES = 200
_SECONDS, _MEMORY = 5.0, 1 << 30

_Setup = Callable[[Path, Path], object]
"""Makes in a model's folder what a vector needs; it is given the file outside, too."""


def _nothing(folder: Path, canary: Path) -> None:
    """Many paths need nothing to be there."""


def _link(name: str, folder: Path, canary: Path) -> None:
    (folder / name).symlink_to(canary)


def _relative_link(name: str, folder: Path, canary: Path) -> None:
    (folder / name).symlink_to(Path("..") / "outside" / canary.name)


def _folder_link(name: str, folder: Path, canary: Path) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).symlink_to(canary.parent)


def _chain(folder: Path, canary: Path) -> None:
    (folder / "first").symlink_to("second")
    (folder / "second").symlink_to(canary)


def _loop(folder: Path, canary: Path) -> None:
    (folder / "loop").symlink_to("loop")


def _hard(folder: Path, canary: Path) -> None:
    (folder / "hard").hardlink_to(canary)


def _subfolder(folder: Path, canary: Path) -> None:
    (folder / "sub").mkdir()


def _sibling(folder: Path, canary: Path) -> None:
    evil = folder.with_name("model_evil")
    evil.mkdir()
    (evil / "data").symlink_to(canary)


def _pipe(folder: Path, canary: Path) -> None:
    os.mkfifo(folder / "pipe")


def _socket(folder: Path, canary: Path) -> None:
    """A socket's file; its path is longer than a socket's may be, so it is made from inside."""
    with socket.socket(socket.AF_UNIX) as one:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        one.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)


OUTSIDE: Mapping[str, tuple[str, _Setup]] = MappingProxyType({
    "parent": ("../outside/canary", _nothing),
    "parent from dot": ("./../outside/canary", _nothing),
    "parent after a name": ("a/../../outside/canary", _nothing),
    "parent after a folder": ("sub/../../outside/canary", _subfolder),
    "parent after two": ("sub/./.././../outside/canary", _subfolder),
    "many parents": ("../" * 40 + "etc/passwd", _nothing),
    "parent with a slash after it": ("../outside/canary/", _nothing),
    "absolute": ("{outside}/canary", _nothing),
    "absolute with two slashes": ("/{outside}/canary", _nothing),
    "root of a process": ("/proc/self/root{outside}/canary", _nothing),
    "folder of a process": ("/proc/self/cwd/../outside/canary", _nothing),
    "open file of a process": ("/proc/self/fd/0", _nothing),
    "environment of a process": ("/proc/self/environ", _nothing),
    "memory of a process": ("/proc/self/mem", _nothing),
    "device": ("/dev/zero", _nothing),
    "input of a process": ("/dev/stdin", _nothing),
    "URL": ("file://{outside}/canary", _nothing),
    "home": ("~/../../../{outside}/canary", _nothing),
    "variable": ("$PWD/../outside/canary", _nothing),
    "backslashes": ("..\\outside\\canary", _nothing),
    "drive": ("C:\\outside\\canary", _nothing),
    "NUL": ("../outside/canary\0.bin", _nothing),
    "percent": ("%2e%2e/outside/canary", _nothing),
    "wide dots": ("\uff0e\uff0e/outside/canary", _nothing),
    "four dots": ("....//outside/canary", _nothing),
    "newline": ("data\n../outside/canary", _nothing),
    "blank": ("../outside/canary ", _nothing),
    "link": ("link", partial(_link, "link")),
    "relative link": ("link", partial(_relative_link, "link")),
    "linked folder": ("linked/canary", partial(_folder_link, "linked")),
    "folder linked below": ("a/b/linked/canary", partial(_folder_link, "a/b/linked")),
    "linked folder and back": ("linked/../outside/canary", partial(_folder_link, "linked")),
    "chain of links": ("first", _chain),
    "circle of links": ("loop", _loop),
    "hard link": ("hard", _hard),
    "sibling with our name in front": ("../model_evil/data", _sibling),
    "address marker": ("*/_ORT_MEM_ADDR_/*", _nothing),
    "empty": ("", _nothing),
    "dot": (".", _nothing),
    "parent alone": ("..", _nothing),
    "folder": ("sub", _subfolder),
    "pipe": ("pipe", _pipe),
    "socket": ("socket", _socket),
    "long": ("../outside/" + "c" * 5000, _nothing),
    "deep": ("a/" * 4000 + "../" * 4001 + "outside/canary", _nothing),
})  # fmt: skip


def _inside(name: str, folder: Path, canary: Path) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_random_floats(1).tobytes())


INSIDE: Mapping[str, tuple[str, _Setup]] = MappingProxyType({
    "beside": ("data", partial(_inside, "data")),
    "dot in front": ("./data", partial(_inside, "data")),
    "below": ("sub/data", partial(_inside, "sub/data")),
    "below with two slashes": ("sub//data", partial(_inside, "sub/data")),
})  # fmt: skip
"""What must work, else nothing that is refused would show anything."""

_FORGIVEN = {"hard link": {"opened"}}
"""Only what is opened can be seen to have a second name; nothing of it is read."""


def _random_floats(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).random(_COUNT, np.float32)


def _external(name: str, location: str) -> TensorProto:
    """A tensor whose bytes are in another file."""
    made = TensorProto(name=name, dims=[_COUNT], data_type=TensorProto.FLOAT)
    made.data_location = TensorProto.EXTERNAL
    made.external_data.add(key="location", value=location)
    return made


def _initializer(location: str) -> onnx.ModelProto:
    return _model([helper.make_node("Add", ["x", "w"], ["y"])], initializer=[_external("w", location)])


def _sparse(location: str) -> onnx.ModelProto:
    made = _model([helper.make_node("Add", ["x", "w"], ["y"])])
    indices = numpy_helper.from_array(np.arange(_COUNT), "indices")
    made.graph.sparse_initializer.add(values=_external("w", location), indices=indices, dims=[_COUNT])
    return made


def _constant_node(location: str) -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["w"], value=_external("", location))


def _constant(location: str) -> onnx.ModelProto:
    return _model([_constant_node(location), helper.make_node("Add", ["x", "w"], ["y"])])


def _subgraph(location: str) -> onnx.ModelProto:
    def branch(name: str, *tensors: TensorProto) -> onnx.GraphProto:
        node = helper.make_node("Add", ["x", tensors[0].name if tensors else "x"], [name])
        return helper.make_graph([node], name, [], [_info(name)], tensors)

    yes = numpy_helper.from_array(np.ones((), bool), "yes")
    chosen, other = branch("a", _external("w", location)), branch("b")
    return _model(
        [helper.make_node("If", ["yes"], ["y"], then_branch=chosen, else_branch=other)], initializer=[yes]
    )


def _function(location: str) -> onnx.ModelProto:
    body = [_constant_node(location), helper.make_node("Add", ["a", "w"], ["b"])]
    made = _model([helper.make_node("Body", ["x"], ["y"], domain="own")])
    made.functions.append(
        helper.make_function("own", "Body", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    )
    made.opset_import.append(helper.make_opsetid("own", 1))
    return made


CARRIERS: Mapping[str, Callable[[str], onnx.ModelProto]] = MappingProxyType({
    "initializer": _initializer, "sparse": _sparse, "constant": _constant, "subgraph": _subgraph,
    "function": _function,
})  # fmt: skip


def _info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [_COUNT])


def _model(nodes: list[onnx.NodeProto], initializer: list[TensorProto] | None = None) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [_info("x")], [_info("y")], initializer)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


# ---------------------------------------------------------------- trials


def _read(vector: str, carrier: str, folder: Path) -> Ended:
    """Compile a model that names the path, and look for the other file's bytes in the library."""
    location, setup = {**OUTSIDE, **INSIDE}[vector]
    model, canary = _prepared(folder, location, setup, CARRIERS[carrier])
    library = folder / "out" / "model.so"

    def read() -> None:
        with contextlib.suppress(BadInputError):
            compiler.external_files(model)
        compile_here(model, library)

    with Watch(canary) as watch:
        ended = attempt(read, seconds=_SECONDS, memory=_MEMORY)
        seen = watch.seen() - _FORGIVEN.get(vector, set())
    made = library.read_bytes() if library.exists() else b""
    fault = ended.broken(_SECONDS, _MEMORY) or _touched(folder, canary, seen)
    if _random_floats(0).tobytes()[:32] in made:
        fault = fault or "the library has the bytes of the file outside"
    if vector in INSIDE and carrier != "sparse":
        fault = fault or ("" if _random_floats(1).tobytes() in made else f"not read: {ended.says}")
    elif not fault and ended.code == 0:
        fault = "it was compiled"
    return Ended("refused" if ended.code == 3 else "read inside of the folder", fault)


def _write(vector: str, carrier: str, folder: Path) -> Ended:
    """Let the path name all in a model that is fine, and write stages, sources and outputs of it."""
    path, _ = {**OUTSIDE, **INSIDE}[vector]
    model, canary = _prepared(folder, "data", partial(_inside, "data"), partial(_named, carrier, path))
    out = folder / "out"

    def write() -> None:
        write_outputs(out / "run", {path: np.zeros(2), f"{path}x": np.zeros(2)}, "npy")
        write_outputs(out / "zip", {path: np.zeros(2)}, "npz")
        compile_here(model, out / "sources", emit="source", dump=out / "dump")

    with Watch(canary) as watch:
        ended = attempt(write, seconds=_SECONDS, memory=_MEMORY)
        seen = watch.seen()
    fault = ended.broken(_SECONDS, _MEMORY) or _touched(folder, canary, seen)
    if not (out / "run" / "outputs.json").is_file() or (
        ended.code != 0 and carrier != "sparse" and path.isprintable() and path
    ):
        fault = fault or f"nothing was written: {ended.says}"
    return Ended("written inside of the folder" if ended.code == 0 else "refused", fault)


def _named(carrier: str, path: str, location: str) -> onnx.ModelProto:
    """A model in which everything bears the path as its name."""
    made = CARRIERS[carrier](location)
    made.graph.name = made.producer_name = made.doc_string = path
    for number, node in enumerate(made.graph.node):
        node.name = f"{path}{number or ''}"
    if path:
        made.graph.node[-1].output[0] = made.graph.output[0].name = path
    return made


def _prepared(
    folder: Path, location: str, setup: _Setup, make: Callable[[str], onnx.ModelProto]
) -> tuple[Path, Path]:
    """A model in a folder of its own, and a file outside."""
    (folder / "model").mkdir()
    (folder / "outside").mkdir()
    (folder / "out").mkdir()
    canary = folder / "outside" / "canary"
    canary.write_bytes(_random_floats(0).tobytes())
    setup(folder / "model", canary)
    model = folder / "model" / "model.onnx"
    made = make(location.replace("{outside}", str(canary.parent)))
    model.write_bytes(made.SerializeToString())
    return model, canary


def _touched(folder: Path, canary: Path, seen: set[str]) -> str:
    """What happened outside of the folders of the model and of what is made."""
    if seen:
        return f"the file outside was {', '.join(sorted(seen))}"
    if canary.read_bytes() != _random_floats(0).tobytes():
        return "the file outside is another one"
    known = {"model", "outside", "out", "model_evil"}
    extra = {path.name for path in folder.iterdir()} - known
    extra |= {path.name for path in canary.parent.iterdir()} - {canary.name}
    return f"files outside: {', '.join(sorted(extra))}" if extra else ""


# ---------------------------------------------------------------- races


def _race(seed: int, folder: Path) -> Ended:
    """Read a path whose file or folder another thread exchanges for a link to the outside."""
    drawn = random.Random(seed)
    name = drawn.choice(["canary", "sub/canary"])
    _, canary = _prepared(folder, name, partial(_inside, name), _initializer)
    model = folder / "model"
    with Watch(canary) as watch, _exchanged(model / Path(name).parts[0], canary):
        found = [_read_once(model, name) for _ in range(drawn.randrange(20, 60))]
        seen = watch.seen()
    fault = f"the file outside was {', '.join(sorted(seen))}" if seen else ""
    if set(found) - {None, _random_floats(1).tobytes()}:
        fault = "other bytes were read"
    return Ended("raced, read now and then" if any(found) else "raced, always refused", fault)


@contextlib.contextmanager
def _exchanged(part: Path, canary: Path) -> Iterator[None]:
    """While the block runs, a file or folder is now and then a link to that of the same name outside."""
    other, held = part.with_name("other"), part.with_name("held")
    other.symlink_to(canary.parent if part.is_dir() else canary)
    over = threading.Event()

    def exchange() -> None:
        while not over.is_set():
            part.rename(held)
            other.rename(part)
            part.rename(other)
            held.rename(part)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _read_once(model: Path, name: str) -> bytes | None:
    try:
        return bytes(ExternalData(model).read(name, 0, 4 * _COUNT, "w"))
    except BadInputError:
        return None


def _cases(drawn: random.Random) -> Iterator[Case]:
    for vector in (*OUTSIDE, *INSIDE):
        for carrier in CARRIERS:
            yield Case(f"read {vector}, {carrier}", partial(_read, vector, carrier))
            yield Case(f"write {vector}, {carrier}", partial(_write, vector, carrier))
    for number in range(_RACES):
        yield Case(f"race {number}", partial(_race, drawn.randrange(1 << 32)))


PROMISE = Promise(
    name="P9",
    promised="nothing outside of a model's folder is read or written",
    trials="paths in models and races",
    criterion=(
        "a file outside, watched through the kernel, is not opened and not changed, none appears there, its "
        "bytes are in no library; paths inside work; one hard link is opened to be seen as such"
    ),
    least=600,
    share=0.02,
    cases=_cases,
)
