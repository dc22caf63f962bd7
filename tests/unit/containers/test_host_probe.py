"""The probe of a remote machine says the same as looking at it directly."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from compiler import HostError
from tests.support.device_trees import machine, names
from tests.support.fake_engine import FakeEngine
from toolchain.containers import host_probe
from toolchain.devices.detect import detect
from toolchain.devices.sysroot import Sysroot, from_lines
from toolchain.engine.client import Finished


def _texts(sysroot: Sysroot) -> dict[str, str]:
    return {path: text.strip() for path, text in sysroot.files.items()}


@pytest.mark.parametrize("name", names())
def test_the_script_prints_what_capture_reads(name: str, tmp_path: Path) -> None:
    direct = machine(name, tmp_path)
    done = subprocess.run(
        ["sh", "-c", host_probe.probe_script(str(tmp_path))],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    printed = from_lines(done.stdout, "there")
    assert _texts(printed) == _texts(direct)
    assert printed.links == direct.links
    assert printed.folders == direct.folders
    assert done.stderr == ""


@pytest.mark.parametrize("name", names())
def test_a_machine_survives_being_written_down(name: str, tmp_path: Path) -> None:
    direct = machine(name, tmp_path)
    again = from_lines(host_probe.to_lines(direct), direct.origin)
    assert again == direct
    assert detect(again) == detect(direct)


def test_nodes_are_printed_by_number() -> None:
    done = subprocess.run(
        ["sh", "-c", host_probe.probe_script("").replace("/dev/kfd", "/dev/null")],
        capture_output=True,
        text=True,
        check=True,
    )
    node = from_lines(done.stdout, "here").nodes["/dev/null"]
    assert node.mode & 0o666 == 0o666


def test_odd_names_and_texts_are_data(tmp_path: Path) -> None:
    folder = tmp_path / "etc/cdi"
    folder.mkdir(parents=True)
    (folder / 'a"b$(touch x)\nc.json').write_text('{"kind": "`id`"}\n"%s\\')
    done = subprocess.run(
        ["sh", "-c", host_probe.probe_script(str(tmp_path))],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    found = from_lines(done.stdout, "there")
    assert list(found.files) == ['/etc/cdi/a"b$(touch x)\nc.json']
    assert not (tmp_path / "x").exists()


def test_a_remote_machine_is_looked_at_with_no_rights() -> None:
    engine = FakeEngine(url="tcp://10.0.0.1:2375")
    assert host_probe.look(engine, "image", None).nodes == {}  # type: ignore[arg-type]
    ((image, argv, options),) = engine.asked
    assert (image, argv[:2], options["user"]) == ("image", ["/bin/sh", "-c"], "65534:65534")
    host = options["host"]
    assert host["cap_drop"] == ["ALL"]
    assert host["mounts"][0]["ReadOnly"]
    assert "network_mode" not in host  # Engine.run gives none unless asked


def test_a_local_engine_starts_no_probe() -> None:
    engine = FakeEngine()
    host_probe.look(engine, "image", None)  # type: ignore[arg-type]
    assert engine.asked == []


def test_a_remote_machine_without_an_image_cannot_be_looked_at() -> None:
    with pytest.raises(HostError, match="cannot look at the devices") as caught:
        host_probe.look(FakeEngine(url="tcp://10.0.0.1:1"), None, None)  # type: ignore[arg-type]
    assert "--assume" in caught.value.hint


def test_a_probe_that_fails_says_why() -> None:
    engine = FakeEngine(url="tcp://10.0.0.1:1", answer=Finished(127, "sh: base64: not found\n"))
    with pytest.raises(HostError) as caught:
        host_probe.look(engine, "image", None)  # type: ignore[arg-type]
    assert "base64: not found" in caught.value.why
