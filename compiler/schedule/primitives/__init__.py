"""Schedule primitives: each is one class in one of these modules; `PRIMITIVES` has all of them by name."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from compiler.schedule.primitives.base import PRIMITIVES as PRIMITIVES

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
