"""Whether a built image does what its recipe promises: smoke tests, and its inventory beside the lock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolchain.engine.client import Engine
from toolchain.engine.store import StoredImage
from toolchain.images.plan import Pins, Plan, SmokeTest
from toolchain.provision.inventory import Deviation, compare, read_inventory
from toolchain.provision.sbom import store_sbom

_SECONDS = 600.0
_SAID = 200


@dataclass(frozen=True, slots=True)
class SmokeResult:
    """What a smoke test said: `said` is the expected line, the last one, or why it failed or was not run."""

    name: str
    verdict: Literal["passed", "FAILED", "not run"]
    seconds: float
    said: str


@dataclass(frozen=True, slots=True)
class Report:
    """Results of all smoke tests, and where the inventory differs; `locked`: compared with a lock.

    `sbom` is the image's CycloneDX document in the user's state folder.
    """

    reference: str
    id: str
    stand_in: str
    user: str
    smoke: tuple[SmokeResult, ...]
    packages: int
    differences: tuple[Deviation, ...]
    locked: bool
    sbom: Path

    @property
    def passed(self) -> bool:
        """Whether nothing was found; a test that was not run is no finding."""
        return not self.differences and all(one.verdict != "FAILED" for one in self.smoke)


def check_image(engine: Engine, plan: Plan, pins: Pins | None, image: StoredImage) -> Report:
    """Run the plan's smoke tests in the image as its own user, without network, and read its inventory."""
    smoke = tuple(_run(engine, image.id, one) for one in plan.smoke)
    inventory = read_inventory(engine, image.id, plan)
    base = read_inventory(engine, plan.base.pinned) if engine.image(plan.base.pinned) is not None else None
    return Report(
        reference=plan.reference,
        id=image.id,
        stand_in=image.stand_in,
        user=str(((engine.image(image.id) or {}).get("Config") or {}).get("User") or "root"),
        smoke=smoke,
        packages=len(inventory.packages),
        differences=compare(inventory, plan, pins, base=base),
        locked=pins is not None,
        sbom=store_sbom(inventory, plan),
    )


def _run(engine: Engine, image: str, test: SmokeTest) -> SmokeResult:
    if test.needs_device:
        return SmokeResult(test.name, "not run", 0.0, "needs a device")
    started = time.monotonic()
    done = engine.run(image, test.argv, timeout=_SECONDS)
    taken = time.monotonic() - started
    lines = [line.strip() for line in done.output.splitlines() if line.strip()]
    said = lines[-1][:_SAID] if lines else ""
    if done.code != 0:
        return SmokeResult(test.name, "FAILED", taken, f"exit status {done.code}: {said}")
    if test.expect not in done.output:
        return SmokeResult(test.name, "FAILED", taken, f"says `{said}`, expected `{test.expect}`")
    expected = [line for line in lines if test.expect and test.expect in line]
    return SmokeResult(test.name, "passed", taken, expected[0][:_SAID] if expected else said)
