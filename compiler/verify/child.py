"""The process that `isolate.verify_library` starts: request on standard input, answer on standard output.

Each line of the answer is one JSON document: how far the work has come, and at last the report or the error.
"""

from __future__ import annotations

import json
import os
import sys

from compiler.core.diagnostics import TkError
from compiler.verify.isolate import answer_of, plain, progress_line, request_from


def main() -> int:
    """Answer one request; whatever else is printed in this process goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = request_from(json.load(sys.stdin))
    try:
        from compiler.verify.check import verify_here

        def tell(doing: str, done: float, total: float) -> None:
            line = progress_line(doing, done, total) + "\n"
            os.write(answers.fileno(), line.encode())  # at once and whole, from whatever thread

        answer = plain(verify_here(request, tell))
        code = 0
    except TkError as error:
        answer, code = answer_of(error), int(error.code)
    with answers:
        json.dump(answer, answers)
    return code


if __name__ == "__main__":
    sys.exit(main())
