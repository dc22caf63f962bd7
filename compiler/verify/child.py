"""The process that `isolate.verify_library` starts: request on standard input, answer on standard output.

Each line of the answer is one JSON document: how far the work has come, and at last the report or the error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from compiler.core.diagnostics import TkError
from compiler.core.progress import Progress
from compiler.verify.isolate import answer_of, plain, progress_line, request_from


def serve(answer_to: Callable[[Any, Progress], Any]) -> int:
    """Answer one request; whatever else is printed in this process goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.load(sys.stdin)

    def tell(doing: str, done: float, total: float) -> None:
        line = progress_line(doing, done, total) + "\n"
        os.write(answers.fileno(), line.encode())  # at once and whole, from whatever thread

    try:
        answer, code = answer_to(request, tell), 0
    except TkError as error:
        answer, code = answer_of(error), int(error.code)
    with answers:
        json.dump(answer, answers)
    return code


def _verify(request: Any, tell: Progress) -> Any:
    from compiler.verify.check import verify_here  # slow to import: what fails before needs none of it

    return plain(verify_here(request_from(request), tell))


def main() -> int:
    """Verify a library."""
    return serve(_verify)


if __name__ == "__main__":
    sys.exit(main())
