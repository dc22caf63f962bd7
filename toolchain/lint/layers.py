"""Rules about what a build step does, leaves behind, or does not do although it looks so."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolchain.lint import find
from toolchain.lint.dockerfile import Dockerfile, Instruction
from toolchain.lint.rule import Hit, LintRule
from toolchain.lint.shell import ShellCommand

_PYTHON2 = re.compile(
    r"python2(\.7)?(-\w+)*|python|python-(dev|setuptools|pip|numpy|wheel|virtualenv|yaml|six)"
)
_NOTHING_LASTS = {"export", "cd", "source", ".", "alias", "unset", "set", "umask", "ulimit"}
_CONFIGURES = {"cmake", "make", "ninja", "configure", "meson"}


def _no_effect(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("RUN"):
        commands = instruction.commands
        if commands and not instruction.is_exec and all(one.program in _NOTHING_LASTS for one in commands):
            yield find.hit(instruction, commands[0].text, commands[0].program)


def _apt_lists(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("RUN"):
        if not any(find.is_apt(one, "update") for one in instruction.commands) or _cached(
            instruction, "/var/lib/apt"
        ):
            continue
        if not re.search(r"rm\s+-\w*r\w*\s[^;&|]*/var/lib/apt/lists", instruction.script):
            yield find.hit(instruction, "apt update without rm -rf /var/lib/apt/lists/*", "update")


def _cached(instruction: Instruction, place: str) -> bool:
    return any("type=cache" in flag and place in flag for flag in instruction.flags)


def _pip_cache(dockerfile: Dockerfile) -> Iterator[Hit]:
    if any(
        name == "PIP_NO_CACHE_DIR" for one in dockerfile.named("ENV", "ARG") for name, _ in find.settings(one)
    ):
        return
    for instruction, command in find.runs(dockerfile):
        arguments = find.pip_arguments(command)
        if arguments is None or _cached(instruction, "pip") or "--no-cache-dir" in command.words:
            continue
        if "PIP_NO_CACHE_DIR" not in instruction.script:
            yield find.hit(instruction, "pip install without --no-cache-dir", "pip")


def _build_tree(dockerfile: Dockerfile) -> Iterator[Hit]:
    last = max((one.stage for one in dockerfile.instructions), default=-1)
    for instruction in dockerfile.named("RUN"):
        programs = [one.program for one in instruction.commands]
        if instruction.stage != last or ("make" not in programs and "ninja" not in programs):
            continue
        if "rm" not in programs and not _cached(instruction, "/"):
            yield find.hit(instruction, "sources and objects of a build stay in the image", "make")


def _serial_make(dockerfile: Dockerfile) -> Iterator[Hit]:
    if re.search(r"MAKEFLAGS|CMAKE_BUILD_PARALLEL_LEVEL", find.text_of(dockerfile)):
        return
    for instruction, command in find.runs(dockerfile):
        parallel = any(re.match(r"-\w*j|--jobs", word) for word in command.options)
        if command.program == "make" and "install" not in command.operands and not parallel:
            yield find.hit(instruction, command.text, "make")


def _python2(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        old = [one for one in find.apt_installed(command) if _PYTHON2.fullmatch(one.partition("=")[0])]
        if old:
            yield find.hit(instruction, " ".join(old), old[0])


def _apt_alone(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("RUN"):
        commands = instruction.commands
        updates = any(find.is_apt(one, "update") for one in commands)
        installs = any(
            find.is_apt(one, "install", "upgrade", "dist-upgrade", "full-upgrade") for one in commands
        )
        cached = _cached(instruction, "/var/lib/apt")
        if updates and not installs and not cached:
            yield find.hit(instruction, "apt update in a step of its own", "update")


def _apt_install_alone(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("RUN"):
        commands = instruction.commands
        installs = [one for one in commands if find.apt_installed(one)]
        if installs and not any(find.is_apt(one, "update") for one in commands):
            names = find.apt_installed(installs[0])
            if not all(name.startswith((".", "/")) for name in names) and not _cached(
                instruction, "/var/lib/apt"
            ):
                yield find.hit(instruction, installs[0].text, "install")


def _apt_tool(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        if command.program == "apt" and command.operands:
            yield find.hit(instruction, f"apt {command.operands[0]}", "apt ")


def _apt_asks(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        if find.apt_installed(command) and not _answers(command):
            yield find.hit(instruction, command.text, "install")


def _answers(command: ShellCommand) -> bool:
    return any(re.fullmatch(r"-\w*y\w*|--yes|--assume-yes|-qq\w*", one) for one in command.options)


def _recommends(dockerfile: Dockerfile) -> Iterator[Hit]:
    if "Install-Recommends" in find.text_of(dockerfile):
        return
    for instruction, command in find.runs(dockerfile):
        if find.apt_installed(command) and "--no-install-recommends" not in command.options:
            yield find.hit(
                instruction, f"{command.program} install without --no-install-recommends", "install"
            )


def _frontend(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("ENV"):
        for name, value in find.settings(instruction):
            if name == "DEBIAN_FRONTEND":
                yield find.hit(instruction, f"ENV {name}={value}", name)


def _path_replaced(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("ENV"):
        for name, value in find.settings(instruction):
            replaced = name in ("PATH", "LD_LIBRARY_PATH") and not re.search(rf"\$\{{?{name}\b", value)
            if replaced and value:
                yield find.hit(instruction, f"ENV {name}={value}", name)


def _cd(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("WORKDIR"):
        if not re.match(r"[/$\"']|[A-Za-z]:\\", instruction.value):
            yield find.hit(instruction, f"WORKDIR {instruction.value}", instruction.value)


def _shell_form(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("ENTRYPOINT"):
        if not instruction.is_exec and not re.fullmatch(r"\[\s*\]", instruction.value):  # [] takes it away
            yield find.hit(instruction, f"ENTRYPOINT {instruction.value}", instruction.value)


def _no_pipefail(dockerfile: Dockerfile) -> Iterator[Hit]:
    strict = False
    for instruction in dockerfile.instructions:
        if instruction.name == "SHELL":
            strict = "pipefail" in instruction.value
        if instruction.name != "RUN" or strict or "pipefail" in instruction.script:
            continue
        for command in instruction.commands:
            if command.operator == "|" and command.program in {
                "wget",
                "curl",
                "git",
                "make",
                "python3",
                *_CONFIGURES,
            }:
                yield find.hit(instruction, f"{command.text} | ...", command.program)


def _maintainer(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("MAINTAINER"):
        yield find.hit(instruction, "MAINTAINER")


_PRACTICE = "https://docs.docker.com/build/building/best-practices/"
_REFERENCE = "https://docs.docker.com/reference/dockerfile/"
RULES = (
    LintRule(
        "run-without-effect", "error", "a RUN that only sets something in its own shell",
        "each RUN is a process of its own: what `export`, `cd` or `source` set ends with it",
        "ENV for variables, WORKDIR for the folder; or put it before the command that needs it, with &&",
        _REFERENCE + "#run", _no_effect,
    ),
    LintRule(
        "apt-lists-left", "note", "the package lists stay in the layer",
        "tens of megabytes that are out of date tomorrow",
        "rm -rf /var/lib/apt/lists/* in the same RUN, or a cache mount on /var/lib/apt",
        _PRACTICE + "#apt-get", _apt_lists,
    ),
    LintRule(
        "pip-cache-left", "note", "pip's cache stays in the layer",
        "every wheel is in the image twice",
        "pip install --no-cache-dir, or a cache mount on /root/.cache/pip",
        "https://pip.pypa.io/en/stable/topics/caching/", _pip_cache,
    ),
    LintRule(
        "build-tree-left", "note", "sources and objects of a build stay in the image",
        "deleting them in a later layer does not make the image smaller",
        "build in a stage of its own and COPY --from it what was installed, or rm in the same RUN",
        "https://docs.docker.com/build/building/multi-stage/", _build_tree,
    ),
    LintRule(
        "make-serial", "note", "make with one process",
        "LLVM or TVM then take hours instead of minutes",
        'make -j"$(nproc)"',
        "https://www.gnu.org/software/make/manual/html_node/Parallel.html", _serial_make,
    ),
    LintRule(
        "python2", "error", "Python 2 packages",
        "Python 2 ended in 2020; `python` and `python-dev` are Python 2 on Ubuntu 20.04 and gone after it",
        "python3, python3-dev; `python-is-python3` where something calls `python`",
        "https://www.python.org/doc/sunset-python-2/; Ubuntu 20.04's python-dev-is-python2", _python2,
    ),
    LintRule(
        "apt-update-alone", "warning", "apt update in a step of its own",
        "the cached step keeps old lists, and a later install asks for files that are gone",
        "update and install in one RUN",
        _PRACTICE + "#apt-get", _apt_alone,
    ),
    LintRule(
        "apt-install-alone", "warning", "apt install without update in the same step",
        "it uses lists of the day an earlier layer was built, or finds none",
        "update and install in one RUN",
        _PRACTICE + "#apt-get", _apt_install_alone,
    ),
    LintRule(
        "apt-in-script", "note", "`apt` in a script",
        "its interface is for people and may change; it says so itself",
        "apt-get",
        "apt(8), SCRIPT USAGE AND DIFFERENCES FROM OTHER APT TOOLS", _apt_tool,
    ),
    LintRule(
        "apt-asks", "error", "apt install waits for an answer",
        "nobody answers in a build: it ends with an error",
        "apt-get install -y",
        _PRACTICE + "#apt-get", _apt_asks,
    ),
    LintRule(
        "apt-recommends", "note", "recommended packages are installed, too",
        "they make the image larger and pull in what nobody asked for",
        "apt-get install --no-install-recommends",
        "https://github.com/hadolint/hadolint/wiki/DL3015", _recommends,
    ),
    LintRule(
        "frontend-in-env", "note", "DEBIAN_FRONTEND in ENV",
        "it also applies to people who work in the container later",
        "write DEBIAN_FRONTEND=noninteractive before the command, or ARG",
        "https://docs.docker.com/engine/faq/", _frontend,
    ),
    LintRule(
        "path-replaced", "warning", "a search path is replaced, not extended",
        "what the base image had on it is lost: a vendor's tools or libraries are no longer found",
        "ENV PATH=/opt/tool/bin:$PATH",
        _REFERENCE + "#env", _path_replaced,
    ),
    LintRule(
        "relative-workdir", "note", "a relative WORKDIR",
        "where it leads depends on the base image",
        "name it from / on",
        _REFERENCE + "#workdir", _cd,
    ),
    LintRule(
        "entrypoint-shell-form", "warning", "an ENTRYPOINT that a shell starts",
        "the program is not process 1: it gets neither signals nor arguments",
        'ENTRYPOINT ["program", "argument"]',
        _REFERENCE + "#entrypoint", _shell_form,
    ),
    LintRule(
        "pipe-hides-failure", "warning", "a pipe whose first program may fail unseen",
        "the step succeeds when the last program does",
        'SHELL ["/bin/bash", "-o", "pipefail", "-c"] before it, or no pipe',
        "https://github.com/hadolint/hadolint/wiki/DL4006", _no_pipefail,
    ),
    LintRule(
        "maintainer", "note", "MAINTAINER",
        "it is deprecated",
        "LABEL org.opencontainers.image.authors=...",
        _REFERENCE + "#maintainer-deprecated", _maintainer,
    ),
)  # fmt: skip
