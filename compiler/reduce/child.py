"""The process that `isolate.reduce_model` starts; it speaks as `compiler/verify/child.py` does."""

from __future__ import annotations

import sys
from typing import Any

from compiler.core.progress import Progress
from compiler.reduce.isolate import plain_request, request_of
from compiler.verify.child import serve


def _reduce(request: Any, tell: Progress) -> Any:
    from compiler.reduce.engine import reduce_here  # the whole compiler

    return plain_request(reduce_here(request_of(request), tell))


def main() -> int:
    """Reduce a model."""
    return serve(_reduce)


if __name__ == "__main__":
    sys.exit(main())
