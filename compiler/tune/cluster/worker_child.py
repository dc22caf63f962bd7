"""One worker as a process: a request on standard input; it writes its address to standard output."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from compiler.cluster.address import ClusterAddress, TlsFiles
from compiler.cluster.serve import serve_worker
from compiler.core.files import private_directory


def main() -> int:
    """Be the worker that the request describes."""
    asked = json.load(sys.stdin)
    files = (None if one is None else Path(one) for one in asked["tls"])
    address = ClusterAddress(asked["cluster"], TlsFiles(*files))
    with private_directory("tk-worker") as directory:
        serve_worker(address, asked["host"], asked["resources"], directory, _say)
    return 0


def _say(address: str) -> None:
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
