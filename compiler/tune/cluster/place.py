"""The target as the device's machine has it, in words by which others make the same kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from compiler.core.target import Cache
from compiler.stages.plugins import load_plugins
from compiler.targets import Target, get_target

_CACHES = ("l1", "l2", "l3")


def described_target(target: Target, *, plugins: bool) -> dict[str, Any]:
    """A target in words that mean the same on every machine; plugins: whether those of packages take part."""
    facts = target.facts
    caches = {name: asdict(getattr(facts, name)) for name in _CACHES}
    return {"text": target.text, "precision": facts.precision, "plugins": plugins, "caches": caches}


def target_from(described: Mapping[str, Any]) -> Target:
    """The target that was described; raises UsageError for one that this tk does not know."""
    target = get_target(described["text"], precision=described["precision"])
    l1, l2, l3 = (Cache(**described["caches"][name]) for name in _CACHES)
    plugins = load_plugins((), installed=described["plugins"])
    return replace(target, facts=replace(target.facts, l1=l1, l2=l2, l3=l3), plugins=plugins)
