"""P19: what is in the cache is handed out for the same input, all of it and nothing else."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx

from compiler.core.cache import ContentCache
from compiler.core.compilers import compiled
from compiler.core.settings import load_settings
from compiler.targets.toolchain import find_cxx
from tests.promises import commands
from tests.promises.promise import Case, Ended, Promise
from tests.promises.shop import Bench, shop

_WRAPPER = '#!/bin/sh\nexec {cxx} {added} "$@"\n'


@dataclass(slots=True)
class Compile:
    """A compile that a case changes: its words and variables, in a folder where `m.onnx` is."""

    bench: Bench
    words: list[object]
    env: dict[str, str]

    @property
    def model(self) -> Path:
        """The model, a copy of its own."""
        return self.bench.root / "m.onnx"


Change = Callable[[Compile], object]


def _tried(change: Change, before: Change, *, matters: bool, root: Path) -> Ended:
    """Compile, change something, compile again: the library came from the cache, or it did not."""
    bench = Bench.at(root / "bench", shop())
    shutil.copy(shop().root / "old.onnx", bench.root / "m.onnx")
    one = Compile(bench, ["compile", bench.root / "m.onnx", "-o", bench.output, "--json"], {})
    before(one)
    if fault := _cached(one)[1]:
        return Ended("broken", fault)
    change(one)
    cached, fault = _cached(one)
    if fault:
        return Ended("broken", fault)
    if cached == matters:
        return Ended("stale" if matters else "made again", "the other was expected")
    return Ended("made anew, as it must" if matters else "from the cache, as it may")


def _cached(one: Compile) -> tuple[bool, str]:

    env = one.bench.environment | one.env
    ended = commands.tk(one.words, one.bench.root / "out", env, shop().remembering)
    if ended.code != 0:
        return False, ended.short
    return bool(json.loads(ended.out)["cached"]), ""


def _nothing(_one: Compile) -> None:
    pass


def _wrapper(added: str) -> Change:
    """A compiler that is a text which starts the real one."""

    def change(one: Compile) -> None:
        cxx = find_cxx(load_settings()).path
        path = one.bench.root / "cxx"
        path.write_text(_WRAPPER.format(cxx=cxx, added=added))
        path.chmod(0o755)
        one.env["TK_CXX"] = str(path)

    return change


def _variable(name: str, text: str) -> Change:
    return lambda one: one.env.__setitem__(name, text)


def _words(*words: str) -> Change:
    return lambda one: one.words.extend(words)


def _model(edit: Callable[[onnx.ModelProto], object]) -> Change:
    def change(one: Compile) -> None:
        proto = onnx.load(one.model)
        edit(proto)
        onnx.save(proto, one.model)

    return change


def _weight(proto: onnx.ModelProto) -> None:
    data = bytearray(proto.graph.initializer[0].raw_data)
    data[0] ^= 1
    proto.graph.initializer[0].raw_data = bytes(data)


def _renamed(proto: onnx.ModelProto) -> None:
    proto.graph.node[0].output[0] = proto.graph.output[0].name = "other"


def _moved(one: Compile) -> None:
    path = one.bench.root / "elsewhere" / "other name.onnx"
    path.parent.mkdir()
    one.model.rename(path)
    one.words[1] = path


def _outputs(one: Compile) -> None:
    one.words[one.words.index("-o") + 1] = one.bench.root / "out" / "other.so"


def _damaged(pattern: str) -> Change:
    def change(one: Compile) -> None:
        for path in (one.bench.root / "cache" / "libraries").glob(pattern):
            data = path.read_bytes()
            path.unlink()
            path.write_bytes(data[:-1])

    return change


RELEVANT: dict[str, Change] = {
    "a weight": _model(_weight),
    "a name of an output": _model(_renamed),
    "the operator": _model(lambda proto: setattr(proto.graph.node[0], "op_type", "Add")),
    "the opset": _model(lambda proto: setattr(proto.opset_import[0], "version", 18)),
    "text of the model": _model(lambda proto: setattr(proto, "doc_string", "another")),
    "the model's producer": _model(lambda proto: setattr(proto, "producer_name", "another")),
    "the architecture": _words("--target", "cpu:x86-64-v2"),
    "AVX2 in place of AVX-512": _words("--target", "cpu:x86-64-v3"),
    "one thread": _words("--threads", "1"),
    "two threads": _words("--threads", "2"),
    "a shape": _words("--shape", "x=3,8"),
    "the compiler is a wrapper": _wrapper(""),
    "the compiler adds a flag": _wrapper("-fno-plt"),
    "the compiler adds a macro": _wrapper("-DX=1"),
    "the compiler adds an option": _wrapper("-O1"),
    "COMPILER_PATH": _variable("COMPILER_PATH", "nowhere"),
    "LIBRARY_PATH": _variable("LIBRARY_PATH", "nowhere"),
    "LD_RUN_PATH": _variable("LD_RUN_PATH", "nowhere"),
    "CCC_OVERRIDE_OPTIONS": _variable("CCC_OVERRIDE_OPTIONS", "#"),
    "the library in the cache lacks a byte": _damaged("*.so"),
    "the record in the cache lacks a byte": _damaged("*.json"),
    "another cache": lambda one: one.env.__setitem__("TK_CACHE_DIR", str(one.bench.root / "empty")),
}
"""After each of these the library is another one, or may be."""

IRRELEVANT: dict[str, Change] = {
    "nothing": _nothing,
    "the folder": lambda one: (one.bench.root / "out" / "sub").mkdir(),
    "where the model is, and its name": _moved,
    "the output": _outputs,
    "the model's time": lambda one: os.utime(one.model, (1, 1)),
    "who may read the model": lambda one: one.model.chmod(0o600),
    "TZ": _variable("TZ", "Asia/Tokyo"),
    "LC_ALL": _variable("LC_ALL", "C"),
    "LANG": _variable("LANG", "de_DE.UTF-8"),
    "PYTHONHASHSEED": _variable("PYTHONHASHSEED", "5"),
    "HOSTNAME": _variable("HOSTNAME", "another"),
    "USER": _variable("USER", "another"),
    "HOME": lambda one: one.env.__setitem__("HOME", str(one.bench.root / "tmp")),
    "TERM": _variable("TERM", "dumb"),
    "COLUMNS": _variable("COLUMNS", "200"),
    "TK_JOBS": _variable("TK_JOBS", "1"),
    "TK_THREADS": _variable("TK_THREADS", "3"),
    "TK_CACHE_SIZE": _variable("TK_CACHE_SIZE", "1 GB"),
    "CPATH": _variable("CPATH", "nowhere"),
    "C_INCLUDE_PATH": _variable("C_INCLUDE_PATH", "nowhere"),
    "CPLUS_INCLUDE_PATH": _variable("CPLUS_INCLUDE_PATH", "nowhere"),
    "DEPENDENCIES_OUTPUT": _variable("DEPENDENCIES_OUTPUT", "written"),
    "SUNPRO_DEPENDENCIES": _variable("SUNPRO_DEPENDENCIES", "written"),
    "TMPDIR": lambda one: one.env.__setitem__("TMPDIR", str(one.bench.root / "state")),
    "words for people": lambda one: one.words.remove("--json") or one.words.append("--json"),
}
"""Nothing of this can change a byte of the library."""


def _header(root: Path) -> Ended:
    """A header beside the system's is not found by way of the environment."""
    (root / "stdint.h").write_text("#error another header\n")
    before = os.environ.get("CPATH")
    os.environ["CPATH"] = str(root)
    try:
        cxx = find_cxx(load_settings()).path
        compiled([cxx, "-c", "a.cpp", "-o", "a.o"], {"a.cpp": "#include <stdint.h>\n"}, "a.o", "refused")
    finally:
        if before is None:
            del os.environ["CPATH"]
        else:
            os.environ["CPATH"] = before
    return Ended("not found by the compiler")


def _almost(place: int, root: Path) -> Ended:
    """Keys that agree in all digits but one."""
    key = "0" * 64
    other = f"{key[:place]}1{key[place + 1 :]}"
    cache = ContentCache(root)
    cache.put(key, b"one")
    found = cache.get(other)
    return Ended("another key is a miss") if found is None else Ended("collision", str(found))


def cases(_drawn: random.Random) -> Iterator[Case]:
    """One change each."""
    shop()
    for name, change in RELEVANT.items():
        yield Case(f"matters: {name}", partial(_trial, change, True))
    for place in (0, 15, 16, 63):
        yield Case(f"matters: digit {place} of a key", partial(_almost, place))
    for name, change in IRRELEVANT.items():
        yield Case(f"does not matter: {name}", partial(_trial, change, False))
    yield Case("does not matter: a header that CPATH names", _header)


def _trial(change: Change, matters: bool, root: Path) -> Ended:
    wrapped = any(change is RELEVANT[name] for name in RELEVANT if "adds" in name)
    return _tried(change, _wrapper("") if wrapped else _nothing, matters=matters, root=root)


PROMISE = Promise(
    name="P19",
    promised="the key of the cache has all that matters to a library, and nothing else",
    trials="changes between two compiles",
    criterion="what may change the library makes it anew; what cannot does not",
    least=50,
    share=0.06,
    cases=cases,
)
