"""Where `tk` starts: says in one message where it cannot run, before anything that needs a newer Python.

Written so that every Python 3 reads it: no f-strings, no annotations of variables, none of our imports.
"""

import os
import sys

OLDEST = (3, 11)
_EXIT_HOST = 4
_IMAGE = "python:3.12-bookworm"
_CONTAINER = 'docker run -it --rm -v "$PWD":/work -w /work ' + _IMAGE + " bash"


def main() -> int:
    """Run `tk`, or say why it cannot run here; returns the exit code."""
    problem = find_problem()
    if problem:
        report(problem, sys.argv[1:])
        return _EXIT_HOST
    from toolchain.main import main as run

    return run()


def find_problem() -> dict:  # type: ignore[type-arg]
    """What, why and hint where this platform is not one that tk runs on; empty where it is."""
    for found in (_system(), _libc(), _python()):
        if found:
            return dict(zip(("what", "why", "hint"), found))  # noqa: B905 - `strict` is of Python 3.10
    return {}


def report(problem: dict, arguments: list) -> None:  # type: ignore[type-arg]
    """Write the error as `tk` writes all errors, with `--json` as a document, too."""
    for label, key in (("error", "what"), ("why", "why"), ("hint", "hint")):
        sys.stderr.write(label + ": " + problem[key] + "\n")
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in own:
        import json

        document = dict(problem, where="", code=_EXIT_HOST)
        sys.stdout.write(json.dumps({"error": document}, indent=2) + "\n")


def _system() -> tuple:  # type: ignore[type-arg]
    system = str(sys.platform)
    if system.startswith("linux"):
        return ()
    if system == "darwin":
        return (
            "tk does not run on macOS",
            "its libraries are Linux libraries, and it works with Linux's files, processes and containers",
            "what works here: tk in a Linux container or virtual machine, as `" + _CONTAINER + "`",
        )
    if system in ("win32", "cygwin", "msys"):
        return (
            "tk does not run on Windows itself",
            "its libraries are Linux libraries, and it works with Linux's files, processes and containers",
            "what works here: tk inside WSL 2 (`wsl --install -d Ubuntu-24.04`, then install tk there)",
        )
    return (
        "tk does not run on this system (" + system + ")",
        "it is made for Linux with glibc",
        "use a Linux machine, container or virtual machine",
    )


def _libc() -> tuple:  # type: ignore[type-arg]
    """Glibc answers with its version; musl, as of Alpine, does not know the question."""
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, OSError, ValueError):
        version = None
    if version:
        return ()
    return (
        "tk needs glibc, and this system has another C library",
        "on musl (Alpine) the vendors' stacks, drivers and some of tk's own packages are not to be had",
        "what works here: tk in a container with glibc, as `"
        + _CONTAINER
        + "`; or use Debian, Ubuntu or Fedora",
    )


def _python() -> tuple:  # type: ignore[type-arg]
    if tuple(sys.version_info[:2]) >= OLDEST:
        return ()
    found = ".".join(str(one) for one in sys.version_info[:3])
    wanted = ".".join(str(one) for one in OLDEST)
    return (
        "tk needs Python " + wanted + " or newer",
        "this is Python " + found + " (" + str(sys.executable) + ")",
        "install tk for a newer one beside it, as `apt install python3.12 python3.12-venv` where the system "
        "has it, or with uv: `uv tool install --python 3.12 .` in the checkout; what works here: libraries "
        "that tk made, which need no Python",
    )
