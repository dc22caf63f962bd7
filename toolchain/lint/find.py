"""Questions that several rules ask of a Dockerfile."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolchain.lint.dockerfile import Dockerfile, Instruction
from toolchain.lint.rule import Hit
from toolchain.lint.shell import ShellCommand

_APT = {"apt", "apt-get", "aptitude"}
_PIP = re.compile(r"pip(\d+(\.\d+)*)?")
_PIP_VALUE_OPTIONS = {
    "-c", "--constraint", "-e", "--editable", "-t", "--target", "-i", "--index-url", "--extra-index-url",
    "-f", "--find-links", "--trusted-host", "--prefix", "--root", "--src", "--platform", "--python-version",
    "--cert", "--progress-bar", "--no-binary", "--only-binary", "-r", "--requirement", "--proxy", "--timeout",
    "--cache-dir",
}  # fmt: skip
_URL = re.compile(r"(?:https?|ftp)://[^\s'\"|;&)>]+")


def runs(dockerfile: Dockerfile) -> Iterator[tuple[Instruction, ShellCommand]]:
    """Every simple command of every RUN."""
    for instruction in dockerfile.named("RUN"):
        for command in instruction.commands:
            yield instruction, command


def hit(instruction: Instruction, found: str, near: str = "") -> Hit:
    """A finding at the line of the instruction on which `near` (by default `found`) stands."""
    return instruction.line_of(near or found), found


def apt_installed(command: ShellCommand) -> tuple[str, ...]:
    """Packages that the command installs through apt."""
    if command.program not in _APT or not command.operands or command.operands[0] != "install":
        return ()
    return command.operands[1:]


def is_apt(command: ShellCommand, *verbs: str) -> bool:
    """Whether the command is apt with one of these verbs."""
    return command.program in _APT and bool(command.operands) and command.operands[0] in verbs


def pip_arguments(command: ShellCommand) -> tuple[str, ...] | None:
    """What follows `pip install`, however pip is started; None for other commands."""
    words = command.arguments
    if len(words) > 2 and words[1:3] == ("-m", "pip"):
        words = words[2:]
    if not words or not _PIP.fullmatch(words[0].rpartition("/")[2]):
        return None
    rest = list(words[1:])
    while rest and rest[0].startswith("-"):
        rest = rest[1:]
    return tuple(rest[1:]) if rest and rest[0] == "install" else None


def pip_requirements(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """The requirements among the arguments of `pip install`, without options, their values and folders."""
    found: list[str] = []
    skip = False
    for word in arguments:
        if skip or word.startswith("-"):
            skip = not skip and word in _PIP_VALUE_OPTIONS
            continue
        if not word.startswith((".", "/", "$", ">", "<", "2>")) and not word.endswith((".whl", ".tar.gz")):
            found.append(word)
    return tuple(found)


def urls(text: str) -> tuple[str, ...]:
    """The URLs in a text."""
    return tuple(_URL.findall(text))


def base_images(dockerfile: Dockerfile) -> Iterator[tuple[Instruction, str]]:
    """References of FROM (and COPY --from) that are images, not stages of this file."""
    stages: set[str] = set()
    for instruction in dockerfile.named("FROM"):
        words = instruction.value.split()
        if words and words[0] not in stages and words[0] != "scratch":
            yield instruction, _with_arguments(dockerfile, words[0])
        if len(words) == 3 and words[1].lower() == "as":
            stages.add(words[2])


def _with_arguments(dockerfile: Dockerfile, reference: str) -> str:
    """The reference with the defaults of the ARGs before the first FROM."""
    for instruction in dockerfile.named("ARG"):
        name, equals, value = instruction.value.partition("=")
        if equals and instruction.stage < 0:
            value = value.strip("\"'")
            reference = re.sub(
                rf"\$\{{{re.escape(name)}(:[-+][^}}]*)?\}}|\${re.escape(name)}\b", value, reference
            )
    return reference


def tag_of(reference: str) -> str:
    """The tag of an image reference, without its digest; empty when there is none."""
    last = reference.partition("@")[0].rpartition("/")[2]
    return last.partition(":")[2]


def version_of(text: str) -> tuple[int, ...]:
    """The first dotted number of a text as numbers; empty when there is none."""
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def text_of(dockerfile: Dockerfile) -> str:
    """All that instructions say, comments left out."""
    return "\n".join(f"{' '.join(one.flags)} {one.value}\n{one.heredoc}" for one in dockerfile.instructions)


def builds_dpcpp(dockerfile: Dockerfile) -> bool:
    """Whether the file builds intel/llvm."""
    return bool(re.search(r"github\.com/intel/llvm(\.git)?\b|buildbot/configure\.py", text_of(dockerfile)))


def settings(instruction: Instruction) -> tuple[tuple[str, str], ...]:
    """Names and values of an ENV or ARG."""
    value = instruction.value
    if instruction.name == "ENV" and not re.match(r"[\w.]+=", value):
        name, _, rest = value.partition(" ")
        return ((name, rest.strip()),)
    pairs = re.findall(r"([\w.]+)(?:=(\"(?:[^\"\\]|\\.)*\"|'[^']*'|(?:[^\s\\]|\\.)*))?", value)
    return tuple((name, text.strip("\"'")) for name, text in pairs)
