"""Runs one mutant: reads model, target and text, says in JSON what came out of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from compiler.core.diagnostics import BuildError, TkError
from compiler.core.files import private_directory
from tests.mutation.models import MODELS
from tests.support.emulated_models import emulate, text_only
from tests.support.onnx_models import assert_close, run_onnxruntime

TOLERANCE = 1e-5


def outcome(model: str, target: str, text: str | None, directory: Path) -> tuple[str, str]:
    """What becomes of a model whose kernels have this text: `survived`, or how it was found; the message."""
    proto, feeds = MODELS[model]()
    want = run_onnxruntime(proto, feeds)
    with pytest.MonkeyPatch.context() as patch:
        text_only(patch, None if text is None else lambda _: text)
        try:
            got = emulate(proto, feeds, target, directory)
        except BuildError as error:
            return "not compiled", str(error)
        except TkError as error:
            return "reported", error.what
    for name, array in want.items():
        try:
            assert_close(got[name], array, TOLERANCE, name)
        except AssertionError as error:
            return "wrong result", str(error).strip().partition("\n")[0]
    return "survived", ""


def main() -> int:
    """Answer one request."""
    request = json.load(sys.stdin)
    with private_directory("tk-mutant") as directory:
        found, message = outcome(request["model"], request["target"], request["text"], directory)
    json.dump({"outcome": found, "message": message}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
