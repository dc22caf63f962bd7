"""A program on our own streams: bytes, order, terminal, signals and exit code are as without us."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from compiler.core.diagnostics import HostError
from compiler.core.relay import Streams, relay
from tests.support.command import ROOT
from tests.support.screen import Screen

RELAY = (
    "import sys; from compiler.core.relay import relay; "
    "sys.exit(relay(sys.argv[1:], lambda stream, data: None))"
)
ARGV = (sys.executable, "-c", RELAY)


@dataclass
class Ends:
    """Pipes that a program's streams go to, what was heard, and what arrived by the number of a stream."""

    streams: Streams
    sources: dict[int, int]
    heard: list[tuple[int, bytes]] = field(default_factory=list)

    def run(self, script: str) -> int:
        return relay(
            ["sh", "-c", script], lambda stream, data: self.heard.append((stream, data)), self.streams
        )

    def arrived(self, stream: int) -> bytes:
        os.close(stream)
        with os.fdopen(self.sources.pop(stream), "rb") as source:
            return source.read()

    def heard_of(self, stream: int) -> bytes:
        return b"".join(data for number, data in self.heard if number == stream)


@pytest.fixture
def ends() -> Iterator[Ends]:
    nothing = os.open(os.devnull, os.O_RDONLY)
    (out, out_sink), (err, err_sink) = os.pipe(), os.pipe()
    found = Ends(Streams(nothing, out_sink, err_sink), {out_sink: out, err_sink: err})
    yield found
    for sink, source in found.sources.items():
        os.close(sink)
        os.close(source)
    os.close(nothing)


def test_bytes_are_not_changed(ends: Ends) -> None:
    out, err = ends.streams.stdout, ends.streams.stderr
    assert ends.run(r"printf 'a\000\377\r\n\033[1mb'; printf '\342\202' >&2; exit 3") == 3
    assert ends.heard_of(out) == ends.arrived(out) == b"a\0\xff\r\n\x1b[1mb"
    assert ends.heard_of(err) == ends.arrived(err) == b"\xe2\x82"


def test_a_part_of_a_line_is_there_at_once(ends: Ends, tmp_path: Path) -> None:
    def hear(_stream: int, data: bytes) -> None:
        if data == b"half":
            (tmp_path / "go-on").touch()

    script = f"printf half; n=0; until [ -e {tmp_path}/go-on ]; do "
    script += "n=$((n+1)); [ $n -lt 500 ] || exit 9; sleep .01; done"
    assert relay(["sh", "-c", script], hear, ends.streams) == 0


def test_streams_that_are_the_same_keep_their_order(ends: Ends) -> None:
    one = Streams(ends.streams.stdin, ends.streams.stdout, os.dup(ends.streams.stdout))
    script = "n=0; while [ $n -lt 300 ]; do echo $n; n=$((n+1)); echo $n >&2; n=$((n+1)); done"
    assert relay(["sh", "-c", script], lambda _stream, _data: None, one) == 0
    os.close(one.stderr)
    assert ends.arrived(one.stdout).split() == [b"%d" % number for number in range(300)]


def test_much_output_to_a_reader_that_is_slow_and_a_pipe_that_does_not_block(ends: Ends) -> None:
    out = ends.streams.stdout
    os.set_blocking(out, False)
    digest = hashlib.sha256()
    count = 0

    def read() -> None:
        nonlocal count
        while count < 3_000_000:
            data = os.read(ends.sources[out], 1 << 16)
            digest.update(data)
            count += len(data)
            time.sleep(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    code = "import sys; sys.stdout.write('0123456789' * 300_000)"
    expected = hashlib.sha256(b"0123456789" * 300_000)
    assert relay([sys.executable, "-c", code], lambda _stream, _data: None, ends.streams) == 0
    reader.join(30)
    assert (count, digest.digest()) == (3_000_000, expected.digest())


def test_when_the_reader_is_gone_the_program_learns_it(ends: Ends) -> None:
    os.close(ends.sources[ends.streams.stdout])
    ends.sources[ends.streams.stdout] = os.open(os.devnull, os.O_RDONLY)
    assert relay(["yes"], lambda _stream, _data: None, ends.streams) == 128 + signal.SIGPIPE


def test_input_is_ours(ends: Ends, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"typed\xff")
    with (tmp_path / "in").open("rb") as stream:
        streams = Streams(stream.fileno(), ends.streams.stdout, ends.streams.stderr)
        assert relay(["cat"], lambda _stream, _data: None, streams) == 0
    assert ends.arrived(streams.stdout) == b"typed\xff"


@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 77", 77), ("kill -9 $$", 137)])
def test_exit_codes(ends: Ends, end: str, code: int) -> None:
    assert ends.run(end) == code


def test_what_outlives_the_program_is_not_waited_for(ends: Ends) -> None:
    started = time.monotonic()
    assert ends.run("sleep 60 & echo $!") == 0
    assert time.monotonic() - started < 30
    os.kill(int(ends.heard_of(ends.streams.stdout)), signal.SIGKILL)


def test_a_program_that_is_not_there(ends: Ends) -> None:
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(HostError, match="cannot start"):
        relay(["no-such-program"], lambda _stream, _data: None, ends.streams)
    assert sorted(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on(number: signal.Signals) -> None:
    """To the program, which need not end of it."""
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo got it; exit 7' {name}; echo ready; while :; do sleep 0.02; done"
    with subprocess.Popen([*ARGV, "sh", "-c", script], cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(number)
        assert child.stdout.readline() == b"got it\n"
        assert child.wait(30) == 7


def test_signals_reach_what_the_program_has_started() -> None:
    # the started one says it is ready: a shell's copy of itself still has the shell's trap
    script = "trap 'wait $!; echo $?; exit 7' TERM; sh -c 'echo ready; exec sleep 60' & wait $!; exit 8"
    with subprocess.Popen([*ARGV, "sh", "-c", script], cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.terminate()
        assert (child.stdout.read(), child.wait(30)) == (b"143\n", 7)


def test_signals_that_are_ignored_stay_so() -> None:
    script = "trap 'exit 9' HUP; echo ready; read line; exit 6"
    argv = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *ARGV, "sh", "-c", script]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        child.send_signal(signal.SIGHUP)
        child.communicate(b"line\n")
        assert child.returncode == 6


_LOOK = r"""
[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo three terminals
stty size < /dev/tty
trap 'echo interrupted; stty size < /dev/tty; read line; echo "read <$line>"; exit 5' INT
trap 'echo resized' WINCH
echo ready
while :; do sleep 0.05; done
"""


def test_a_terminal_stays_one() -> None:
    """Its size, a new size, Ctrl-C and lines that are typed reach the program; afterwards it is as before."""
    after = "; import termios; print('flags', termios.tcgetattr(0)[:4] == before)"
    code = RELAY.replace(
        "sys.exit(relay(", "import termios; before = termios.tcgetattr(0)[:4]; print('code', relay("
    )
    screen = Screen([sys.executable, "-c", code + after, "sh", "-c", _LOOK])
    screen.read_until(b"ready\r\n")
    assert b"three terminals\r\n" in screen.text
    screen.resize(40, 111)
    screen.read_until(b"resized\r\n")
    screen.type(b"\x03")
    screen.read_until(b"interrupted\r\n40 111\r\n")
    screen.type(b"wrogn\x7f\x7fng\r")
    screen.read_until(b"read <wrong>\r\n")
    assert screen.close() == 0
    assert screen.text.endswith(b"code 5\r\nflags True\r\n")
    assert b"\r\r" not in screen.text


def test_on_a_terminal_with_input_from_elsewhere() -> None:
    """The program's output is on a terminal, its input is what ours is, and the terminal is not touched."""
    script = "[ ! -t 0 ] && [ -t 1 ] && [ -t 2 ] || exit 1; printf 'a\\nb\\n'; cat"
    screen = Screen([*ARGV, "sh", "-c", script], stdin=os.devnull)
    assert screen.close() == 0
    assert screen.text == b"a\r\nb\r\n"
