"""What a cluster's address may be: nothing goes unencrypted beyond this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compiler.cluster.address import ClusterAddress, TlsFiles, check_encrypted, is_loopback, security_of
from compiler.cluster.connection import Cluster
from compiler.cluster.serve import SchedulerPlace, serve_scheduler
from compiler.core.diagnostics import HostError, UsageError
from compiler.tune.cluster.workers import WorkerPlan, run_workers


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)
    check_encrypted(host, "", encrypted=False)


@pytest.mark.parametrize("host", ["10.0.0.1", "0.0.0.0", "::", "localhost.example.com", "", "192.0.2.1"])
def test_beyond_it_only_with_tls(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(UsageError, match="beyond this machine a cluster needs TLS"):
        check_encrypted(host, "", encrypted=False)
    check_encrypted(host, "", encrypted=True)


@pytest.mark.parametrize(
    "text",
    ["", "127.0.0.1:8786", "tcp://127.0.0.1", "tcp://:1", "ws://127.0.0.1:1", "tcp://a:b", "tcp://[:1"],
)
def test_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="this is no address of a scheduler") as caught:
        ClusterAddress(text).check()
    assert caught.value.where == f"--cluster {text}"


@pytest.mark.parametrize("text", ["tcp://127.0.0.1:8786", "tcp://[::1]:1", "tls://192.0.2.1:8786"])
def test_addresses(text: str) -> None:
    ClusterAddress(text).check()


def test_who_starts_something_beyond_this_machine_is_refused() -> None:
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    with pytest.raises(UsageError, match="beyond this machine"):
        serve_scheduler(SchedulerPlace("0.0.0.0"), print)
    with pytest.raises(UsageError, match="beyond this machine"):
        run_workers(WorkerPlan(ClusterAddress("tcp://127.0.0.1:1"), 1, host="192.0.2.1"), print)
    with pytest.raises(UsageError, match="beyond this machine"):
        run_workers(WorkerPlan(ClusterAddress("tcp://192.0.2.1:1"), 1), print)
    with pytest.raises(UsageError, match="beyond this machine"):
        Cluster(ClusterAddress("tcp://192.0.2.1:1", option="--scheduler"))
    with pytest.raises(UsageError, match="under which name do others reach this worker"):
        run_workers(WorkerPlan(ClusterAddress("tls://192.0.2.1:1"), 1), print)
    with pytest.raises(UsageError, match="a worker builds, measures or both"):
        run_workers(WorkerPlan(ClusterAddress("tcp://127.0.0.1:1")), print)


def test_tls_wants_certificates(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    with pytest.raises(HostError, match="TLS needs certificates"):
        security_of(TlsFiles(), "--cluster tls://127.0.0.1:1", encrypted=True)
    made = security_of(TlsFiles(tmp_path / "ca", tmp_path / "cert", tmp_path / "key"), "", encrypted=True)
    assert made.require_encryption
    assert (made.tls_ca_file, made.tls_worker_key) == (str(tmp_path / "ca"), str(tmp_path / "key"))


def test_without_the_package_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    here = ClusterAddress("tcp://127.0.0.1:1")
    for start in (
        lambda: Cluster(here),
        lambda: run_workers(WorkerPlan(here, 1), print),
        lambda: serve_scheduler(SchedulerPlace(), print),
    ):
        with pytest.raises(HostError, match="not installed") as caught:
            start()
        assert "tk-toolchain[cluster]" in caught.value.hint


def test_what_a_device_is_called() -> None:
    here = ClusterAddress("tcp://127.0.0.1:1")
    assert WorkerPlan(here, key="gpu0").device_key == "gpu0"
    roles = dict(WorkerPlan(here, 2, measure=True, key="a").roles())
    assert list(roles.values()) == [{"build": 1}, {"build": 1}, {"measure:a": 1}]
    named = WorkerPlan(here).device_key
    assert named
    assert named == named.strip("-").lower()
