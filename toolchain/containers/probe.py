"""What an image offers to the bundled compiler, asked once per image: its Python and its C++ compiler."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from compiler import BadInputError, HostError, content_key, load_settings, write_atomic
from toolchain.engine.client import Engine

OLDEST_PYTHON = (3, 11)
_PYTHON_VARIABLE = "TK_PYTHON"
"""In an image's environment: its Python for the bundled compiler, where that is not `python3`."""
_PROBE = """
import json, platform, shutil, subprocess, sys
def first_line(name):
    path = shutil.which(name)
    if not path:
        return ""
    text = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    return text.splitlines()[0] if text else ""
print(json.dumps({
    "python_version": "%d.%d" % sys.version_info[:2],
    "machine": platform.machine(),
    "libc": " ".join(platform.libc_ver()),
    "compiler": first_line("g++") or first_line("clang++"),
}))
"""


@dataclass(frozen=True, slots=True)
class Image:
    """An image that can run jobs: `id` is the engine's digest of it, `compiler` empty when it has none."""

    reference: str
    id: str
    python: str
    python_version: str
    machine: str
    libc: str
    compiler: str


def probe_image(engine: Engine, reference: str) -> Image:
    """Ask `reference` what it offers, or remember it; raises HostError or BadInputError with the fix."""
    facts = engine.image(reference)
    if facts is None:
        raise HostError(
            f"the engine at {engine.endpoint} has no image {reference}",
            hint="build it with `tk image build NAME`, or pull it",
        )
    identity = str(facts["Id"])
    variables = dict(one.partition("=")[::2] for one in (facts.get("Config") or {}).get("Env") or ())
    python = variables.get(_PYTHON_VARIABLE, "python3")
    remembered = load_settings().cache_dir / "images" / f"{content_key(_PROBE, identity, python)}.json"
    try:
        answer = json.loads(remembered.read_text())
        return Image(reference, identity, python, **answer)
    except (OSError, ValueError, TypeError):
        answer = _ask(engine, reference, python)
    image = Image(reference, identity, python, **answer)
    kept = {name: value for name, value in asdict(image).items() if name in answer}
    write_atomic(remembered, json.dumps(kept))
    return image


def _ask(engine: Engine, reference: str, python: str) -> dict[str, str]:
    done = engine.run(reference, [python, "-c", _PROBE], timeout=60)
    try:
        answer: dict[str, str] = json.loads(done.output)
        version = tuple(int(part) for part in answer["python_version"].split("."))
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(
            f"the image {reference} cannot run the bundled compiler",
            why=f"`{python}` does not work in it: {done.output.strip().splitlines()[-1:] or done.code}",
            hint="use an image made by `tk image build`: each has a Python",
        ) from error
    if version < OLDEST_PYTHON:
        raise BadInputError(
            f"the image {reference} cannot run the bundled compiler",
            why=f"its Python is {answer['python_version']}, and 3.11 or newer is needed",
            hint=f"use an image made by `tk image build`, or set {_PYTHON_VARIABLE} in it",
        )
    return answer
