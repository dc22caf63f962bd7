"""The front door of the compiler: everything that programs outside this package may use.

    import compiler
    model = compiler.load("model.so")
    outputs = model.run({"x": array})

What needs numpy, onnx or the passes is imported on first use: `import compiler` is quick and needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.cluster.address import ClusterAddress as ClusterAddress
from compiler.cluster.address import TlsFiles as TlsFiles
from compiler.core import disk as disk
from compiler.core.allowance import Allowance as Allowance
from compiler.core.allowance import GoneOn as GoneOn
from compiler.core.allowance import go_on_within as go_on_within
from compiler.core.allowance import is_copy as is_copy
from compiler.core.answer import Answer as Answer
from compiler.core.companion import Companion as Companion
from compiler.core.diagnostics import BadInputError as BadInputError
from compiler.core.diagnostics import BuildError as BuildError
from compiler.core.diagnostics import CrashError as CrashError
from compiler.core.diagnostics import DiskLimitError as DiskLimitError
from compiler.core.diagnostics import ExitCode as ExitCode
from compiler.core.diagnostics import HostError as HostError
from compiler.core.diagnostics import InternalError as InternalError
from compiler.core.diagnostics import LimitError as LimitError
from compiler.core.diagnostics import MemoryLimitError as MemoryLimitError
from compiler.core.diagnostics import TkError as TkError
from compiler.core.diagnostics import UsageError as UsageError
from compiler.core.diagnostics import WrongResultError as WrongResultError
from compiler.core.diagnostics import did_you_mean as did_you_mean
from compiler.core.files import private_directory as private_directory
from compiler.core.files import private_stream as private_stream
from compiler.core.files import publish_directory as publish_directory
from compiler.core.files import remove_abandoned_directories as remove_abandoned_directories
from compiler.core.files import replace_atomic as replace_atomic
from compiler.core.files import sha256_file as sha256_file
from compiler.core.files import staging_directory as staging_directory
from compiler.core.files import stream_atomic as stream_atomic
from compiler.core.files import write_atomic as write_atomic
from compiler.core.lazy import lazy_names
from compiler.core.memory import memory_here as memory_here
from compiler.core.process import run as run
from compiler.core.process import stop_all as stop_all
from compiler.core.progress import Progress as Progress
from compiler.core.progress import Steps as Steps
from compiler.core.progress import silent as silent
from compiler.core.settings import EMULATOR as EMULATOR
from compiler.core.settings import EMULATORS as EMULATORS
from compiler.core.settings import KNOBS as KNOBS
from compiler.core.settings import UNCHECKED_EMULATOR as UNCHECKED_EMULATOR
from compiler.core.settings import Knob as Knob
from compiler.core.settings import Settings as Settings
from compiler.core.settings import load_settings as load_settings
from compiler.core.units import counted as counted
from compiler.core.units import read_bytes as read_bytes
from compiler.core.visible import cut_numbers as cut_numbers
from compiler.core.visible import some as some
from compiler.core.visible import visible as visible
from compiler.reports import EMITS as EMITS
from compiler.reports import CompileOptions as CompileOptions
from compiler.reports import CompileReport as CompileReport
from compiler.reports import Emit as Emit
from compiler.reports import KernelInfo as KernelInfo
from compiler.reports import LibraryReport as LibraryReport
from compiler.reports import ModelReport as ModelReport
from compiler.reports import RecordingInfo as RecordingInfo
from compiler.reports import SizeRange as SizeRange
from compiler.reports import SpecialisationInfo as SpecialisationInfo
from compiler.reports import SpecialisedSizes as SpecialisedSizes
from compiler.reports import TargetReport as TargetReport
from compiler.reports import TensorInfo as TensorInfo
from compiler.reports import Unsupported as Unsupported

if TYPE_CHECKING:  # the same names as in _HOMES, for type checkers and editors
    from compiler.cluster.connection import Cluster as Cluster
    from compiler.cluster.serve import SchedulerPlace as SchedulerPlace
    from compiler.cluster.serve import serve_scheduler as serve_scheduler
    from compiler.compile import arch_here as arch_here
    from compiler.compile import can_compile as can_compile
    from compiler.compile import compile_model as compile_model
    from compiler.compile import list_targets as list_targets
    from compiler.core.cache import content_key as content_key
    from compiler.core.cache_space import CacheUsage as CacheUsage
    from compiler.core.cache_space import Pruned as Pruned
    from compiler.core.cache_space import cache_usage as cache_usage
    from compiler.core.cache_space import prune_cache as prune_cache
    from compiler.core.device_code import LoopCode as LoopCode
    from compiler.core.device_code import MachineCode as MachineCode
    from compiler.core.relay import Streams as Streams
    from compiler.core.relay import relay as relay
    from compiler.frontend.exports import EXPORT_NEEDS as EXPORT_NEEDS
    from compiler.frontend.exports import ExampleInput as ExampleInput
    from compiler.frontend.exports import export_words as export_words
    from compiler.frontend.files import external_files as external_files
    from compiler.frontend.foreign import exportable as exportable
    from compiler.frontend.foreign import onnx_beside as onnx_beside
    from compiler.frontend.open_dims import OpenDimensionsError as OpenDimensionsError
    from compiler.inspect import inspect_model as inspect_model
    from compiler.library_inspection import inspect_library as inspect_library
    from compiler.reduce.isolate import reduce_model as reduce_model
    from compiler.reduce.report import FAULTS as FAULTS
    from compiler.reduce.report import REDUCTION_FILES as REDUCTION_FILES
    from compiler.reduce.report import ReduceReport as ReduceReport
    from compiler.reduce.report import ReduceRequest as ReduceRequest
    from compiler.reduce.report import reduction_text as reduction_text
    from compiler.runtime.deployment import interface_header as interface_header
    from compiler.runtime.deployment import python_loader as python_loader
    from compiler.runtime.dynamic import DynamicNeeds as DynamicNeeds
    from compiler.runtime.dynamic import dynamic_needs as dynamic_needs
    from compiler.runtime.loader import Context as Context
    from compiler.runtime.loader import Model as Model
    from compiler.runtime.manifest import manifest_of as manifest_of
    from compiler.stages.finished import package_digest as package_digest
    from compiler.targets import DEFAULT_TARGET as DEFAULT_TARGET
    from compiler.targets import choose_targets as choose_targets
    from compiler.targets.host_program import build_program as build_program
    from compiler.targets.host_program import linked_library as linked_library
    from compiler.tune.cluster.workers import WorkerPlan as WorkerPlan
    from compiler.tune.cluster.workers import run_workers as run_workers
    from compiler.tune.database.exchange import export_tuning as export_tuning
    from compiler.tune.database.exchange import import_tuning as import_tuning
    from compiler.tune.database.exchange import merge_tuning as merge_tuning
    from compiler.tune.database.report import Migrated as Migrated
    from compiler.tune.database.report import Moved as Moved
    from compiler.tune.database.report import ShownRecord as ShownRecord
    from compiler.tune.database.report import ShownWorkload as ShownWorkload
    from compiler.tune.database.report import Thinned as Thinned
    from compiler.tune.database.report import TuningStats as TuningStats
    from compiler.tune.database.stats import show_tuning as show_tuning
    from compiler.tune.database.stats import tuning_stats as tuning_stats
    from compiler.tune.database.upkeep import migrate_tuning as migrate_tuning
    from compiler.tune.database.upkeep import prune_tuning as prune_tuning
    from compiler.tune.record import TuningRecord as TuningRecord
    from compiler.tune.report import Budget as Budget
    from compiler.tune.report import TunedKernel as TunedKernel
    from compiler.tune.report import TuneReport as TuneReport
    from compiler.tune.report import TuneRequest as TuneRequest
    from compiler.tune.report import TuneState as TuneState
    from compiler.tune.tuner import tune_model as tune_model
    from compiler.tune.tuner import tune_plan as tune_plan
    from compiler.verify.access import access_of as access_of
    from compiler.verify.access_report import AccessReport as AccessReport
    from compiler.verify.access_report import AccessRow as AccessRow
    from compiler.verify.access_report import LaunchAccess as LaunchAccess
    from compiler.verify.bench import bench_library as bench_library
    from compiler.verify.calibrate import Calibration as Calibration
    from compiler.verify.calibrate import calibrate as calibrate
    from compiler.verify.device import load as load
    from compiler.verify.inputs import read_feeds as read_feeds
    from compiler.verify.isolate import verify_library as verify_library
    from compiler.verify.report import BenchReport as BenchReport
    from compiler.verify.report import BenchRequest as BenchRequest
    from compiler.verify.report import Comparison as Comparison
    from compiler.verify.report import Difference as Difference
    from compiler.verify.report import EngineTimes as EngineTimes
    from compiler.verify.report import VerifyReport as VerifyReport
    from compiler.verify.report import VerifyRequest as VerifyRequest
    from compiler.verify.sizes import sizes_of as sizes_of
    from compiler.view.make import view_compile as view_compile
    from compiler.view.report import Profile as Profile
    from compiler.view.report import ViewReport as ViewReport
    from compiler.view.report import ViewRequest as ViewRequest

__version__ = "0.1.0"

_HOMES = {
    "compiler.compile": ("arch_here", "can_compile", "compile_model", "list_targets"),
    "compiler.core.cache": ("content_key",),
    "compiler.core.cache_space": ("CacheUsage", "Pruned", "cache_usage", "prune_cache"),
    "compiler.core.device_code": ("LoopCode", "MachineCode"),
    "compiler.core.relay": ("Streams", "relay"),
    "compiler.frontend.exports": ("EXPORT_NEEDS", "ExampleInput", "export_words"),
    "compiler.frontend.files": ("external_files",),
    "compiler.frontend.foreign": ("exportable", "onnx_beside"),
    "compiler.frontend.open_dims": ("OpenDimensionsError",),
    "compiler.inspect": ("inspect_model",),
    "compiler.library_inspection": ("inspect_library",),
    "compiler.runtime.deployment": ("interface_header", "python_loader"),
    "compiler.runtime.dynamic": ("DynamicNeeds", "dynamic_needs"),
    "compiler.reduce.isolate": ("reduce_model",),
    "compiler.reduce.report": (
        "FAULTS",
        "REDUCTION_FILES",
        "ReduceReport",
        "ReduceRequest",
        "reduction_text",
    ),
    "compiler.runtime.loader": ("Context", "Model"),
    "compiler.runtime.manifest": ("manifest_of",),
    "compiler.stages.finished": ("package_digest",),
    "compiler.verify.device": ("load",),
    "compiler.targets": ("DEFAULT_TARGET", "choose_targets"),
    "compiler.targets.host_program": ("build_program", "linked_library"),
    "compiler.cluster.connection": ("Cluster",),
    "compiler.cluster.serve": ("SchedulerPlace", "serve_scheduler"),
    "compiler.tune.cluster.workers": ("WorkerPlan", "run_workers"),
    "compiler.tune.database.exchange": ("export_tuning", "import_tuning", "merge_tuning"),
    "compiler.tune.database.report": (
        "Migrated",
        "Moved",
        "ShownRecord",
        "ShownWorkload",
        "Thinned",
        "TuningStats",
    ),
    "compiler.tune.database.stats": ("show_tuning", "tuning_stats"),
    "compiler.tune.database.upkeep": ("migrate_tuning", "prune_tuning"),
    "compiler.tune.record": ("TuningRecord",),
    "compiler.tune.report": ("Budget", "TunedKernel", "TuneReport", "TuneRequest", "TuneState"),
    "compiler.tune.tuner": ("tune_model", "tune_plan"),
    "compiler.verify.access": ("access_of",),
    "compiler.verify.access_report": ("AccessReport", "AccessRow", "LaunchAccess"),
    "compiler.verify.bench": ("bench_library",),
    "compiler.verify.calibrate": ("Calibration", "calibrate"),
    "compiler.verify.inputs": ("read_feeds",),
    "compiler.verify.isolate": ("verify_library",),
    "compiler.verify.report": (
        "BenchReport",
        "BenchRequest",
        "Comparison",
        "Difference",
        "EngineTimes",
        "VerifyReport",
        "VerifyRequest",
    ),
    "compiler.verify.sizes": ("sizes_of",),
    "compiler.view.make": ("view_compile",),
    "compiler.view.report": ("Profile", "ViewReport", "ViewRequest"),
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES, packages=("schedule", "tune"))
