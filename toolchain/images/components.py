"""Plans of components that are built: each an image of its own that holds nothing but what was built.

A build sees the stack and, where it is no compiler itself, the components built before it; so the same
DPC++ on the same stack is one image, whatever else is put beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolchain.images import steps
from toolchain.images.plan import (
    Command,
    Copy,
    From,
    GitSource,
    Instruction,
    Label,
    Pins,
    Plan,
    Stage,
    settled,
)
from toolchain.images.planner import SYSTEM_PYTHON, Part, Setting, assemble, part_of, visible

if TYPE_CHECKING:
    from toolchain.recipes.resolve import Component
    from toolchain.recipes.schema import Arguments, Build

_SOURCES = "/src"
_OBJECTS = "/build"


def component_plans(setting: Setting, pins: Pins) -> tuple[Plan, ...]:
    """Plans of the components of a resolution that have a build, in the order in which they are built."""
    plans: list[Plan] = []
    seen: list[Component] = []
    for one in setting.resolution.components:
        if one.build is not None:
            alone = one.build.system == "dpcpp"
            work = _Work(
                component=one,
                build=one.build,
                pins=pins.needs.get(one.kind, Pins()),
                beside=() if alone else tuple(map(part_of, seen)),
                needs=() if alone else tuple(plans),
            )
            plans.append(_component_plan(setting, work))
        if one in visible(setting.resolution):
            seen.append(one)
    return tuple(plans)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is built, with which pins, and beside which parts and built components."""

    component: Component
    build: Build
    pins: Pins
    beside: tuple[Part, ...]
    needs: tuple[Plan, ...]


def _component_plan(setting: Setting, work: _Work) -> Plan:
    component, build, stack = work.component, work.build, setting.resolution.stack
    name = f"{component.kind}-{component.version} on {stack.kind}-{stack.version}"
    commit = settled(build.git.commit, work.pins.git.get(build.git.url))
    sources = GitSource(build.git.url, build.git.ref, commit, f"{_SOURCES}/{component.kind}")
    parts = [Part(f"{stack.kind} {stack.version}", stack.layer), *work.beside]
    parts += [Part(f"the build of {component.kind}", one) for one in build.layers]
    assembly = assemble(setting, parts, work.pins, SYSTEM_PYTHON)
    done: list[Instruction] = [From("system", "build"), *assembly.steps]
    for need in work.needs:
        done += [Copy((path,), path, need.reference) for path in need.provides]
    done += steps.environment([one.layer for one in parts], (f"{steps.VENV}/bin",) if assembly.pip else ())
    done += [steps.sources(sources), steps.compiled(_commands(build, sources.path), f"Build of {name}")]
    archs = setting.resolution.archs if getattr(component.row, "bakes_arch", False) else ()
    labels = (("tk.component", component.kind), ("tk.version", component.version), ("tk.commit", commit))
    provides = build.copies or (build.prefix,)
    last: list[Instruction] = [From("scratch", "image")]
    last += [*(Copy((path,), path, "build") for path in provides), Label(labels)]
    return Plan(
        name=name,
        repository=f"tk/{component.kind}",
        tag="-".join([component.version, stack.kind, stack.version, *archs]),
        base=setting.base,
        stages=(
            *assembly.stages,
            Stage("build", tuple(done), f"{name}: sources and build"),
            Stage("image", tuple(last), "What was built, alone"),
        ),
        files=assembly.files,
        downloads=assembly.downloads,
        apt=assembly.apt,
        pip=assembly.pip,
        git=(sources,),
        needs=work.needs,
        labels=labels,
        provides=provides,
        python_paths=(f"{build.prefix}/python",) if build.python is not None else (),
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
        commands += _python_commands(build, f"{sources}/{build.python}")
    return commands


def _python_commands(build: Build, folder: str) -> list[Command]:
    """A folder of the sources and what it imports, for the system's own Python, beside what was built."""
    target = f"{build.prefix}/python"
    commands: list[Command] = [("cp", "-R", folder, target)]
    if build.python_packages:
        install = (SYSTEM_PYTHON, "-m", "pip", "install", "--target", target)
        commands.append(steps.site("run", *install, *build.python_packages))
    return commands


def _words(arguments: tuple[Arguments, ...]) -> tuple[str, ...]:
    return tuple(word for one in arguments for word in one.words)
