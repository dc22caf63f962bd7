"""Rules about what drifts: the same file gives another image next month."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolchain.lint import find
from toolchain.lint.dockerfile import Dockerfile, Instruction
from toolchain.lint.rule import Hit, LintRule
from toolchain.lint.shell import ShellCommand

_COMMIT = re.compile(r"[0-9a-f]{40}")
_CHECKS = re.compile(
    r"sha(256|384|512)sum\b.*\s(-c|--check)|sha(256|384|512)sum\s+-\w*c|--checksum|gpg\b.*--verify"
)
_MOVING = re.compile(r"/(latest|nightly|HEAD|master|main)/|/releases/latest\b|-latest\.|nightly")
_RUNNING_KERNEL = re.compile(r"[\w.-]*(\$\(|`)\s*uname\s+-\w*r\w*\s*(\)|`)")
_ROLLING = re.compile(r"\b(debian|latest)\b")
_ROLLING_ADDRESS = re.compile(r"repo\.radeon\.com/(rocm/apt|amdgpu)/(debian|latest)(?=[/\s'\"]|$)")
_RELEASE = re.compile(r"\d+\.\d+")
_ARCHIVE = re.compile(r"\.(tar(\.\w+)?|tgz|txz|zip|deb|rpm|whl|run|sh|py|bin|AppImage)(\?|$)")


def _latest(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, reference in find.base_images(dockerfile):
        if "@" not in reference and find.tag_of(reference) in ("", "latest"):
            yield find.hit(instruction, reference, "FROM")


def _no_digest(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, reference in find.base_images(dockerfile):
        if "@sha256:" not in reference and find.tag_of(reference) not in ("", "latest"):
            yield find.hit(instruction, reference, "FROM")


def _git(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        if command.program != "git" or command.operands[:1] != ("clone",):
            continue
        if not any(_goes_to_commit(other) for other in instruction.commands):
            yield find.hit(instruction, command.text, "git clone")


def _goes_to_commit(command: ShellCommand) -> bool:
    verbs = ("checkout", "switch", "reset", "fetch")
    return (
        command.program == "git"
        and any(verb in command.operands for verb in verbs)
        and any(_COMMIT.fullmatch(word) for word in command.operands)
    )


def _pip(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        arguments = find.pip_arguments(command)
        if arguments is None or "--require-hashes" in arguments or _constrained(arguments):
            continue
        loose = [one for one in find.pip_requirements(arguments) if not _is_pinned(one)]
        if loose:
            yield find.hit(instruction, f"pip install {' '.join(loose)}", loose[0])
        elif _has(arguments, "-r", "--requirement"):
            yield find.hit(instruction, command.text, "pip")


def _constrained(arguments: tuple[str, ...]) -> bool:
    return _has(arguments, "-c", "--constraint")


def _has(arguments: tuple[str, ...], *options: str) -> bool:
    return any(word in options or word.startswith(tuple(f"{one}=" for one in options)) for word in arguments)


def _is_pinned(requirement: str) -> bool:
    if "git+" in requirement:
        return bool(_COMMIT.search(requirement))
    return bool(re.search(r"===?[^=*]+$", requirement)) or "#sha256=" in requirement


def _setup_py(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        if command.program.startswith("python") and command.operands[:2] in (
            ("setup.py", "install"),
            ("setup.py", "develop"),
        ):
            yield find.hit(instruction, command.text, "setup.py")


def _apt(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        loose = [one for one in find.apt_installed(command) if not re.search(r"=|\.deb$|^\$", one)]
        if loose:
            yield find.hit(instruction, f"{command.program} install {' '.join(loose)}", loose[0])


def _apt_upgrade(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        if find.is_apt(command, "upgrade", "dist-upgrade", "full-upgrade"):
            yield find.hit(instruction, command.text, command.operands[0])


def _download(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        if command.program not in ("wget", "curl", "aria2c") or _CHECKS.search(instruction.script):
            continue
        yield from (
            find.hit(instruction, url) for word in command.words for url in find.urls(word) if _is_file(url)
        )


def _is_file(url: str) -> bool:
    return not url.endswith((".gpg", ".asc", ".pub", ".key"))


def _moving_download(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("RUN", "ADD"):
        for url in find.urls(instruction.script):
            if _MOVING.search(url) and (_ARCHIVE.search(url) or "releases/latest" in url):
                yield find.hit(instruction, url)


def _add_url(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("ADD"):
        if not any(flag.startswith("--checksum=") for flag in instruction.flags):
            yield from (find.hit(instruction, word) for word in _sources(instruction) if find.urls(word))


def _sources(instruction: Instruction) -> tuple[str, ...]:
    return instruction.words[:-1]


def _rolling_rocm(dockerfile: Dockerfile) -> Iterator[Hit]:
    edits = [
        (instruction, command, *edit)
        for instruction, command in find.runs(dockerfile)
        if command.program == "sed"
        for edit in _substitutions(command)
    ]
    if not any(_ROLLING.search(old) and _RELEASE.search(new) for _, _, old, new in edits):
        for instruction in dockerfile.instructions:
            text = f"{instruction.value}\n{instruction.heredoc}"
            if match := _ROLLING_ADDRESS.search(text):
                yield find.hit(instruction, match[0])
    for instruction, command, old, new in edits:
        if re.search(r"rocm\S*\.list", command.text) and _ROLLING.search(new) and not _ROLLING.search(old):
            yield find.hit(instruction, command.text, ".list")


def _substitutions(command: ShellCommand) -> Iterator[tuple[str, str]]:
    """What a `sed` replaces, and by what: `s/OLD/NEW/`, with any sign between."""
    for word in command.words[1:]:
        for match in re.finditer(r"(?:^|[;{]\s*)s([/|#,@])(.*?)\1(.*?)\1", word):
            yield match[2], match[3]


def _builders_kernel(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("RUN"):
        if match := _RUNNING_KERNEL.search(instruction.script):
            yield find.hit(instruction, match[0])


def _conda(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        if command.program not in ("conda", "mamba", "micromamba") or command.operands[:1] != ("install",):
            continue
        loose = [one for one in command.operands[1:] if "=" not in one and "/" not in one]
        if loose:
            yield find.hit(instruction, f"{command.program} install {' '.join(loose)}", loose[0])


_DOCKER = "https://docs.docker.com/build/building/best-practices/"
RULES = (
    LintRule(
        "base-latest", "warning", "the base image has no tag, or the tag `latest`",
        "`latest` is another image tomorrow, so the same file builds something else",
        "name a version and its digest: FROM IMAGE:VERSION@sha256:...",
        _DOCKER, _latest,
    ),
    LintRule(
        "base-without-digest", "note", "the base image is not named by its digest",
        "vendors rebuild and delete tags; a digest names one image for ever",
        "add @sha256:..., which `docker buildx imagetools inspect IMAGE` prints",
        _DOCKER, _no_digest,
    ),
    LintRule(
        "git-unpinned", "warning", "a git clone without the commit that is meant",
        "a branch or tag moves; nobody can tell later what was built",
        "clone, then `git checkout` the 40-digit commit in the same RUN",
        _DOCKER, _git,
    ),
    LintRule(
        "pip-unpinned", "warning", "Python packages without exact versions",
        "pip takes the newest on the day of the build, and with -U replaces what the vendor had installed",
        "write name==version, or -r with --require-hashes",
        "https://pip.pypa.io/en/stable/topics/repeatable-installs/", _pip,
    ),
    LintRule(
        "setup-py-install", "warning", "`setup.py install` or `develop`",
        "it is deprecated, and fetches the newest of each dependency without pip's checks",
        "python3 -m pip install --no-deps .",
        "https://packaging.python.org/en/latest/discussions/setup-py-deprecated/", _setup_py,
    ),
    LintRule(
        "apt-unpinned", "note", "apt packages without versions",
        "a repository keeps the newest only: the same line installs other versions next month",
        "write package=version, or let `tk image lock` record what was installed",
        _DOCKER, _apt,
    ),
    LintRule(
        "apt-upgrade", "warning", "the whole base is upgraded",
        "what the vendor tested is replaced by what is newest on that day",
        "take a newer base image instead",
        _DOCKER, _apt_upgrade,
    ),
    LintRule(
        "download-without-checksum", "warning", "a download whose content nobody checks",
        "a changed or forged file gets into the image unnoticed",
        'add `echo "SHA256  FILE" | sha256sum -c -` in the same RUN',
        _DOCKER, _download,
    ),
    LintRule(
        "download-moving", "warning", "a download from an address whose content changes",
        "`latest` and `nightly` are other files tomorrow",
        "name a version",
        _DOCKER, _moving_download,
    ),
    LintRule(
        "add-url", "warning", "ADD from the network without --checksum",
        "the content is neither checked nor cached by what it is",
        "ADD --checksum=sha256:..., or wget with sha256sum -c in a RUN",
        "https://docs.docker.com/reference/dockerfile/#add---checksum", _add_url,
    ),
    LintRule(
        "rocm-rolling-suite", "error", "the rolling ROCm suite `debian` or `latest`",
        "it moves to each new ROCm: the packages soon fit neither the base nor, from 5.5 on, DPC++ of 2022",
        "write a list of your own with a version: deb [arch=amd64 signed-by=/etc/apt/keyrings/rocm.gpg] "
        "https://repo.radeon.com/rocm/apt/5.2.3/ ubuntu main",
        "https://github.com/ROCm/ROCm-docker build_all.sh; https://repo.radeon.com/rocm/apt/", _rolling_rocm,
    ),
    LintRule(
        "builders-kernel", "error", "the image depends on the kernel of the machine that builds it",
        "`uname -r` answers for the builder, not for the machine that runs the image",
        "leave kernel headers and drivers to the host",
        "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/how-to/docker.html", _builders_kernel,
    ),
    LintRule(
        "conda-unpinned", "warning", "conda packages without versions",
        "conda takes the newest on the day of the build",
        "write name=version=build, or install from a lock file",
        "https://docs.conda.io/projects/conda/en/latest/user-guide/tasks/manage-environments.html", _conda,
    ),
)  # fmt: skip
