"""Names that a package offers and imports on first use, so that to import the package costs little."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]], packages: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` (PEP 562) of a package.

    homes: names by the module that has them; packages: names of packages within this one.
    """
    home_of = {name: module for module, names in homes.items() for name in names}
    offered = {*home_of, *packages}

    def get(name: str) -> Any:
        if name not in offered:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if name in packages:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *offered})
