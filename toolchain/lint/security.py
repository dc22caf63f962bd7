"""Rules about what lets others in, or lets more out than was meant."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from toolchain.lint import find
from toolchain.lint.dockerfile import Dockerfile, Instruction
from toolchain.lint.rule import Hit, LintRule

_SECRET_NAME = re.compile(
    r"(passw(or)?d|passphrase|secret|token|api_?key|access_?key|private_?key|credential)", re.IGNORECASE
)
_HARMLESS_NAME = re.compile(r"(_FILE|_PATH|_DIR|_URL|_ID)$|^(TOKENIZERS?_|.*_TOKENS$)", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{15,}|AKIA[0-9A-Z]{16}|xox[abp]-[\w-]{10,}|"
    r"hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_USERINFO = re.compile(r"https?://[^/\s:@'\"$]+:(?!\$)[^/\s@'\"]+@")
_SECRET_FILE = re.compile(
    r"(^|/)(\.ssh|id_(rsa|dsa|ecdsa|ed25519)|\.netrc|\.pypirc|\.npmrc|\.env|\.aws|\.git-credentials|\.kube|"
    r"\.docker(/config\.json)?|.*\.pem|.*\.p12|.*\.pfx)/?$"
)
_HOST_OPTIONS = r"docker\s+run|podman\s+run|nerdctl\s+run"


def _apt_key(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        if command.program == "apt-key":
            yield find.hit(instruction, command.text, "apt-key")
        elif any(re.search(r"/etc/apt/trusted\.gpg(\.d)?", word) for word in command.words):
            yield find.hit(instruction, command.text, "trusted.gpg")


def _unauthenticated(dockerfile: Dockerfile) -> Iterator[Hit]:
    pattern = (
        r"\[[^\]]*trusted=yes[^\]]*\]|--allow-unauthenticated|--force-yes|--allow-insecure-repositories|"
        r"AllowInsecureRepositories"
    )
    for instruction in dockerfile.named("RUN", "COPY"):
        if match := re.search(pattern, instruction.script):
            yield find.hit(instruction, match[0])


def _plain_http(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("ADD"):
        yield from (find.hit(instruction, url) for url in find.urls(instruction.value) if _is_http(url))
    for instruction, command in find.runs(dockerfile):
        if command.program in ("wget", "curl", "git", "aria2c") or find.pip_arguments(command) is not None:
            for word in command.words:
                yield from (find.hit(instruction, url) for url in find.urls(word) if _is_http(url))


def _is_http(url: str) -> bool:
    return url.startswith(("http://", "ftp://")) and not re.match(
        r"http://(localhost|127\.0\.0\.1|\[::1\])", url
    )


def _pipe_to_shell(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("RUN"):
        commands = instruction.commands
        for first, second in itertools.pairwise(commands):
            if first.program in ("curl", "wget") and first.operator == "|" and _is_shell(second.program):
                yield find.hit(instruction, f"{first.text} | {second.text}", first.program)
        if match := re.search(
            r"\b(ba|z|da)?sh\s+(-c\s+\"?\$\(|<\(\s*)(curl|wget)[^)]*\)", instruction.script
        ):
            yield find.hit(instruction, match[0])


def _is_shell(program: str) -> bool:
    return program in ("sh", "bash", "dash", "zsh") or program.startswith("python")


def _tls_off(dockerfile: Dockerfile) -> Iterator[Hit]:
    pattern = (
        r"--no-check-certificate|curl\b[^|;&]*\s(-[a-zA-Z]*k[a-zA-Z]*|--insecure)\s|--trusted-host\b\S*|"
        r"http\.sslVerify[= ]\"?false|GIT_SSL_NO_VERIFY[= ]\S+|Verify-Peer[= \"]+false|"
        r"NODE_TLS_REJECT_UNAUTHORIZED[= ]0|strict-ssl[= ]false|PYTHONHTTPSVERIFY[= ]0"
    )
    for instruction in dockerfile.named("RUN", "ENV", "ARG"):
        if match := re.search(pattern, f"{instruction.script} "):
            yield find.hit(instruction, match[0].strip())


def _secret_in_env(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("ENV", "ARG"):
        for name, value in find.settings(instruction):
            if not _SECRET_NAME.search(name) or _HARMLESS_NAME.search(name):
                continue
            if value or instruction.name == "ARG":
                yield find.hit(instruction, f"{instruction.name} {name}", name)


def _secret_in_text(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.instructions:
        text = f"{instruction.value}\n{instruction.heredoc}"
        for match in (*_SECRET_VALUE.finditer(text), *_USERINFO.finditer(text)):
            yield find.hit(instruction, f"{match[0][:12]}...", match[0])


def _secret_file(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("COPY", "ADD"):
        if any(flag.startswith("--from=") for flag in instruction.flags):
            continue
        for word in instruction.words[:-1]:
            if _SECRET_FILE.search(word):
                yield find.hit(instruction, word)


def _sudo(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        if "sudo" in command.words[:1]:
            yield find.hit(instruction, command.text, "sudo")
        elif "sudo" in find.apt_installed(command):
            yield find.hit(instruction, f"{command.program} install sudo", "sudo")
        elif "NOPASSWD" in command.text:
            yield find.hit(instruction, command.text, "NOPASSWD")


def _privileged(dockerfile: Dockerfile) -> Iterator[Hit]:
    yield from _told(dockerfile, r"--privileged\b")
    for instruction in dockerfile.named("RUN"):
        if "--security=insecure" in instruction.flags:
            yield find.hit(instruction, "--security=insecure")


def _host_network(dockerfile: Dockerfile) -> Iterator[Hit]:
    yield from _told(dockerfile, r"--net(work)?[= ]host\b")
    for instruction in dockerfile.named("RUN"):
        if "--network=host" in instruction.flags:
            yield find.hit(instruction, "--network=host")


def _shared_tmp(dockerfile: Dockerfile) -> Iterator[Hit]:
    yield from _told(dockerfile, r"(-v|--volume)[= ]/tmp:/tmp\S*")


def _sys_admin(dockerfile: Dockerfile) -> Iterator[Hit]:
    yield from _told(dockerfile, r"--cap-add[= ](CAP_)?(SYS_ADMIN|ALL)\b")


def _told(dockerfile: Dockerfile, option: str) -> Iterator[Hit]:
    """Where comments, labels or commands tell people to run the image with an option."""
    for comment in dockerfile.comments:
        if match := re.search(option, comment.text):
            yield comment.line, match[0]
    for instruction in dockerfile.named("LABEL", "CMD", "ENTRYPOINT", "RUN"):
        text = " ".join(instruction.words) if instruction.is_exec else instruction.script
        if (match := re.search(option, text)) and (instruction.name == "LABEL" or _runs_containers(text)):
            yield find.hit(instruction, match[0])


def _runs_containers(text: str) -> bool:
    return bool(re.search(_HOST_OPTIONS, text))


def _no_user(dockerfile: Dockerfile) -> Iterator[Hit]:
    stage = dockerfile.last_stage
    users = [one for one in stage if one.name == "USER"]
    if not users:
        yield stage[-1].first, "no USER: root"
    elif users[-1].value.partition(":")[0] in ("root", "0"):
        yield find.hit(users[-1], f"USER {users[-1].value}", users[-1].value)


def _open_to_all(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        if command.program == "chmod" and re.search(
            r"(^|\s)(0?777|a\+\w*w\w*|o\+\w*w\w*|ugo\+\w*w\w*)(\s|$)", command.text
        ):
            yield find.hit(instruction, command.text, "chmod")


def _ssh_server(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction, command in find.runs(dockerfile):
        if "openssh-server" in find.apt_installed(command):
            yield find.hit(instruction, "openssh-server")
        elif command.program == "chpasswd" or (command.program == "passwd" and "-d" in command.options):
            yield find.hit(instruction, command.text, command.program)


def _add_local(dockerfile: Dockerfile) -> Iterator[Hit]:
    for instruction in dockerfile.named("ADD"):
        for word in instruction.words[:-1]:
            if not _is_remote(instruction, word) and not re.search(r"\.(tar(\.\w+)?|t[gxb]z)$", word):
                yield find.hit(instruction, word)


def _is_remote(instruction: Instruction, word: str) -> bool:
    return bool(find.urls(word)) or word.startswith(("git@", "<<")) or bool(instruction.heredoc)


_APT = "apt-key(8), DEPRECATION"
_SECRETS = "https://docs.docker.com/build/building/secrets/"
_RUNNING = "https://docs.docker.com/engine/security/"
RULES = (
    LintRule(
        "apt-key", "error", "a key is trusted for every repository",
        "apt-key is deprecated, gone from Debian 13, and its keys may sign any package of any vendor",
        "put the key into /etc/apt/keyrings, and signed-by=/etc/apt/keyrings/NAME.gpg into the list",
        _APT, _apt_key,
    ),
    LintRule(
        "apt-unauthenticated", "error", "packages are taken without checking who signed them",
        "whoever answers in the repository's place decides what is installed",
        "install the repository's key and name it with signed-by=",
        "apt-secure(8)", _unauthenticated,
    ),
    LintRule(
        "plain-http", "error", "a download over plain http",
        "anybody on the way can replace it",
        "use https, and check the sha256",
        _SECRETS, _plain_http,
    ),
    LintRule(
        "pipe-to-shell", "error", "a download runs as a program unseen",
        "whatever the server sends that day runs as root in the build",
        "download, compare the sha256, then run",
        "https://github.com/hadolint/hadolint/wiki/DL4006", _pipe_to_shell,
    ),
    LintRule(
        "tls-off", "error", "certificates are not checked",
        "anybody on the way can answer in the server's name",
        "give the build your CA bundle (RUN --mount=type=secret); with tk: `ca_bundle` in site.yaml",
        _SECRETS, _tls_off,
    ),
    LintRule(
        "secret-in-env", "error", "a secret in ENV or ARG",
        "it stays in the image's configuration or history, for everybody who pulls it",
        "RUN --mount=type=secret,id=NAME, and read /run/secrets/NAME there",
        _SECRETS, _secret_in_env,
    ),
    LintRule(
        "secret-in-text", "error", "a password, token or key in the file",
        "it stays in the image's history and in the file's",
        "revoke it, then use RUN --mount=type=secret",
        _SECRETS, _secret_in_text,
    ),
    LintRule(
        "secret-file", "error", "a file with credentials is copied into the image",
        "deleting it in a later layer does not remove it",
        "RUN --mount=type=secret or --mount=type=ssh, and a .dockerignore",
        _SECRETS, _secret_file,
    ),
    LintRule(
        "sudo", "warning", "sudo in an image",
        "build steps are root anyway, and whoever gets into the container becomes root by it",
        "leave sudo out; switch with USER",
        "https://docs.docker.com/build/building/best-practices/#user", _sudo,
    ),
    LintRule(
        "privileged", "error", "the image is meant to run with --privileged",
        "that gives the container every device and capability of the host; no GPU needs it",
        "name the devices: `tk image run --explain NAME` prints the few options that are needed, and why",
        _RUNNING, _privileged,
    ),
    LintRule(
        "host-network", "warning", "the host's network",
        "all that listens on the host's loopback is reachable, and builds depend on the host's set-up",
        "leave it out, or publish the one port with -p",
        _RUNNING, _host_network,
    ),
    LintRule(
        "shared-tmp", "warning", "the host's /tmp in the container",
        "tools of several containers write the same names there (libsycl-*.cubin: Permission denied)",
        "a private temporary folder: --tmpfs /tmp, or TMPDIR on a volume",
        "intel/llvm issues 7677 and 7777", _shared_tmp,
    ),
    LintRule(
        "cap-sys-admin", "error", "CAP_SYS_ADMIN or all capabilities",
        "it is nearly root on the host; NVIDIA documents it for reading performance counters only",
        "leave it out; for profiling: `tk image run --allow-profiling`",
        "https://developer.nvidia.com/ERR_NVGPUCTRPERM; intel/llvm issue 7777", _sys_admin,
    ),
    LintRule(
        "no-user", "warning", "the image runs as root",
        "a mistake or a break-in inside is root's, and files written into mounted folders belong to root",
        "end with USER and a numeric uid; give the caller's at run time: --user $(id -u):$(id -g)",
        "https://docs.docker.com/build/building/best-practices/#user", _no_user,
    ),
    LintRule(
        "open-to-all", "warning", "files that everybody may write",
        "any user of the container can replace what others run",
        "give the folder to the user that needs it (COPY --chown, install -d -o)",
        "https://docs.docker.com/build/building/best-practices/#user", _open_to_all,
    ),
    LintRule(
        "remote-login", "warning", "a server for logins, or a password",
        "the same password or host key is in every copy of the image",
        "enter with `docker exec` or `tk image shell`",
        _RUNNING, _ssh_server,
    ),
    LintRule(
        "add-instead-of-copy", "note", "ADD for local files",
        "ADD also unpacks and downloads, by rules that depend on the name",
        "use COPY",
        "https://docs.docker.com/build/building/best-practices/#add-or-copy", _add_local,
    ),
)  # fmt: skip
