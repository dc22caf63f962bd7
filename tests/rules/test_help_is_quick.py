"""`tk --help` answers at once, in 150 ms where Python itself starts in 20; no numpy, no onnx."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import environment, tk
from toolchain.commands.image import list as list_images
from toolchain.images import parse_back

LIMIT_SECONDS = 0.150
LIMIT_STARTS = 7.5
"""The same limit in starts of an empty interpreter, for machines that take longer than 20 ms for one."""
MOST_MODULES = 115
"""Of ours that `tk --help` loads: 107 with the commands of `tk tune`."""
HEAVY = (
    "numpy", "onnx", "onnxruntime", "ml_dtypes", "rich", "docker", "requests", "yaml", "jinja2", "pydantic",
)  # fmt: skip
_PROBE = """
import sys
from toolchain.main import main
code = main({arguments!r})
print(sorted(set(sys.modules) & set({heavy!r})), code, file=sys.stderr)
"""


def loaded(arguments: tuple[str, ...], first: str = "") -> str:
    """The heavy modules that a command has loaded, and its exit code."""
    probe = f"{first}\n{_PROBE.format(arguments=list(arguments), heavy=HEAVY)}"
    argv = [sys.executable, "-c", probe]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("compile", "--help"), ("image", "--help"), ("zoo", "list")]
)
def test_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert loaded(arguments) == "[] 0"


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (("targets",), ["pydantic", "yaml"]),
        (("image", "show", "cpu"), ["pydantic", "yaml"]),
        (("image", "why", "cpu"), ["pydantic", "yaml"]),
        (("cache",), []),
        (("inspect", "LIBRARY"), []),
    ],
)
def test_commands_import_what_they_need(arguments: tuple[str, ...], needed: list[str], library: str) -> None:
    words = tuple(library if word == "LIBRARY" else word for word in arguments)
    assert loaded(words) == f"{needed} 0"


def test_a_command_imports_no_other_commands_and_no_other_languages(library: str, own_cache: Path) -> None:
    """What is in the cache is handed out without numpy, loops, or what other targets are made of."""
    model = str(Path(library).with_suffix(".onnx"))
    unneeded = ("numpy", "compiler.loops", "compiler.targets.cuda", "toolchain.commands.image.app")
    probe = _PROBE.format(arguments=["compile", model, "-o", library], heavy=unneeded)
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env=environment({"TK_CACHE_DIR": str(own_cache)}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == "[] 0"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> str:
    folder = tmp_path_factory.mktemp("quick")
    assert tk("zoo", "make", "mnist", cwd=folder).code == 0
    assert tk("compile", "mnist.onnx", cwd=folder).code == 0
    return str(folder / "mnist.so")


def test_a_dockerfile_is_read_back_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tk image list` renders some sixty."""
    read: list[str] = []
    plain = parse_back.parse_rendered
    monkeypatch.setattr(parse_back, "parse_rendered", lambda text: read.append(text) or plain(text))
    list_images.list_command(json=True)
    assert len(read) == len(json.loads(capsys.readouterr().out)["images"])


def test_help_loads_few_modules() -> None:
    """Where no clock can tell: on a busy machine."""
    probe = (
        "import sys; from toolchain.main import main; main(['--help']); "
        "ours = [one for one in sys.modules if one.partition('.')[0] in ('toolchain', 'compiler')]; "
        "print(len(ours), file=sys.stderr)"
    )
    argv = [sys.executable, "-c", probe]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=True)
    assert int(done.stderr) <= MOST_MODULES


def test_the_rule_can_fail() -> None:
    assert loaded(("--help",), first="import numpy") == "['numpy'] 0"


@pytest.mark.perf
def test_answers_in_time() -> None:
    """Processor time, the best of several: on a busy machine the clock on the wall measures the others."""
    pairs = [(seconds("-m", "toolchain", "--help"), seconds("-c", "pass")) for _ in range(9)]
    helped, started = (min(times) for times in zip(*pairs, strict=True))
    assert helped < max(LIMIT_SECONDS, LIMIT_STARTS * started)


def seconds(*arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=environment(), capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
