"""The front door of the compiler: everything that programs outside this package may use.

    import compiler
    model = compiler.load("model.so")
    outputs = model.run({"x": array})

Names are imported on first use, so that `import compiler` costs nothing and needs neither numpy nor onnx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compiler.core.diagnostics import (
        BadInputError,
        BuildError,
        CrashError,
        ExitCode,
        HostError,
        InternalError,
        TkError,
        UsageError,
        WrongResultError,
        did_you_mean,
    )
    from compiler.core.files import private_directory, sha256_file, write_atomic
    from compiler.core.process import stop_all
    from compiler.core.settings import KNOBS, Knob, Settings, load_settings

__version__ = "0.1.0"

# Public name -> module that defines it. Extend the block above together with this table.
_HOMES = {
    "BadInputError": "compiler.core.diagnostics",
    "BuildError": "compiler.core.diagnostics",
    "CrashError": "compiler.core.diagnostics",
    "ExitCode": "compiler.core.diagnostics",
    "HostError": "compiler.core.diagnostics",
    "InternalError": "compiler.core.diagnostics",
    "TkError": "compiler.core.diagnostics",
    "UsageError": "compiler.core.diagnostics",
    "WrongResultError": "compiler.core.diagnostics",
    "did_you_mean": "compiler.core.diagnostics",
    "private_directory": "compiler.core.files",
    "sha256_file": "compiler.core.files",
    "write_atomic": "compiler.core.files",
    "stop_all": "compiler.core.process",
    "KNOBS": "compiler.core.settings",
    "Knob": "compiler.core.settings",
    "Settings": "compiler.core.settings",
    "load_settings": "compiler.core.settings",
}

__all__ = [
    "KNOBS",
    "BadInputError",
    "BuildError",
    "CrashError",
    "ExitCode",
    "HostError",
    "InternalError",
    "Knob",
    "Settings",
    "TkError",
    "UsageError",
    "WrongResultError",
    "__version__",
    "did_you_mean",
    "load_settings",
    "private_directory",
    "sha256_file",
    "stop_all",
    "write_atomic",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
