"""Plans of components that are built: each an image of its own that holds nothing but what was built.

A build sees the stack and, where it is no compiler itself, the components built before it; so the same
DPC++ on the same stack is one image, whatever else is put beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolchain.images import steps
from toolchain.images.plan import (
    Command,
    Copy,
    EnvPath,
    From,
    GitSource,
    Instruction,
    Label,
    Pins,
    Plan,
    Stage,
)
from toolchain.images.planner import Part, Setting, assemble

if TYPE_CHECKING:
    from toolchain.recipes.resolve import Component
    from toolchain.recipes.schema import Arguments, Build

_SOURCES = "/src"
_OBJECTS = "/build"


def component_plans(setting: Setting, pins: Pins) -> tuple[Plan, ...]:
    """Plans of the components of a resolution that have a build, in the order in which they are built."""
    plans: list[Plan] = []
    for one in setting.resolution.components:
        if one.build is not None:
            before = () if one.build.system == "dpcpp" else tuple(plans)
            plans.append(_component_plan(setting, one, one.build, pins.needs.get(one.kind, Pins()), before))
    return tuple(plans)


def _component_plan(
    setting: Setting, component: Component, build: Build, pins: Pins, before: tuple[Plan, ...]
) -> Plan:
    stack = setting.resolution.stack
    name = f"{component.kind}-{component.version} on {stack.kind}-{stack.version}"
    commit = pins.git.get(build.git.url, build.git.commit)
    sources = GitSource(build.git.url, build.git.ref, commit, f"{_SOURCES}/{component.kind}")
    parts = [Part(f"{stack.kind} {stack.version}", stack.layer)]
    parts += [Part(f"the build of {component.kind}", one) for one in build.layers]
    assembly = assemble(setting, parts, pins)
    done: list[Instruction] = [From("system", "build"), *assembly.steps]
    for need in before:
        done += [Copy((path,), path, need.reference) for path in need.provides]
    done += steps.environment([one.layer for one in parts])
    if assembly.pip:
        done.append(EnvPath("PATH", (f"{steps.VENV}/bin",)))
    done += [steps.sources(sources), steps.compiled(_commands(build, sources.path), f"Build of {name}")]
    provides = build.copies or (build.prefix,)
    labels = (("tk.component", component.kind), ("tk.version", component.version), ("tk.commit", commit))
    last: list[Instruction] = [From("scratch", "image")]
    last += [Copy((path,), path, "build") for path in provides]
    last.append(Label(labels))
    stages = (*assembly.stages, Stage("build", tuple(done), f"{name}: sources and build"))
    return Plan(
        name=name,
        repository=f"tk/{component.kind}",
        tag=f"{component.version}-{stack.kind}-{stack.version}",
        base=setting.base,
        stages=(*stages, Stage("image", tuple(last), "What was built, alone")),
        files=assembly.files,
        downloads=assembly.downloads,
        apt=assembly.apt,
        pip=assembly.pip,
        git=(sources,),
        needs=before,
        labels=labels,
        provides=provides,
    )


def _commands(build: Build, sources: str) -> list[Command]:
    configure, compiled = _words(build.configure), _words(build.compile)
    if build.system == "dpcpp":
        return [
            steps.site("run", "python3", f"{sources}/buildbot/configure.py", *configure),
            steps.site("run", "python3", f"{sources}/buildbot/compile.py", *compiled),
        ]
    prefix = f"-DCMAKE_INSTALL_PREFIX={build.prefix}"
    commands = [
        steps.site("run", "cmake", "-S", sources, "-B", _OBJECTS, "-G", "Ninja", prefix, *configure),
        steps.site("run", "cmake", "--build", _OBJECTS, "--parallel", *compiled),
        steps.site("run", "cmake", "--install", _OBJECTS),
    ]
    if build.python is not None:
        commands.append(("cp", "-R", f"{sources}/{build.python}", f"{build.prefix}/python"))
    return commands


def _words(arguments: tuple[Arguments, ...]) -> tuple[str, ...]:
    return tuple(word for one in arguments for word in one.words)
