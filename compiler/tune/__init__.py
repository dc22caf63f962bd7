"""The search for fast kernels: candidates, their measurement, and the database of what was found.

from compiler import tune
report = tune.search(Path("model.onnx"), "cpu", tune.Budget(seconds=60), callbacks=[])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.core.lazy import lazy_names

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
    "compiler.tune.measure.measurer": ("LibraryMeasurer",),
    "compiler.tune.measure.replay": ("ReplayMeasurer",),
    "compiler.tune.record": ("Record",),
    "compiler.tune.report": ("Budget", "TuneReport", "TuneRequest", "TuneState"),
    "compiler.tune.session": ("Callbacks",),
    "compiler.tune.tuner": ("search", "tune_model"),
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
