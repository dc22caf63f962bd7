"""Images of targets, and the evidence behind what the list says."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler import BadInputError, UsageError
from toolchain.recipes.evidence import Evidence, load_evidence, record_evidence, states
from toolchain.recipes.resolve import RecipeCatalog, load_catalog, resolve
from toolchain.recipes.targets import image_for


@pytest.fixture(scope="module")
def catalog() -> RecipeCatalog:
    return load_catalog()


@pytest.mark.parametrize(
    ("target", "archs", "image"),
    [
        ("cpu", [], "cpu"),
        ("sycl-cpu", [], "cpu-sycl"),
        ("opencl-cpu", [], "cpu-sycl"),
        ("cuda-nvidia", [], "cuda-11.8.0"),
        ("cuda", [], "cuda-11.8.0"),
        ("cuda-nvidia", ["sm_90"], "cuda-11.8.0"),
        ("cuda-nvidia", ["sm_70", "sm_120"], "cuda-12.8.1"),
        ("sycl-nvidia", [], "cuda-11.8.0+dpcpp-2022-12"),
        ("sycl-nvidia", ["sm_120"], "cuda-12.8.1+dpcpp-6.3.0"),
        ("opencl-nvidia", [], "cuda-11.8.0"),
        ("rocm-amd", [], "rocm-5.4.3"),
        ("hip", ["gfx90a"], "rocm-5.4.3"),
        ("rocm", ["gfx1100"], "rocm-6.4.1"),
        ("sycl-amd", [], "rocm-5.4.3+dpcpp-2022-12"),
        ("sycl-amd", ["gfx942"], "rocm-6.2.0+dpcpp-6.3.0"),
        ("opencl-amd", [], "rocm-5.4.3"),
        ("rocm-hygon", [], "dtk-23.04"),
        ("dtk", ["gfx936"], "dtk-25.04.2"),
        ("sycl-hygon", ["gfx916"], "dtk-23.04+dpcpp-2022-12"),
        ("opencl-hygon", [], "dtk-23.04"),
        ("sycl-intel", [], "oneapi-2024.2.1"),
        ("opencl-intel", [], "oneapi-2024.2.1"),
    ],
)
def test_image_of_a_target(target: str, archs: list[str], image: str, catalog: RecipeCatalog) -> None:
    found = image_for(target, catalog, archs=archs)
    assert found.image == image
    assert found.because
    assert resolve(found.image, catalog, archs=found.archs).archs == found.archs


def test_a_passed_over_image_is_told(catalog: RecipeCatalog) -> None:
    assert "not cuda-11.8.0: arch-not-in-stack" in image_for("cuda", catalog, archs=["sm_120"]).because


def test_no_image_has_the_arch(catalog: RecipeCatalog) -> None:
    with pytest.raises(BadInputError, match="arch-not-in-stack"):
        image_for("sycl-hygon", catalog, archs=["gfx936"])
    with pytest.raises(UsageError, match="sycl-nvidia"):
        image_for("sycl-nvida", catalog)
    with pytest.raises(UsageError, match="sm_"):
        image_for("cuda", catalog, archs=["sm_7"])


def test_evidence_counts_for_the_same_recipe_only(tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    assert load_evidence(path) == ()
    record_evidence(
        [Evidence("cpu", "built", "a" * 64, "a test"), Evidence("cpu", "rendered", "a" * 64, "b")], path
    )
    record_evidence([Evidence("cpu", "built", "b" * 64, "a test")], path)
    records = load_evidence(path)
    assert len(records) == 2
    assert states(["cpu"], "b" * 64, records) == {
        "rendered": "unknown",
        "dry-built": "no",
        "built": "yes",
        "published": "no",
        "run-on-device": "no",
    }
    assert set(states(["cuda-13.0.0"], "b" * 64, records).values()) == {"no"}


BROKEN = ["{", "[]", '{"evidence": [{"name": "cpu"}]}', '{"evidence": 1}', '{"evidence": [%s]}']
PERFECT = '{"name": "cpu", "state": "perfect", "recipe_hash": "", "by": ""}'


@pytest.mark.parametrize("text", BROKEN)
def test_broken_evidence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "evidence.json"
    path.write_text(text.replace("%s", PERFECT))
    with pytest.raises(BadInputError, match="evidence is broken"):
        load_evidence(path)


def test_evidence_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"evidence is broken\n.*\nwhy: .*Is a directory"):
        load_evidence(tmp_path)


def test_shipped_evidence_says_what_is_true(catalog: RecipeCatalog) -> None:
    """Whatever it claims is of an image that can be named."""
    for record in load_evidence():
        assert resolve(record.name, catalog, allow=list(catalog.rules)).recipe_hash
        assert record.by
