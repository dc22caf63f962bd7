"""Compilers and linkers: each runs in a directory, and what they refuse is one kind of error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler.core.diagnostics import BuildError
from compiler.core.files import private_directory, write_atomic
from compiler.core.process import check_host, run
from compiler.core.settings import compiler_environment

DEFECT = "this is a defect of tk: please report it with the output of --dump"
SHOWN_LINES = 12
"""Of what a compiler says, what a message repeats."""
_LIMIT_SECONDS = 900.0


def compiled(
    argv: Sequence[str], files: Mapping[str, str | bytes], output: str, what: str, hint: str = DEFECT
) -> bytes:
    """What a compiler, assembler or linker writes to `output` in a private directory with these files.

    Raises what `run_compiler` raises.
    """
    with private_directory("tk-compile") as directory:
        for name, content in files.items():
            write_atomic(directory / name, content, durable=False)
        run_compiler(argv, directory, what, hint)
        return (directory / output).read_bytes()


def run_compiler(argv: Sequence[str], directory: Path, what: str, hint: str = DEFECT) -> None:
    """Run a compiler, assembler or linker in `directory`.

    Raises BuildError when it refuses (`what`), HostError when the machine lacks space or memory for it.
    """
    # The compiler's own temporary files go the way of the directory, also when everything is killed.
    done = run(argv, cwd=directory, env=compiler_environment(TMPDIR=str(directory)), timeout=_LIMIT_SECONDS)
    if done.returncode != 0:
        check_host(done, directory)
        shown = "\n".join((done.stderr or done.stdout).splitlines()[:SHOWN_LINES])
        raise BuildError(what, where=" ".join(argv), why=shown, hint=hint)
