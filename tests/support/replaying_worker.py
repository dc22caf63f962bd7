"""A worker whose measurements were made before, as a program with the words ADDRESS RESOURCE FILE.

FILE has lines of workload, program and seconds; what is not there is a defect of the test.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler.cluster.address import ClusterAddress
from compiler.cluster.serve import serve_worker
from compiler.stages.workload import Workload
from compiler.tune.cluster import work
from compiler.tune.record import OK, Measured


def replay(times: Path) -> None:
    """Let this process answer from a file in place of measuring."""
    known = {(key, program): seconds for key, program, seconds in json.loads(times.read_text())}

    def measured(
        workload: Workload, asked: Mapping[str, Any], built: Sequence[tuple[Any, Any]]
    ) -> work.MeasuredPart:
        assert all(files and files[0].startswith(b"\x7fELF") for _, files in built), "built on the way"
        programs = [one["program"] for one, _ in built]
        found = [Measured(OK, (known[workload.key, one],), "", "replay") for one in programs[1:]]
        return work.MeasuredPart(found, asked["pace"] or known[workload.key, programs[0]])

    work.measure_here = measured


def main(address: str, resource: str, times: str) -> None:
    """Be the worker."""
    replay(Path(times))
    with tempfile.TemporaryDirectory() as directory:
        serve_worker(ClusterAddress(address), "127.0.0.1", {resource: 1}, Path(directory), print)


if __name__ == "__main__":
    main(*sys.argv[1:])
