"""The search over a network: which kernel next, candidates, measurement, records, and the tuned library.

    untuned library     what each kernel takes in the network                 network.py
    until it ends       a kernel by its predicted gain                        search/tasks.py
                        candidates of it                                      search/
                        built, checked, timed                                 measure/
                        kept as records, told to who watches                  database/
    tuned library       with each kernel's best; in turns with the untuned one, kernel by kernel: what does
                        not gain there keeps its default
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from compiler.core.diagnostics import TkError, UsageError, did_you_mean
from compiler.core.files import copy_atomic, private_directory
from compiler.core.progress import Progress, silent
from compiler.schedule.chooser import AnalyticChooser
from compiler.stages.job import CompileJob
from compiler.stages.tuned import Tuned, no_records
from compiler.stages.workload import Workload
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.database.store import Database
from compiler.tune.environment import environment_here
from compiler.tune.measure.measurer import Measurer, measurer_for
from compiler.tune.network import Built, Compared, Network, kernels_of
from compiler.tune.progress import KernelSearch
from compiler.tune.record import Environment, Measured, Record
from compiler.tune.report import STRATEGIES, TuneReport, TuneRequest, TuneState

_PROFILE_SECONDS = 1.0
_FINAL_SECONDS = 3.0
_BATCH = 8
