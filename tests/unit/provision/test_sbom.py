"""The CycloneDX document: valid, the same bytes each time, and complete."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.json_schemas import bill_problem
from tests.unit.provision.test_inventory import LLVM, PLAN, read
from toolchain.provision.sbom import sbom_path, sbom_text, store_sbom


def test_valid() -> None:
    assert bill_problem(sbom_text(read(), PLAN)) == ""


def test_the_same_bytes() -> None:
    assert sbom_text(read(), PLAN) == sbom_text(read(), PLAN)


def test_what_is_in_it() -> None:
    document = json.loads(sbom_text(read(), PLAN))
    assert "timestamp" not in document["metadata"]
    assert document["metadata"]["component"]["name"] == "tk/cpu"
    urls = {one.get("purl") for one in document["components"]}
    assert "pkg:deb/debian/gcc@4:12.2.0-3?arch=amd64&distro=debian-12" in urls
    assert "pkg:pypi/numpy@1.26.4" in urls
    names = {(one["type"], one["name"], one.get("version")) for one in document["components"]}
    assert ("application", "dpcpp-2022-12 on rocm-5.4.3", "c" * 40) in names
    assert ("operating-system", "debian", "12") in names
    key = next(one for one in document["components"] if one["type"] == "file")
    assert key["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert any(LLVM in str(one.get("externalReferences")) for one in document["components"])


def test_kept_by_the_images_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = store_sbom(read(), PLAN)
    assert path == sbom_path(read()) == tmp_path / "tk" / "sbom" / f"{'e' * 64}.cdx.json"
    assert path.read_text() == sbom_text(read(), PLAN)
