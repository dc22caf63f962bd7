"""One compile, resolved: what its stages ask beside the program that they work on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.core.passes import Limits
from compiler.core.progress import Progress, silent
from compiler.core.settings import Settings, load_settings
from compiler.frontend.external import ExternalData
from compiler.reports import CompileOptions
from compiler.schedule.chooser import AnalyticChooser, Chooser, ConservativeChooser, ReplayChooser
from compiler.stages.dump import SPECIALISED, Dump, Edit, read_edit
from compiler.stages.plugins import load_plugins
from compiler.stages.tuned import GraphChoices, Records, Tuned, no_records
from compiler.targets import Target, get_target

KERNEL_STAGES = ("loops", "schedule", "lower", "render")
STAGES = ("import", "rewrite", "fuse", "layout", *KERNEL_STAGES, "plan", "host", "link")
"""Names for `--stop-after`, in order."""


@dataclass(frozen=True, slots=True)
class CompileJob:
    """A model, how to compile it, and what that was resolved to, once.

    external: opens the model's external data. edit: takes the place of what a stage makes for a kernel.
    records: what is known of tuned kernels. chooser: fills the open decisions of forms and schedules that
    they leave. limits: count what passes are applied to. graph: what was decided about the graph, by default
    by estimates. progress: is told of stages and of kernels done.
    """

    model: Path
    options: CompileOptions
    target: Target
    settings: Settings
    external: ExternalData
    dump: Dump = field(default_factory=Dump)
    edit: Edit | None = None
    chooser: Chooser = field(default_factory=AnalyticChooser)
    limits: Limits = field(default_factory=Limits)
    records: Records = no_records
    graph: GraphChoices = field(default_factory=GraphChoices)
    progress: Progress = silent

    @classmethod
    def of(cls, model: Path, options: CompileOptions, progress: Progress = silent) -> Self:
        """Resolve what `options` name; an earlier dump in its directory is removed.

        Raises UsageError for what there is not, HostError and BadInputError for what cannot be read.
        """
        target = get_target(options.target, options.arch, precision=options.precision)
        plugins = load_plugins(options.plugins, installed=options.installed_plugins)
        target = replace(target, plugins=plugins)
        _check_stage(options.stop_after)
        limits = Limits(options.limits)
        if options.without or options.limits:
            from compiler.stages.optional import (
                check_limits,
                check_optional,
                without_rules,
            )  # imports the passes

            check_optional(options.without, "--without")
            check_limits(options.limits, "--limit")
            never = {name for name, most in options.limits.items() if most == 0}
            target = without_rules(target, never.union(options.without))
        edit = read_edit(options.start_from) if options.start_from else None
        settings, external = load_settings(), ExternalData(model.parent)
        dump = Dump.open(options.dump)  # last, as it removes the earlier one
        chooser = ConservativeChooser(options.conservative) if options.conservative else AnalyticChooser()
        return cls(model, options, target, settings, external, dump, edit, chooser, limits, progress=progress)

    def does(self, name: str) -> bool:
        """Whether the optional pass `name` is to run."""
        return name not in self.options.without and self.options.limits.get(name) != 0

    def does_whole(self, name: str) -> bool:
        """Whether the optional pass `name` is to run, which counts as one application to all of the model."""
        does = self.does(name)
        if does:
            self.limits.of(name).are_all("the model")
        return does

    def chooser_of(self, tuned: Tuned) -> Chooser:
        """Who fills the open decisions of a kernel of which so much is known."""
        return ReplayChooser(tuned.decisions, self.chooser) if tuned.decisions else self.chooser

    def for_graph(self, number: int) -> CompileJob:
        """The job of one of a library's graphs: 0 is the general one, the others are specialised."""
        return replace(self, dump=self.dump.below(f"{SPECIALISED}/{number}")) if number else self

    @property
    def last(self) -> str:
        """The stage that the compile ends after."""
        return self.options.stop_after or STAGES[-1]

    def edit_of(self, stage: str, kernel: int) -> Edit | None:
        """The edit of what `stage` makes for `kernel`, if there is one."""
        edit = self.edit
        return edit if edit is not None and (edit.stage, edit.kernel) == (stage, kernel) else None


def _check_stage(name: str | None) -> None:
    if name is not None and name not in STAGES:
        raise UsageError(
            f"unknown stage `{name}`",
            where="--stop-after",
            why=f"the stages are {', '.join(STAGES)}",
            hint=did_you_mean(name, STAGES),
        )
