"""Run a library on feeds.npz with outputs that end where their memory ends, for runs under a sanitizer.

python -m tests.support.run_library LIBRARY THREADS FEEDS.npz OUTPUTS.npz
"""

from __future__ import annotations

import sys

import numpy as np

import compiler


def main(library: str, threads: str, feeds: str, outputs: str) -> None:
    with compiler.load(library, threads=int(threads)) as model, np.load(feeds) as given:
        inputs = {name: np.array(given[name]) for name in given.files}
        # The loader's own arrays are longer than they look, so that they can begin at a multiple of 64 bytes.
        out = {item.name: np.empty(item.largest_shape, item.dtype) for item in model.outputs}
        model.run(inputs, out=out)
        np.savez(outputs, *out.values())


if __name__ == "__main__":
    main(*sys.argv[1:])
