"""P5: what a model calls things never gets into code: with any names the sources are the same bytes."""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import onnx

from compiler import TkError
from tests.promises.promise import Case, Ended, Promise
from tests.promises.seeds import SEEDS
from tests.promises.trial import compile_here

TARGETS = ("cpu", "opencl-cpu", "sycl-cpu", "cuda-nvidia", "rocm-amd")
_MODELS = ("function", "branch", "typed lists", "split")
_CANARY = b"the content of a file that no model may put into a library"
_IDENTIFIER = re.compile(rb"[A-Za-z_]\w*")
_LONGEST = 64
_LIBRARIES = 5  # of so many strings one becomes a library, too
_LONG = 1 << 16

_TEXTS = (
    "*/", "/*", "//", "\\", '"', "'", "\n", "\r\n", "\t", "??/", "??'", "%:include <x>", "\\\n", '\\"',
    '#include "{canary}"', '\n#include "{canary}"\n', '*/\n#include "{canary}"\n/*',
    '__asm__(".incbin \\"{canary}\\"");', '*/ __asm__(".incbin \\"{canary}\\""); /*',
    '"); __asm__(".incbin \\"{canary}\\"); ("', ".incbin {canary}", '\n.incbin "{canary}"\n',
    '#embed "{canary}"', "#pragma GCC diagnostic",
    '_Pragma("once")', "#define float double", "#undef __cplusplus",
    '");system("touch {canary}");("', "__attribute__((constructor)) void f(){}", 'R"(', ')"', 'extern "C" {',
    "}", "{", ";", "int", "class", "main", "operator new", "template<", "alignas(0)", "asm", "and", "tk_k0",
    "tk_model_open", "__device__", "__global__ void", "<<<1,1>>>", "barrier(1);", "%s%s%n", "{}", "{0}",
    "{{7*7}}", "{% raw %}", "${HOME}", "$(id)", "`id`", "-o x", "@file", "--", "../../x", "a b", "a,b", "a=b",
    "0", "1e5", "NaN", "true", "\0", "\x01", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u202e", "\u2066",
    "\u200b", "\ufeff", "\ufffe", "\u0301", "\u00fcn\u00efc\u00f6d\u00e9", "\u540d\u524d", "\U0001f4a9",
    "\U000e0041", "A" * 70, "_" * 300,
)  # fmt: skip
_AROUND = ("{}", "x{}", "{}\n", "long {}")
STRINGS: Sequence[str] = tuple(
    (f"{text}{'a' * _LONG}" if around.startswith("long") else around.replace("{}", text))
    for around in _AROUND
    for text in _TEXTS
)[:200]


Rename = Callable[[str], str]


def renamed(model: onnx.ModelProto, text: str) -> onnx.ModelProto:
    """The model with this in each name, doc string, domain of its own and entry of its metadata."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    names: dict[str, str] = {}

    def name_of(old: str) -> str:
        return names.setdefault(old, f"{text}{len(names)}") if old else ""

    made.producer_name = made.producer_version = made.domain = made.doc_string = text
    made.metadata_props.add(key=text, value=text)
    domains = {one.domain for one in made.functions}
    for item in made.opset_import:
        item.domain = text if item.domain in domains else item.domain
    for function in made.functions:
        function.doc_string, function.name, function.domain = text, name_of(function.name), text
        function.input[:] = map(name_of, function.input)
        function.output[:] = map(name_of, function.output)
        _rename_nodes(function.node, name_of, domains, text)
    _rename_graph(made.graph, name_of, domains, text)
    return made


def _rename_graph(graph: onnx.GraphProto, name_of: Rename, domains: set[str], text: str) -> None:
    graph.name = graph.doc_string = text
    graph.metadata_props.add(key=text, value=text)
    for item in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        item.name, item.doc_string = name_of(item.name), text
    _rename_nodes(graph.node, name_of, domains, text)


def _rename_nodes(nodes: Iterable[onnx.NodeProto], name_of: Rename, domains: set[str], text: str) -> None:
    for node in nodes:
        node.name, node.doc_string = name_of(f"node {node.name}"), text
        node.input[:] = map(name_of, node.input)
        node.output[:] = map(name_of, node.output)
        node.metadata_props.add(key=text, value=text)
        if node.domain in domains:
            node.domain, node.op_type = text, name_of(node.op_type)
        for attribute in node.attribute:
            attribute.doc_string = text
            if attribute.HasField("g"):
                _rename_graph(attribute.g, name_of, domains, text)


@cache
def _plain(model: str, target: str) -> Mapping[str, bytes]:
    """The sources of a model whose names are harmless."""
    with tempfile.TemporaryDirectory(prefix="promise-") as folder:
        return _sources(renamed(SEEDS[model](), "v"), target, Path(folder))


def _sources(model: onnx.ModelProto, target: str, folder: Path) -> Mapping[str, bytes]:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    compile_here(path, folder / "out", emit="source", target=target)
    return {one.name: one.read_bytes() for one in sorted((folder / "out").iterdir())}


def _try(model: str, text: str, target: str, linked: bool, folder: Path) -> Ended:
    canary = folder / "canary"
    canary.write_bytes(_CANARY)
    text = text.replace("{canary}", str(canary))
    try:
        made = _sources(renamed(SEEDS[model](), text), target, folder)
        if linked:
            compile_here(folder / "model.onnx", folder / "model.so")
    except TkError as error:
        return Ended("refused", f"refused: {error}")
    fault = _fault(made, _plain(model, target))
    if canary.read_bytes() != _CANARY or {one.name for one in folder.iterdir()} - _MADE:
        fault = fault or "files were written"
    if linked:
        fault = fault or ("its library has the other file" if _CANARY in _library(folder) else "")
        return Ended("the same sources, and no other file in the library", fault)
    return Ended("the same sources", fault)


_MADE = {"canary", "model.onnx", "model.so", "out"}


def _library(folder: Path) -> bytes:
    return (folder / "model.so").read_bytes()


def _fault(made: Mapping[str, bytes], plain: Mapping[str, bytes]) -> str:
    if made != plain:
        return "the sources differ from those of a model with plain names"
    long = {one for text in made.values() for one in _IDENTIFIER.findall(text) if len(one) > _LONGEST}
    return f"identifiers without end: {long}" if long else ""


def _cases(_: random.Random) -> Iterator[Case]:
    for number, text in enumerate(STRINGS):
        model = _MODELS[number % len(_MODELS)]
        for target in TARGETS:
            linked = target == "cpu" and number % _LIBRARIES == 0
            yield Case(f"{target}, string {number}", partial(_try, model, text, target, linked))


PROMISE = Promise(
    name="P5",
    promised="what a model calls things never gets into code",
    trials="models with hostile names, on five targets",
    criterion=(
        "all names, doc strings, domains and metadata are one of 200 strings: the generated sources are "
        "those of plain names byte by byte, their identifiers have at most 64 characters; of every fifth "
        "string a library has nothing of the file that the string names"
    ),
    least=1000,
    share=0.01,
    cases=_cases,
)
