"""What a target is to the rest of the compiler: facts for the middle, a vocabulary and a build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from compiler.core.plugins import NO_PLUGINS, Plugins
from compiler.core.settings import Settings
from compiler.core.target import TargetFacts
from compiler.render.vocabulary import Vocabulary
from compiler.targets.device import DeviceLanguage
from compiler.targets.readiness import Readiness
from compiler.targets.toolchain import Cxx, find_cxx


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A target that can be named: what it is, its architectures (for people), and how to make it.

    aliases: other names. make: from the architectures that were asked for, with commas between them.
    Raises UsageError for one that there is not. readiness: what this machine can do with it.
    """

    name: str
    title: str
    archs: tuple[str, ...]
    default_arch: str
    make: Callable[[str], Target]
    aliases: tuple[str, ...] = ()
    readiness: Readiness = field(default_factory=Readiness)


@dataclass(frozen=True, slots=True)
class Target:
    """One target with one architecture.

    text: what selects it on any machine (`cpu:x86-64-v3`, also where `cpu` meant this one).
    features: processor features that the library requires, by name, in a fixed order.
    compiler_flags: options for a given compiler; raises HostError when it cannot serve this target.
    device: how kernels are built for a device; None where they are part of the host's code.
    archs: the architectures that the library is built for, one image each.
    machine: whose code what runs on the host is (`uname -m`); empty: this machine's.
    plugins: what the user's own code adds to schedules and passes.
    """

    text: str
    facts: TargetFacts
    vocabulary: Vocabulary
    features: tuple[str, ...]
    compiler_flags: Callable[[TargetFacts, Cxx], tuple[str, ...]]
    device: DeviceLanguage | None = None
    archs: tuple[str, ...] = ()
    machine: str = ""
    plugins: Plugins = NO_PLUGINS

    def cxx(self, settings: Settings) -> Cxx:
        """The compiler for what runs on the host; raises what `find_cxx` raises."""
        return find_cxx(settings, self.machine)

    def flags(self, cxx: Cxx) -> tuple[str, ...]:
        """Options that make `cxx` compile what runs on the host: kernels, or the plan around a device's."""
        return self.compiler_flags(self.facts, cxx)
