"""The hint that a failed job in a container gets, where recipes know what its program said."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from compiler import ExitCode
from toolchain.containers import place
from toolchain.containers.job import Done
from toolchain.containers.request import RunPlace

PTXAS = "ptxas error   : Entry function 'k' uses too much shared data (0x10000 bytes, 0xc000 max)"
HINT = "hint: known cause shared-memory-too-large: "


def run_with(monkeypatch: pytest.MonkeyPatch, status: int, said: Sequence[str]) -> int:
    """`tk compile` placed in a container whose job ends with a status after saying some lines."""
    image = SimpleNamespace(id="sha256:1", libc="glibc 2.36", reference="tk/x:1", python_version="3.11")
    engine = SimpleNamespace(is_local=True, start_reaper=lambda: None)

    def run_job(_engine: object, _image: object, _job: object, talk: object, **_options: object) -> Done:
        for line in said:
            talk(f"{line}\n".encode())  # type: ignore[operator]
        return Done(status, b"")

    monkeypatch.setattr(place, "open_chosen", lambda _choice: engine)
    monkeypatch.setattr(place, "_reference", lambda *_: ("tk/x:1", True))
    monkeypatch.setattr(place, "probe_image", lambda *_: image)
    monkeypatch.setattr(place, "run_job", run_job)
    monkeypatch.setattr(place, "_place_results", lambda *_: None)
    return place.run_placed("compile", {}, {}, RunPlace(image="tk/x:1"))


@pytest.mark.parametrize("status", [ExitCode.BUILD, ExitCode.CRASHED])
def test_a_known_cause_is_told(
    status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(monkeypatch, status, ["error: nvcc refused", f"why: {PTXAS}"]) == status
    shown = capsys.readouterr().err
    assert shown.index(PTXAS) < shown.index(HINT)
    assert shown.count(HINT) == 1


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (ExitCode.BUILD, ["error: nobody knows this one"]),
        (ExitCode.BUILD, [PTXAS, f"{HINT}told in there already"]),
        (ExitCode.BAD_INPUT, [PTXAS]),
        (ExitCode.OK, [PTXAS]),
    ],
)
def test_nothing_is_told_twice_or_of_what_is_no_programs_failure(
    status: int, said: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(monkeypatch, status, said) == status
    shown = capsys.readouterr().err
    assert shown.count("hint: known cause") == sum("hint: known cause" in one for one in said)
