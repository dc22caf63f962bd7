"""Replace files that a folder holds several times, under several names, by links to one of them.

Wheels cannot hold links, so they bring each shared library once for every name (libx.so, libx.so.1, libx.so.1.0).
"""

import filecmp
import os
import sys

LEAST_BYTES = 1 << 16


def main(top: str) -> None:
    for folder, _, names in os.walk(top):
        by_size: dict = {}
        for name in sorted(names, key=lambda name: (-len(name), name)):
            path = os.path.join(folder, name)
            size = os.lstat(path).st_size
            if os.path.islink(path) or size < LEAST_BYTES:
                continue
            for other in by_size.setdefault(size, []):
                if filecmp.cmp(path, other, shallow=False):
                    os.remove(path)
                    os.symlink(os.path.basename(other), path)
                    break
            else:
                by_size[size].append(path)


main(sys.argv[1])
