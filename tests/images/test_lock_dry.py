"""Locking recipes whose vendors cannot be reached: sources, keys, git trees and wheels come from stubs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from compiler import BuildError, HostError
from tests.images.test_dry_build import Workshop, _resolution, _stand_in, _unpinned, workshop
from toolchain.engine import store
from toolchain.engine.build import build_image
from toolchain.engine.choice import BuildOptions
from toolchain.images.lock.file import Lock
from toolchain.images.lock.pins import component_of, consult
from toolchain.images.plan import ContextFile, Pins, Plan
from toolchain.images.planner import plan_image
from toolchain.provision.bundle import export_bundle, import_bundle
from toolchain.provision.cache_prefill import plan_offline
from toolchain.provision.inventory import compare, read_inventory
from toolchain.provision.locking import changes, lock_plan

pytestmark = pytest.mark.slow

__all__ = ["workshop"]  # a fixture


@pytest.mark.parametrize("name", ["rocm-5.4.3+dpcpp-2022-12", "tvm-sycl-rocm"])
def test_what_is_locked_is_what_is_built(name: str, workshop: Workshop) -> None:
    engine, mirror, site = workshop.engine, workshop.mirror, workshop.site
    resolution = _unpinned(_resolution(name), mirror)
    stand_in = build_image(engine, _stand_in(workshop.base, resolution)).reference

    def planned(pins: Pins | None = None) -> Plan:
        return plan_image(resolution, site=site, lock=pins, base=stand_in)

    plan = planned()
    section = lock_plan(engine, plan, site, planned, trust=bool)
    pins = section.pins
    assert consult(plan, Lock({plan.section: section}), "locked").pins == pins
    assert pins.downloads == {one.url: mirror.sha256(one.url) for one in plan.downloads if not one.is_key}
    for need in plan.needs:
        own = pins.needs[component_of(need)]
        assert own.git == {one.url: mirror.commits[f"{one.url} {one.ref}"] for one in need.git}
        assert all(own.apt[one] == "99~stub" for one in need.apt if one not in mirror.installed)
    assert all(pins.apt[one] == "99~stub" for one in plan.apt if one not in mirror.installed)
    assert all(digests for _, digests in pins.pip.values())

    locked = planned(pins)
    built = build_image(engine, locked, site=site)
    assert compare(read_inventory(engine, built.reference, locked), locked, pins) == ()
    again = lock_plan(engine, plan, site, planned, keep=dataclasses.replace(pins, base_digest=""))
    assert changes(pins, again.pins) == ()


def test_a_bundle_with_components(
    workshop: Workshop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Base, component image, keys, packages and lists: built again from the bundle alone."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    engine, site = workshop.engine, workshop.site
    resolution = _unpinned(_resolution("rocm-5.4.3+dpcpp-2022-12"), workshop.mirror)
    stand_in = build_image(engine, _stand_in(workshop.base, resolution)).reference

    def planned(pins: Pins | None = None) -> Plan:
        return plan_image(resolution, site=site, lock=pins, base=stand_in)

    section = lock_plan(engine, planned(), site, planned, trust=bool)
    locked = planned(section.pins)
    names = {
        one.reference for one in (locked, *locked.needs)
    }  # other tests of this engine may have built them
    built_before = [one for one in store.list_images(engine) if names & set(one.references)]
    store.remove_images(engine, built_before, force=True)
    with pytest.raises(HostError, match="component images"):
        export_bundle(engine, locked, section, site, tmp_path / "early.tar")
    built = build_image(engine, locked, site=site)
    manifest = export_bundle(engine, locked, section, site, tmp_path / "bundle.tar")
    assert [one.reference for one in manifest.components] == [one.reference for one in locked.needs]
    assert {f"downloads/{one.fingerprint or one.sha256}" for one in locked.downloads} <= {
        one.path for one in manifest.files
    }

    store.remove_images(engine, [one for one in store.list_images(engine) if one.id == built.id], force=True)
    with engine.guard("forget"):
        engine.api.remove_image(locked.needs[0].reference, force=True)
    import_bundle(engine, tmp_path / "bundle.tar", tmp_path / "tk.lock")
    plan, offline = plan_offline(engine, locked, section.pins, site)
    assert plan.key == locked.key
    options = BuildOptions(network="none", pull=False)
    again = build_image(engine, plan, site=offline, options=options)
    assert (again.reference, again.cached) == (built.reference, False)
    assert compare(read_inventory(engine, again.reference, plan), plan, section.pins) == ()


def test_a_lock_outlives_what_the_archives_have(workshop: Workshop) -> None:
    """A locked version is gone: the build takes it from the snapshot of the lock's time, and nothing else."""
    engine, mirror, site = workshop.engine, workshop.mirror, workshop.site
    resolution = _unpinned(_resolution("rocm-5.4.3"), mirror)
    base = _stand_in(workshop.base, resolution)
    lists = ContextFile("sources.list", b"deb [trusted=yes] https://archive.ubuntu.com/ubuntu stub main\n")
    files = tuple(lists if one.path == lists.path else one for one in base.files)
    stand_in = build_image(engine, dataclasses.replace(base, files=files, tag="with-archive")).reference

    def planned(pins: Pins | None = None) -> Plan:
        return plan_image(resolution, site=site, lock=pins, base=stand_in)

    section = lock_plan(engine, planned(), site, planned, trust=bool)
    pins = section.pins
    assert pins.snapshot
    assert all("ubuntu.com" not in one.url for one in pins.debs.values())
    gone = next(name for name in planned().apt if pins.apt[name] == "99~stub")
    mirror.take_snapshot(f"snapshot.ubuntu.com/ubuntu/{pins.snapshot}/")
    mirror.supersede(gone)
    try:
        locked = planned(pins)
        built = build_image(engine, locked, site=site)
        assert compare(read_inventory(engine, built.reference, locked), locked, pins) == ()
        assert any("/snapshot.ubuntu.com/" in one for one in mirror.asked)
        unlasting = planned(dataclasses.replace(pins, snapshot=""))
        with pytest.raises(BuildError) as caught:
            build_image(engine, unlasting, site=site)
        assert gone in caught.value.why
    finally:
        mirror.newer.clear()
        mirror.past.clear()
        del mirror.packages[gone]
        mirror.add_packages([gone])
