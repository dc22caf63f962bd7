#!/bin/sh
# TVM is importable by the system's Python and says for which devices it was built.
set -eu
exec python3 -c 'import tvm; print("tvm", tvm.__version__); print(sorted(k for k, v in tvm.support.libinfo().items() if k.startswith("USE_") and v not in ("OFF", "0", "")))'
