"""Images that tests of several files build on an engine of theirs."""

from __future__ import annotations

from tests.support.engine import TestEngine
from toolchain.engine.build import build_image
from toolchain.images.named import plan_named
from toolchain.images.selection import Selection


def cpu_image(engine: TestEngine) -> str:
    """The reference of image `cpu`, built on the engine's stand-in base."""
    named = plan_named("cpu", Selection(base=engine.base))
    return build_image(engine.open(), named.plan, site=named.site).reference
