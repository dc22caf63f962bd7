"""Replace files that a folder holds several times, under several names, by links to one of them.

Wheels cannot hold links, so they bring a shared library once for each of its names (libx.so, libx.so.1 ...).
"""

import filecmp
import sys
from pathlib import Path

LEAST_BYTES = 1 << 16


def main(top: Path) -> None:
    """Link equal files of one folder to the one with the longest name."""
    seen: dict = {}
    for path in sorted(top.rglob("*"), key=lambda path: (str(path.parent), -len(path.name), path.name)):
        if path.is_symlink() or not path.is_file() or path.stat().st_size < LEAST_BYTES:
            continue
        others = seen.setdefault((path.parent, path.stat().st_size), [])
        same = [other for other in others if filecmp.cmp(str(path), str(other), shallow=False)]
        if same:
            path.unlink()
            path.symlink_to(same[0].name)
        else:
            others.append(path)


main(Path(sys.argv[1]))
