"""Names in a model that command a terminal, forge lines or reverse what is read are shown as escapes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from compiler import BadInputError, cut_numbers, some, visible
from tests.support import command
from tests.support.command import Result
from toolchain import console

Tk = Callable[..., Result]
HOSTILE = "y\x1b[2J\x1b]0;owned\x07\nhint: run `rm`\r\u202e\x9b31m"
SHOWN = "y\\x1b[2J\\x1b]0;owned\\x07\\nhint: run `rm`\\r\\u202e\\x9b31m"


def names_in(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    tensors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)) for name in ("x" + HOSTILE, HOSTILE)
    ]
    graph = helper.make_graph(nodes, "g", tensors[:1], tensors[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plain(text: str) -> bool:
    """Whether a text holds nothing but what prints, and its own lines."""
    return all(one.isprintable() or one == "\n" for one in text) and "\nhint: run" not in text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("hostile")
    node = helper.make_node("Relu", ["x" + HOSTILE], [HOSTILE], name="n" + HOSTILE)
    onnx.save(names_in(node), folder / "model.onnx")
    assert command.tk("compile", "model.onnx", cwd=folder).code == 0
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "model.onnx"),
        ("inspect", "model.so"),
        ("inspect", "model.so", "--kernels"),
        ("run", "model.so"),
        ("verify", "model.so", "--model", "model.onnx", "--layers"),
        ("bench", "model.so", "--seconds", "0.05", "--warmup", "0", "--profile"),
    ],
)
def test_tables_show_escapes(hostile: Path, words: tuple[str, ...]) -> None:
    result = command.tk(*words, cwd=hostile)
    assert result.code == 0, result.err
    assert SHOWN in result.out
    assert plain(result.out)
    assert plain(result.err)


@pytest.mark.parametrize("file", ["model.onnx", "model.so"])
def test_a_page_shows_escapes(hostile: Path, file: str) -> None:
    result = command.tk("view", file, "--no-profile", "-o", "page.html", cwd=hostile)
    assert result.code == 0, result.err
    page = (hostile / "page.html").read_text()
    assert all(one.isprintable() or one == "\n" for one in result.out + page)
    assert SHOWN.partition("\\n")[0] in page


@pytest.mark.parametrize("words", [("inspect", "model.onnx", "--json"), ("run", "model.so", "--json")])
def test_json_keeps_the_names_and_shows_escapes(hostile: Path, words: tuple[str, ...]) -> None:
    result = command.tk(*words, cwd=hostile)
    assert plain(result.out)
    names = [one["name"] for one in result.json["outputs"]]
    assert names == [HOSTILE]


@pytest.mark.parametrize("kind", ["Frobnicate" + HOSTILE, "MatMul"])
def test_errors_show_escapes(tk: Tk, tmp_path: Path, kind: str) -> None:
    onnx.save(
        names_in(helper.make_node(kind, ["x" + HOSTILE] * 2, [HOSTILE], name="n" + HOSTILE)),
        tmp_path / "m.onnx",
    )
    for words in (("compile", "m.onnx"), ("inspect", "m.onnx")):
        result = tk(*words)
        assert result.code == 3
        assert "\\x1b[2J" in result.err + result.out
        assert plain(result.err)
        assert plain(result.out)


def test_an_unknown_input_shows_escapes(tk: Tk, hostile: Path) -> None:
    result = tk("compile", hostile / "model.onnx", "--shape", "z=1")
    assert result.code == 2
    assert plain(result.err)
    result = tk("run", hostile / "model.so", "--input", "z\x1b[2J=nowhere.npy")
    assert result.code in (2, 3)
    assert plain(result.err)


def test_a_file_whose_name_is_no_text(tk: Tk) -> None:
    result = tk("compile", "x\udcff\x1b[2J.onnx", "--json")
    assert (result.code, plain(result.err), plain(result.out)) == (3, True, True)
    assert result.json["error"]["where"] == "x\\udcff\\x1b[2J.onnx"


@given(st.text())
def test_what_is_shown_prints(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(visible(text)) == visible(text)
    assert all(one.isprintable() or one in "\n\t" for one in visible(text, keep="\n\t"))


@given(st.text())
def test_json_is_the_same_text(text: str) -> None:
    written: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "verbatim", written.append)
        console.data_json({"a": text})
    assert json.loads(written[0]) == {"a": text}
    assert plain(written[0])


def test_lists_of_numbers_are_cut() -> None:
    long = ", ".join(map(str, range(1000)))
    assert cut_numbers(f"got [{long}]") == "got [0, 1, 2, 3, 4, 5, 6, 7 ... 992 more]"
    assert cut_numbers(f"got ({long.replace(', ', ',')},)") == "got (0,1,2,3,4,5,6,7 ... 992 more,)"
    assert cut_numbers("[" + " ".join(["1.5e-3"] * 20) + "]").endswith("1.5e-3 ... 12 more]")
    short = "got [" + ", ".join(map(str, range(15))) + "]"
    assert cut_numbers(short) == short
    assert cut_numbers("1" * 10**6) == "1" * 10**6


def test_lists_of_names_are_cut() -> None:
    assert some(["a", "b\n"]) == "a, b\\n"
    assert some(range(20), most=3) == "0, 1, 2 and 17 more"


def test_every_part_of_an_error_is_cut_and_escaped() -> None:
    long = str(list(range(100)))
    error = BadInputError(f"w{long}\n", where=f"w{long}\n", why=f"w{long}\nx\x1b", hint=f"w{long}")
    assert error.lines() == [
        "error: w[0, 1, 2, 3, 4, 5, 6, 7 ... 92 more]\\n",
        "where: w[0, 1, 2, 3, 4, 5, 6, 7 ... 92 more]\\n",
        "why: w[0, 1, 2, 3, 4, 5, 6, 7 ... 92 more]\nx\\x1b",
        "hint: w[0, 1, 2, 3, 4, 5, 6, 7 ... 92 more]",
    ]


def test_a_shape_of_many_dimensions_is_cut() -> None:
    assert console.shape((1,) * 40) == "1x1x1x1x1x1x1x1x1x1x1x1x...(40 dimensions)"


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_table_fits_the_terminal(columns: int) -> None:
    rows = [("sycl-nvidia", "NVIDIA GPUs, SYCL", "cuda-11.8.0+dpcpp-2022-12", 12345), ("a" * 50, "b", "", 1)]
    lines = console.table(("target", "for", "image", "bytes"), rows, columns).splitlines()
    assert max(map(len, lines)) <= columns
    assert "12,345" in lines[1]
    assert "".join(line[: lines[0].index("for")].strip() for line in lines[1:]).endswith("a" * 50)


def test_a_table_is_whole_where_there_is_room() -> None:
    rows = [("NVIDIA GPUs, SYCL", 1)]
    assert console.table(("for", "n"), rows, 80) == console.table(("for", "n"), rows)
