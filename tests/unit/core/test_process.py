"""Programs: no shell, everything captured, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from compiler.core import process
from compiler.core.diagnostics import CrashError, HostError, MemoryLimitError
from tests.support.processes import ended
from tests.support.sources import ROOT


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_captures_both_streams_and_the_code() -> None:
    done = process.run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"))
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 3)
    assert done.seconds > 0


def test_no_shell_expands_arguments() -> None:
    done = process.run([*python("import sys; print(sys.argv[1])"), "$HOME; ls *"])
    assert done.stdout == "$HOME; ls *\n"


def test_input_environment_and_directory(tmp_path: Path) -> None:
    code = "import os, sys; print(sys.stdin.read(), os.environ.get('A'), os.getcwd())"
    done = process.run(python(code), input=b"text", env={"A": "1"}, cwd=tmp_path)
    assert done.stdout == f"text 1 {tmp_path}\n"


def test_without_input_reads_nothing() -> None:
    assert process.run(python("import sys; print(repr(sys.stdin.read()))")).stdout == "''\n"


def test_undecodable_output_is_kept_as_escapes() -> None:
    done = process.run(python(r"import sys; sys.stdout.buffer.write(b'\xff')"))
    assert done.stdout == r"\xff"


def test_lines_are_handed_on_while_the_program_runs(tmp_path: Path) -> None:
    go_on, lines = tmp_path / "go-on", []

    def on_line(line: str) -> None:
        lines.append(line)
        go_on.touch()

    code = (
        "import pathlib, sys, time\n"
        "print('one', flush=True)\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
        "print('two'); print(sys.stdin.read(), file=sys.stderr)"
    )
    done = process.run([*python(code), str(go_on)], input=b"text", on_line=on_line, timeout=60)
    assert lines == ["one", "two"]
    assert (done.stdout, done.stderr) == ("one\ntwo\n", "text\n")


def test_signal_is_a_negative_code() -> None:
    assert process.run(python("import os; os.abort()")).returncode == -6


def test_missing_program_is_named_with_a_hint() -> None:
    with pytest.raises(HostError, match="no-such-program") as caught:
        process.run(["no-such-program"])
    assert "install" in caught.value.hint


def test_timeout_kills_the_whole_group(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, time; from pathlib import Path\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"Path({str(note)!r}).write_text(str(child.pid)); time.sleep(60)"
    )
    with pytest.raises(CrashError, match="did not end within 2 s"):
        process.run(python(code), timeout=2)
    assert ended(int(note.read_text()))


def test_stop_all_ends_what_other_threads_wait_for() -> None:
    results: list[process.Completed] = []
    waiting = threading.Thread(
        target=lambda: results.append(process.run(python("import time; time.sleep(60)")))
    )
    waiting.start()
    try:
        process.stop_all()
        waiting.join(10)
        assert results[0].returncode == -9
        assert process.run(python("import time; time.sleep(60)")).returncode == -9
    finally:
        process._stopped.clear()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("k.s: fatal error: error closing k.s: No space left on device", "space"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "memory"),
        ("as: k.o: File too large", "limit of a file's size"),
        ("cc1plus: out of memory allocating 65536 bytes", "memory"),
    ],
)
def test_a_machine_that_lacks_something_is_no_defect(said: str, words: str) -> None:
    done = process.run([sys.executable, "-c", f"import sys; sys.exit({said!r})"])
    with pytest.raises(HostError, match="cannot go on") as caught:
        process.check_host(done)
    assert said in caught.value.why
    assert words in caught.value.hint


def test_how_much_is_free_is_said(tmp_path: Path) -> None:
    done = process.Completed(("as",), 1, "", "as: k.o: No space left on device\n", 0.0)
    with pytest.raises(HostError, match="cannot go on") as caught:
        process.check_host(done, tmp_path)
    assert re.fullmatch(r"as: k.o: No space left on device\n[\d,]+ bytes are free", caught.value.why)
    assert caught.value.where == str(tmp_path)


def test_other_complaints_are_left_alone() -> None:
    process.check_host(
        process.run([sys.executable, "-c", "import sys; sys.exit('k.cpp:1: error: expected ;')"])
    )


def test_merged_output_keeps_its_order() -> None:
    lines: list[str] = []
    script = "echo one; echo two >&2; echo three"
    done = process.run(["sh", "-c", script], on_line=lines.append, merged=True)
    assert (done.stdout, done.stderr) == ("one\ntwo\nthree\n", "")
    assert lines == ["one", "two", "three"]


def test_errors_are_heard_line_by_line_beside_the_output() -> None:
    lines: list[str] = []
    done = process.run(["sh", "-c", "echo one; echo two >&2; echo three"], on_error_line=lines.append)
    assert (done.stdout, done.stderr) == ("one\nthree\n", "two\n")
    assert lines == ["two"]


@pytest.mark.parametrize(
    "code",
    [
        "",
        "import os; os.fork() and os.waitpid(-1, 0); ",
        "from compiler.core import process; process.reap_if_killed = id; ",  # killed before it can tell
    ],
)
def test_nothing_outlives_a_process_that_is_killed(code: str, tmp_path: Path) -> None:
    """Also what a program has started itself, as `g++` starts `cc1plus`, and in a process that was forked."""
    note = tmp_path / "pids"
    script = f"sleep 100 & echo $$ $! $PPID >{note}.part; mv {note}.part {note}; wait"
    run = f"{code}from compiler import run; run(['sleep', '0']); run(['sh', '-c', {script!r}])"
    with subprocess.Popen(python(run), env={**os.environ, "PYTHONPATH": str(ROOT)}) as parent:
        while not note.exists():
            time.sleep(0.01)
        shell, sleeping, caller = map(int, note.read_text().split())
        os.kill(caller, signal.SIGKILL)
        assert ended(shell)
        assert ended(sleeping)
        parent.kill()


def test_what_holds_too_much_memory_is_ended_with_all_that_it_started() -> None:
    child = "import os, time; b = bytearray(os.urandom(1)) * 300_000_000; time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    started = time.monotonic()
    with pytest.raises(MemoryLimitError, match="more memory") as caught:
        process.run(python(code), memory=200_000_000)
    assert "the limit is 200,000,000" in caught.value.why
    assert time.monotonic() - started < 20


def test_what_holds_less_memory_goes_on() -> None:
    assert process.run(python("import time; time.sleep(0.6); print(1)"), memory=200_000_000).stdout == "1\n"
