"""Files that are no ONNX models but are often handed in for one: what each is, and how it becomes one.

Recognised by their first bytes, not by their names: these may say anything.
"""

from __future__ import annotations

import io
import json
import shlex
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.core.diagnostics import BadInputError
from compiler.frontend.exports import INPUT, export_words

_LARGEST_POINTER = 1024  # bytes, of Git LFS, by its specification
_MOST_NAMES = 100_000  # of an archive that is looked into
_LARGEST_HEADER = 100_000_000  # bytes, of safetensors, by its own reader


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of files: what one is, and what to do with it to get an ONNX model.

    export: its name among those that programs export, else empty.
    """

    is_a: str
    hint: Callable[[Path], str]
    export: str = ""
    why: str = ""


def refuse_foreign(data: bytes, path: Path) -> None:
    """Raise BadInputError, with how to get an ONNX model, when `data` is of another kind that is known."""
    kind = _kind_of(data)
    if kind is not None:
        raise _refusal(kind, path)


def exportable(path: Path) -> str:
    """Which kind of `compiler.frontend.exports` a file is, by its bytes.

    Raises BadInputError for any other one, with how it becomes an ONNX model where that is known.
    """
    try:
        kind = _kind_of(path.read_bytes())
    except OSError as error:
        raise BadInputError(
            "the file cannot be read", where=str(path), why=error.strerror or str(error)
        ) from error
    if kind is None:
        raise BadInputError(
            "this is no file of torch.export, TorchScript or TensorFlow Lite",
            where=str(path),
            hint=f"an ONNX model is compiled as it is: `{shlex.join(('tk', 'compile', str(path)))}`",
        )
    if not kind.export:
        raise _refusal(kind, path)
    return kind.export


def _kind_of(data: bytes) -> _Kind | None:
    found = (recognise(data) for recognise in (_by_text, _by_signature, _by_archive, _safetensors))
    return next((kind for kind in found if kind is not None), None)


def _refusal(kind: _Kind, path: Path) -> BadInputError:
    return BadInputError(kind.is_a, where=str(path), why=kind.why, hint=kind.hint(path))


# ---------------------------------------------------------------- hints


def _always(hint: str) -> Callable[[Path], str]:
    return lambda _: hint


def _tf2onnx(option: str) -> Callable[[Path], str]:
    def hint(path: Path) -> str:
        words = ("python", "-m", "tf2onnx.convert", option, str(path), "--output", str(onnx_beside(path)))
        return f"convert it (pip install tf2onnx tensorflow): `{shlex.join(words)}`"

    return hint


def _import(kind: str, packages: str, *options: str) -> Callable[[Path], str]:
    """Our command, and the one that it runs."""

    def hint(path: Path) -> str:
        ours = shlex.join(("tk", "import", str(path), *options))
        command = shlex.join(("python", *export_words(kind, path, onnx_beside(path))))
        return f"export it with `{ours}` (pip install {packages}), which runs: `{command}`"

    return hint


def _torch_state(path: Path) -> str:
    return (
        "export the model where its class is, in Python: "
        f"`model.load_state_dict(torch.load({json.dumps(str(path))}))` where the file holds weights, then "
        f"`torch.onnx.export(model.eval(), (example_input,), {json.dumps(str(onnx_beside(path)))})`"
    )


def _optimum(path: Path) -> str:
    words = ("optimum-cli", "export", "onnx", "--model", str(path.parent), f"{path.stem}-onnx")
    return (
        "export the model that the weights are for: `torch.onnx.export(model.eval(), (example_input,), "
        f"{json.dumps(str(onnx_beside(path)))})`; one of Hugging Face from its folder "
        f"(pip install optimum-onnx): `{shlex.join(words)}`"
    )


def onnx_beside(path: Path) -> Path:
    """What the model of a file is called."""
    return path.with_suffix(".onnx") if path.suffix != ".onnx" else path.with_suffix(".exported.onnx")


# ---------------------------------------------------------------- kinds

_EMPTY = _Kind(
    "the file is empty", _always("copy or export it again: a copy may have been interrupted, or a disk full")
)
_POINTER = _Kind(
    "this is a pointer of Git LFS, not the file that it stands for",
    lambda path: (
        f"fetch the file, in its repository: `{shlex.join(('git', 'lfs', 'pull', '--include', path.name))}`"
    ),
)
_PAGE = _Kind(
    "this is a web page, not an ONNX model",
    _always("download the file itself, not the page about it (on GitHub `Raw`, on Hugging Face `resolve`)"),
)
_TORCH_STATE = _Kind(
    "this is a PyTorch file (pickled weights or a module), not an ONNX model",
    _torch_state,
    why="to read pickled objects is to run the program in them, so tk does not; nor does it hold the network",
)
_TORCH_SCRIPT = _Kind(
    "this is a TorchScript program, not an ONNX model",
    _import("torchscript", "torch onnxscript", "--shape", f"{INPUT.name}={','.join(map(str, INPUT.shape))}"),
    "torchscript",
)
_TORCH_EXPORT = _Kind(
    "this is a program of torch.export, not an ONNX model",
    _import("torch-export", "torch onnxscript"),
    "torch-export",
)
_KERAS = _Kind("this is a Keras model, not an ONNX model", _tf2onnx("--keras"))
_TFLITE = _Kind(
    "this is a TensorFlow Lite model, not an ONNX model", _import("tflite", "tf2onnx tensorflow"), "tflite"
)
_SAFETENSORS = _Kind(
    "this is a file of weights (safetensors), without the network that they belong to", _optimum
)
_ORT = _Kind(
    "this is a model in the ORT format of onnxruntime, not an ONNX model",
    _always("use the ONNX file that it was made from"),
)
_GGUF = _Kind(
    "this is a GGUF file of llama.cpp, not an ONNX model",
    _always(
        "export the original model (pip install optimum-onnx): `optimum-cli export onnx --model NAME DIR`"
    ),
)
_ZIP = _Kind(
    "this is a zip archive, not an ONNX model",
    lambda path: f"unpack it: `{shlex.join(('unzip', str(path)))}`",
)
_PACKED = _Kind(
    "this is a compressed file, not an ONNX model",
    lambda path: f"unpack it: `{shlex.join(('tar', 'xf', str(path)))}`, or gzip, xz, bzip2 or zstd with -d",
)
_LIBRARY = _Kind(
    "this is a program or library (ELF), not an ONNX model",
    _always("a library that tk made goes to `tk run`, `tk verify`, `tk bench` or `tk inspect`"),
)

# ---------------------------------------------------------------- how each is recognised

_BEGINNINGS: Sequence[tuple[bytes, _Kind]] = (
    (b"\x89HDF\r\n\x1a\n", _KERAS),
    (b"GGUF", _GGUF),
    (b"\x7fELF", _LIBRARY),
    (b"\x1f\x8b", _PACKED),
    (b"\xfd7zXZ\x00", _PACKED),
    (b"BZh91AY&SY", _PACKED),
    (b"\x28\xb5\x2f\xfd", _PACKED),
)
_FLATBUFFERS: Sequence[tuple[bytes, _Kind]] = ((b"TFL3", _TFLITE), (b"ORTM", _ORT))
_PICKLES = tuple(bytes((0x80, version)) for version in range(2, 6))
_INSIDE: Sequence[tuple[Callable[[str], bool], _Kind]] = (
    # In this order: programs have pickled weights in them, too.
    (lambda name: name in ("archive_format", "serialized_exported_program.json"), _TORCH_EXPORT),
    (lambda name: name.startswith("code/"), _TORCH_SCRIPT),
    (lambda name: name == "data.pkl", _TORCH_STATE),
    (lambda name: name == "model.weights.h5", _KERAS),
)


def _by_text(data: bytes) -> _Kind | None:
    if not data:
        return _EMPTY
    if len(data) <= _LARGEST_POINTER and data.startswith(b"version https://git-lfs.github.com/spec/"):
        return _POINTER
    return _PAGE if data[:256].lstrip().lower().startswith((b"<!doctype html", b"<html")) else None


def _by_signature(data: bytes) -> _Kind | None:
    for sign, kind in _BEGINNINGS:
        if data.startswith(sign):
            return kind
    for sign, kind in _FLATBUFFERS:
        if data[2:8] == b"\0\0" + sign:  # behind an offset below 2**16, which tells it from protobuf
            return kind
    return _TORCH_STATE if data.startswith(_PICKLES) else None


def _by_archive(data: bytes) -> _Kind | None:
    if not data.startswith(b"PK\x03\x04"):
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            # All of PyTorch's lie in one folder.
            names = [name.partition("/")[2] or name for name in archive.namelist()[:_MOST_NAMES]]
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        return _ZIP
    return next((kind for sign, kind in _INSIDE if any(map(sign, names))), _ZIP)


def _safetensors(data: bytes) -> _Kind | None:
    """Eight bytes of length, then that much JSON."""
    length = int.from_bytes(data[:8], "little")
    is_json = data[8:10] in (b'{"', b"{}", b"{ ")
    return _SAFETENSORS if is_json and 2 <= length <= _LARGEST_HEADER else None
