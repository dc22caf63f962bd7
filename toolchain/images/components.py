"""Plans of components that are built: each an image of its own that holds nothing but what was built.

A build sees the stack and, where it is no compiler itself, the components built before it; so the same
DPC++ on the same stack is one image, whatever else is put beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolchain.images import steps
from toolchain.images.plan import (
    Copy,
    From,
    GitTree,
    Instruction,
    Label,
    Pins,
    Plan,
    Run,
    Stage,
    settled_commit,
)
from toolchain.images.planner import SYSTEM_PYTHON, OwnedLayer, Setting, assemble, part_of, visible

if TYPE_CHECKING:
    from toolchain.recipes.resolve import Component
    from toolchain.recipes.schema import Arguments, Build

_SOURCES = "/src"
_OBJECTS = "/build"
_LAUNCHERS = tuple(f"-DCMAKE_{one}_COMPILER_LAUNCHER=ccache" for one in ("C", "CXX"))
"""What makes a build use the compiler cache that its steps mount: an interrupted one goes on where it was."""


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
                other_parts=() if alone else tuple(map(part_of, seen)),
                needs=() if alone else tuple(plans),
            )
            plans.append(_component_plan(setting, work))
        if one in visible(setting.resolution):
            seen.append(one)
    return tuple(plans)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is built, with which pins, and on top of which other parts and built components."""

    component: Component
    build: Build
    pins: Pins
    other_parts: tuple[OwnedLayer, ...]
    needs: tuple[Plan, ...]


def _component_plan(setting: Setting, work: _Work) -> Plan:
    component, build, stack = work.component, work.build, setting.resolution.stack
    name = f"{component.kind}-{component.version} on {stack.kind}-{stack.version}"
    trees = _trees(component, build, work.pins)
    commit = trees[0].commit
    clones = [("tk.clones", " ".join(f"{one.url}@{one.commit}" for one in trees[1:]))] if trees[1:] else []
    parts = [OwnedLayer(f"{stack.kind} {stack.version}", stack.layer), *work.other_parts]
    parts += [OwnedLayer(f"the build of {component.kind}", one) for one in build.layers]
    assembly = assemble(setting, parts, work.pins, SYSTEM_PYTHON)
    done: list[Instruction] = [From("system", "build"), *assembly.steps]
    for need in work.needs:
        done += [Copy((path,), path, need.reference) for path in need.provides]
    done += steps.environment([one.layer for one in parts], (f"{steps.VENV}/bin",) if assembly.pip else ())
    done += _python_packages(build)  # seconds before hours
    done += [steps.sources(one) for one in trees]
    done += _stages(build, trees[0].path)
    archs = setting.resolution.archs if getattr(component.row, "bakes_arch", False) else ()
    labels = (
        ("tk.component", component.kind),
        ("tk.version", component.version),
        ("tk.commit", commit),
        *clones,
    )
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
        git=trees,
        needs=work.needs,
        labels=labels,
        provides=provides,
        python_paths=(_python_target(build),) if build.python is not None else (),
    )


def _trees(component: Component, build: Build, pins: Pins) -> tuple[GitTree, ...]:
    """The sources, and the trees that building them would clone by itself."""
    folders = [component.kind, *(one.url.rpartition("/")[2].removesuffix(".git") for one in build.fetches)]
    return tuple(
        GitTree(one.url, one.ref, settled_commit(one.commit, pins.git.get(one.url)), f"{_SOURCES}/{folder}")
        for one, folder in zip((build.git, *build.fetches), folders, strict=True)
    )


def _stages(build: Build, sources: str) -> list[Instruction]:
    """One step for each stage of a build, so that one that failed does not do again what is done."""
    if build.system == "files":
        kept = ("cp", "-R", sources, build.prefix)
        return [Run((kept, ("rm", "-rf", f"{build.prefix}/.git")), why="The files")]
    configure, compiled = _words(build.configure), _words(build.compile)
    if build.system == "dpcpp":
        launchers = tuple(f"--cmake-opt={one}" for one in _LAUNCHERS)
        scripts = f"{sources}/buildbot"
        return [
            _stage("Configuring", "python3", f"{scripts}/configure.py", *launchers, *configure),
            _stage("Compiling and installing", "python3", f"{scripts}/compile.py", *compiled),
        ]
    prefix = f"-DCMAKE_INSTALL_PREFIX={build.prefix}"
    top = f"{sources}/{build.folder}" if build.folder else sources
    options = ("-S", top, "-B", _OBJECTS, "-G", "Ninja", prefix, *_LAUNCHERS, *configure)
    stages = [
        _stage("Configuring", "cmake", *options),
        _stage("Compiling", "cmake", "--build", _OBJECTS, "--parallel", *compiled),
        _stage("Installing", "cmake", "--install", _OBJECTS),
    ]
    if build.python is not None:
        copied = ("cp", "-R", f"{sources}/{build.python}/.", _python_target(build))
        stages.append(Run((copied,), why="Its Python package"))
    return stages


def _stage(why: str, *words: str) -> Instruction:
    return steps.compiled([steps.site_step("run", *words)], why)


def _python_packages(build: Build) -> list[Instruction]:
    """What the folder of the sources imports, for the system's own Python, beside what will be built."""
    if not build.python_packages:
        return []
    return [steps.python_folder(SYSTEM_PYTHON, _python_target(build), build.python_packages)]


def _python_target(build: Build) -> str:
    return f"{build.prefix}/python"


def _words(arguments: tuple[Arguments, ...]) -> tuple[str, ...]:
    return tuple(word for one in arguments for word in one.words)
