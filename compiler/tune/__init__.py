"""The search for fast kernels: candidates, their measurement, and the database of what was found.

from compiler import tune
report = tune.search(Path("model.onnx"), "cpu", tune.Budget(seconds=60), callbacks=[])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as in _HOMES, for type checkers and editors
    from compiler.tune.measure.measurer import LibraryMeasurer as LibraryMeasurer
    from compiler.tune.measure.replay import ReplayMeasurer as ReplayMeasurer
    from compiler.tune.record import Record as Record
    from compiler.tune.report import Budget as Budget
    from compiler.tune.report import TuneReport as TuneReport
    from compiler.tune.report import TuneRequest as TuneRequest
    from compiler.tune.report import TuneState as TuneState
    from compiler.tune.session import Callbacks as Callbacks
    from compiler.tune.tuner import search as search
    from compiler.tune.tuner import tune_model as tune_model

_HOMES = {
    "Budget": "report",
    "Callbacks": "session",
    "LibraryMeasurer": "measure.measurer",
    "Record": "record",
    "ReplayMeasurer": "measure.replay",
    "TuneReport": "report",
    "TuneRequest": "report",
    "TuneState": "report",
    "search": "tuner",
    "tune_model": "tuner",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
