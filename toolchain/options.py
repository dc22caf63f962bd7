"""Options that several subcommands share, and the reading of NAME=VALUE."""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import json
import math
import shlex
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

import compiler
from compiler import BadInputError, UsageError, did_you_mean

T = TypeVar("T")
_HOUR = 3600.0
_NONE = "none"


class Role(enum.Enum):
    """In the annotation of a parameter that names a file: what becomes of that in a container."""

    INPUT = enum.auto()  # it is read
    MODEL = enum.auto()  # an ONNX file: its external data is read, too
    NAMED_INPUT = enum.auto()  # NAME=FILE, or FILE alone
    RESULT = enum.auto()  # it is written
    HERE = enum.auto()  # it belongs to this machine: refused in a container


@dataclass(frozen=True, slots=True)
class Depends:
    """In the annotation of a parameter that is a record: what makes it, whose parameters are the options.

    without: parameters of `make` that a command has no options for.
    """

    make: Callable[..., Any]
    without: tuple[str, ...] = ()


def spread(command: Callable[..., T]) -> Callable[..., T]:
    """The command as typer reads it: with options in place of the records that are made from them."""

    @functools.wraps(command)
    def spread_out(**values: Any) -> T:
        return call_spread(command, values)

    declare(spread_out, spread_parameters(command))
    return spread_out


def spread_parameters(
    function: Callable[..., Any], without: Sequence[str] = ()
) -> Iterator[inspect.Parameter]:
    """The parameters of a function, those that are records replaced by what these are made from."""
    for name, (parameter, depends) in _declared(function).items():
        if depends is not None:
            yield from spread_parameters(depends.make, depends.without)
        elif name not in without:
            yield parameter


def call_spread(function: Callable[..., T], values: Mapping[str, Any], without: Sequence[str] = ()) -> T:
    """Call a function with the values of its spread parameters."""
    arguments = {
        name: values[name] if depends is None else call_spread(depends.make, values, depends.without)
        for name, (_, depends) in _declared(function).items()
        if name not in without
    }
    return function(**arguments)


def declare(function: Callable[..., Any], parameters: Iterator[inspect.Parameter]) -> None:
    """Give a function that takes anything the signature that typer reads."""
    declared = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    function.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
    function.__annotations__ = {one.name: one.annotation for one in declared}


def metadata(annotation: Any, kind: type[T]) -> T | None:
    """What an annotation says of this kind; None when it says nothing."""
    return next((one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, kind)), None)


@functools.cache
def _declared(function: Callable[..., Any]) -> dict[str, tuple[inspect.Parameter, Depends | None]]:
    hints = typing.get_type_hints(function, include_extras=True)
    return {
        name: (one.replace(annotation=hints[name]), metadata(hints[name], Depends))
        for name, one in inspect.signature(function).parameters.items()
    }


def allowance_of(
    max_memory: Annotated[
        str | None,
        typer.Option(
            "--max-memory",
            metavar="SIZE",
            help="What this and all that it starts may hold, as `8 GB`, or `none`; default: three quarters "
            "of the machine's memory.",
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            help="How long this may take, or `none`; default: an hour.",
        ),
    ] = None,
) -> compiler.Allowance:
    """What the options allow a command that reads a model; raises UsageError."""
    return compiler.Allowance(_seconds(timeout), _most_memory(max_memory))


def _seconds(text: str | None) -> float | None:
    if text is None:
        return _HOUR
    if text == _NONE:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError("no time", where=f"--timeout {text}", hint="a number of seconds, or `none`")
    return seconds


def _most_memory(text: str | None) -> int | None:
    if text == _NONE:
        return None
    if text is not None:
        return read_size(text, "--max-memory")
    here = compiler.memory_here()
    return None if here is None else here * 3 // 4


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Threads = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", min=1, max=4096, help="Threads to use; default: as compiled."),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="NAME", help="A number, a part of its name, `emulator`, `emulator-unchecked`."
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of random inputs.")]
Shape = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=1,3,224,224", help="Dimensions of an input; repeatable."),
]
Dim = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", metavar="NAME=N", help="Value of a symbolic dimension, in every input; repeatable."
    ),
]
RunShape = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="NAME=1,100", help="Dimensions of an input in the runs; repeatable."),
]
RunDim = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=N", help="Extent of a free dimension in the runs; repeatable."),
]
Extents = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=1,1..512",
        help="Dimensions of an input, each a size or a range of which every run has one; repeatable. Again "
        "for an input: some of these sizes, to get kernels of their own in the library (a specialisation).",
    ),
]
DimRange = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=N",
        help="Value of a symbolic dimension, or a range (1..512), in every input; repeatable. Again for one: "
        "sizes with kernels of their own, as with --shape. The second values of all options go together, the "
        "third ones, and so on; what is given once holds for all. For a dimension that a run finds (boxes "
        "that are kept): a smaller bound, 0..100.",
    ),
]
Bind = Annotated[
    list[str] | None,
    typer.Option("--bind", metavar="NAME=VALUE", help="Fix an input that carries a shape; repeatable."),
]
Input = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=FILE",
        help="Input from an npy, npz or raw file (or all of an npz); others are random; repeatable.",
    ),
    Role.NAMED_INPUT,
]
Records = Annotated[
    Path | None,
    typer.Option("--records", metavar="DIR", help="Where records are; default: this user's."),
    Role.HERE,
]
NoDatabase = Annotated[
    bool, typer.Option("--no-db", help="Use nothing of what `tk tune` found on this machine.")
]
Databases = Annotated[
    list[Path] | None,
    typer.Option("--db", metavar="FILE", help="Use what this tuning database has, too; repeatable."),
    Role.INPUT,
]
PluginFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        help="Take schedule rules, operators and passes of your own from this Python file, which runs as "
        "you; repeatable.",
    ),
    Role.INPUT,
]
NoPlugins = Annotated[bool, typer.Option("--no-plugins", help="Leave out the plugins of installed packages.")]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Compile with records made on other devices, with other compilers or rules, too."
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without", metavar="PASS", help="Leave out a pass that is not needed, to find a defect; repeatable."
    ),
]
DockerHost = Annotated[
    str | None,
    typer.Option("--docker-host", metavar="URL", help="Address of the container engine, as DOCKER_HOST."),
]
EngineName = Annotated[
    str | None, typer.Option("--engine", metavar="NAME", help="docker or podman; default: the one found.")
]
Locked = Annotated[bool, typer.Option("--locked", help="Fail when tk.lock is missing or stale.")]
Frozen = Annotated[bool, typer.Option("--frozen", help="Use what tk.lock says and never resolve anything.")]
TrustOnFirstUse = Annotated[
    bool,
    typer.Option(
        "--trust-on-first-use",
        help="Take keys and commits for which no recipe has a source as they are now; the lock notes it.",
    ),
]
Site = Annotated[
    Path | None,
    typer.Option("--site", metavar="FILE", help="Site configuration in place of the usual site.yaml."),
]
Gpus = Annotated[
    list[int] | None,
    typer.Option("--gpu", metavar="N", min=0, help="Only this accelerator of the vendor; repeatable."),
]
Profiling = Annotated[
    bool,
    typer.Option(
        "--allow-profiling", help="Hardware counters, where the driver keeps them for administrators."
    ),
]
Assume = Annotated[
    Path | None,
    typer.Option("--assume", metavar="FILE", help="Take the devices that `tk doctor --capture` wrote there."),
]
Library = Annotated[
    Path, typer.Argument(metavar="LIBRARY", help="A model library made by `tk compile`."), Role.INPUT
]


def existing_file(path: Path) -> Path:
    """Return `path` if it is a readable file; raises BadInputError otherwise."""
    if path.is_dir():
        raise BadInputError("expected a file, found a directory", where=str(path), hint=_what_is_in(path))
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        why = error.strerror or str(error)
        raise BadInputError("cannot read a file", where=str(path), why=why, hint=_meant(path)) from error


def is_library(path: Path) -> bool:
    """Whether a readable file looks like a compiled library, and not like a model."""
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def _meant(path: Path) -> str:
    """What may have been meant by a file that cannot be read: a network of the zoo, a file beside it."""
    from toolchain import zoo  # the options of commands that read no file need no table of networks

    if path.name in zoo.networks():
        return f"`tk zoo make {path.name}` writes the network of that name"
    beside: list[str] = []
    with contextlib.suppress(OSError):
        beside = [one.name for one in path.parent.iterdir() if one.name != path.name]
    return did_you_mean(path.name, beside) or "check the path"


def _what_is_in(folder: Path) -> str:
    """What to name instead of a folder: the model in it, or how it becomes one."""
    if (folder / "saved_model.pb").is_file():
        names = f"--saved-model {shlex.quote(str(folder))} --output {shlex.quote(f'{folder.name}.onnx')}"
        words = f"`python -m tf2onnx.convert {names}`"
        return f"this is a TensorFlow model; convert it (pip install tf2onnx tensorflow): {words}"
    models = sorted(one.name for one in folder.glob("*.onnx"))
    return f"in it are: {compiler.some(models)}" if models else ""


def check_folder(output: Path, option: str = "-o") -> None:
    """Raise UsageError where the folder that a result is to be written to does not exist.

    A folder is not made from what may be a slip of the pen.
    """
    folder = output.parent
    if folder.exists():
        return
    above = next(one for one in folder.parents if one.exists())
    missing = folder.relative_to(above).parts[0]
    close = (
        did_you_mean(missing, [one.name for one in above.iterdir() if one.is_dir()]) if above.is_dir() else ""
    )
    raise UsageError(
        "the folder of the result does not exist",
        where=f"{option} {output}",
        why=f"there is no {missing!r} in {str(above)!r}",
        hint="; or ".join(filter(None, [close, f"make it: `{shlex.join(('mkdir', '-p', str(folder)))}`"])),
    )


def check_file(output: Path | None, option: str = "-o") -> None:
    """Raise UsageError where a result cannot be this file, as `check_folder` does, or as it is a folder."""
    if output is None:
        return
    check_folder(output, option)
    if output.is_dir():
        raise UsageError("the output is a directory", where=f"{option} {output}", hint="name a file in it")


def suffix_of(emit: str) -> str:
    """How the name of what a compile makes ends: `.so`, `.sources` or `.objects`."""
    return ".so" if emit == "library" else f".{emit}s"


def pairs(option: str, texts: Sequence[str] | None, read: Callable[[str], T]) -> dict[str, T]:
    """Read a repeated NAME=VALUE option; the last `=` divides, as names may hold one and values may not.

    Raises UsageError for a text without name or value, an unreadable value or a name given twice.
    """
    found = lists(option, texts, read)
    for name, values in found.items():
        if len(values) > 1:
            raise UsageError(f"`{name}` is given twice", where=option)
    return {name: values[0] for name, values in found.items()}


def lists(option: str, texts: Sequence[str] | None, read: Callable[[str], T]) -> dict[str, list[T]]:
    """The same where a name may be given several times: its values in order."""
    result: dict[str, list[T]] = {}
    for text in texts or ():
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise UsageError(f"expected NAME=VALUE, found `{text}`", where=option)
        try:
            result.setdefault(name, []).append(read(value))
        except ValueError as error:
            raise UsageError(
                f"cannot read the value of `{name}`", where=f"{option} {text}", why=str(error)
            ) from error
    return result


def specialisations(
    shapes: Mapping[str, Sequence[tuple[int | compiler.SizeRange, ...]]],
    dims: Mapping[str, Sequence[int | compiler.SizeRange]],
) -> tuple[compiler.SpecialisedSizes, ...]:
    """What `--shape` and `--dim` say the second time, the third time and so on.

    What is given once holds for all. Raises UsageError where options are repeated, but not equally often.
    """
    counts = {name: len(values) for name, values in (*shapes.items(), *dims.items()) if len(values) > 1}
    if len(set(counts.values())) > 1:
        given = ", ".join(f"{name!r} {count} times" for name, count in counts.items())
        raise UsageError(
            "which sizes go together?",
            where="--shape, --dim",
            why=f"given are {given}",
            hint="give each as often, with the whole range where it is for all sizes; once holds for all",
        )
    return tuple(
        compiler.SpecialisedSizes(
            {name: values[at] for name, values in shapes.items() if len(values) > 1},
            {name: values[at] for name, values in dims.items() if len(values) > 1},
        )
        for at in range(1, max(counts.values(), default=1))
    )


def read_dims(text: str) -> tuple[int, ...]:
    """Read `1,3,224,224`; raises ValueError unless all are whole numbers, none negative."""
    dims = tuple(_whole(part) for part in text.split(","))
    if any(dim < 0 for dim in dims):
        raise ValueError(f"dimensions cannot be negative, found `{text}`")
    return dims


def read_extents(text: str) -> tuple[int | compiler.SizeRange, ...]:
    """Read `1,3,64..512,64..512`; raises ValueError unless all are whole numbers, or two of them in order."""
    return tuple(read_extent_range(part) for part in text.split(","))


def read_extent_range(text: str) -> int | compiler.SizeRange:
    """Read `64` or `1..512`; raises ValueError for what is neither."""
    least, dots, most = text.partition("..")
    if not dots:
        return read_dims(text)[0]
    minimum, maximum = (read_dims(end)[0] for end in (least, most))
    if not minimum <= maximum or not maximum:
        raise ValueError(f"`{text}` is not a range: it is empty")
    return maximum if minimum == maximum else compiler.SizeRange(minimum, maximum)


def read_dim_range(text: str) -> int | compiler.SizeRange:
    """Read the value of one dimension, or its range; raises ValueError for what is neither."""
    return read_extent_range(text) if ".." in text else read_dim(text)


def read_dim(text: str) -> int:
    """Read the value of one dimension; raises ValueError unless it is a positive whole number."""
    dims = read_dims(text)
    if len(dims) != 1 or dims[0] < 1:
        raise ValueError(f"`{text}` is not one positive whole number")
    return dims[0]


def read_extent(text: str) -> int:
    """Read the extent of one dimension; raises ValueError unless it is a whole number, 0 or more."""
    (extent, *more) = read_dims(text)
    if more:
        raise ValueError(f"`{text}` is not one whole number")
    return extent


@contextlib.contextmanager
def naming_the_command(command: str, file: Path) -> Iterator[None]:
    """Where dimensions are left open, let the error show one whole command that gives them values."""
    try:
        yield
    except compiler.OpenDimensionsError as error:
        words = shlex.join(("tk", command, str(file), *error.options))
        error.hint = f"give values, for example: `{words}`; --dim is for a symbol, --shape for a whole input"
        raise


def read_size(text: str, option: str) -> int:
    """Read `8 GB` as bytes; raises UsageError for what is no size."""
    try:
        return compiler.read_bytes(text)
    except ValueError as error:
        raise UsageError("no size", where=f"{option} {text}", why=str(error)) from error


def read_value(text: str) -> Any:
    """Read a number, a list of numbers (`4` or `1,2,3` or JSON); raises ValueError for anything else."""
    source = text if text.startswith("[") or "," not in text else f"[{text}]"
    try:
        value = json.loads(source)
    except json.JSONDecodeError as error:
        raise ValueError(f"`{text}` is neither a number nor a list of numbers") from error
    if not _is_numeric(value):
        raise ValueError(f"`{text}` is neither a number nor a list of numbers")
    return value


def _is_numeric(value: object) -> bool:
    if isinstance(value, list):
        return all(_is_numeric(one) for one in value)
    return isinstance(value, (int, float, bool))


def _whole(text: str) -> int:
    if not text.strip().isascii() or not text.strip().isdigit():
        raise ValueError(f"`{text}` is not a whole number")
    return int(text)
