#!/bin/sh
# Everything that needs a GPU, on a machine that has a driver, a C++ compiler and Python (with PyTorch, if it is to be
# measured beside): no root, nothing installed outside of build/gpu-packages.
#
#     sh benchmarks/gpu_machine.sh [--wheels FOLDER] [options of benchmarks/gpu.py]
#     sh benchmarks/gpu_machine.sh [--wheels FOLDER] --peers [options of benchmarks/gpu_peers.py]
#
# What Python lacks of the few packages that this takes comes from PyPI, or from the wheels in FOLDER where the
# machine reaches nothing. PYTHON names the interpreter. Results: build/benchmarks/gpu-*.json and .md.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
source=
program=gpu.py
if [ "${1:-}" = --wheels ]; then
  source="--no-index --find-links $2"
  shift 2
fi
if [ "${1:-}" = --peers ]; then
  program=gpu_peers.py
  shift
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "error: Python 3.11 or newer is needed, found $("$python" --version 2>&1); PYTHON names another" >&2
  exit 4
}
command -v g++ >/dev/null || command -v clang++ >/dev/null || [ -n "${TK_CXX:-}" ] || {
  echo "error: no C++ compiler: apt-get install g++, or set TK_CXX" >&2
  exit 4
}
packages=$root/build/gpu-packages
PYTHONPATH=$root:$packages${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH

# need CONDITION PACKAGE: installs the package where Python does not fulfil the condition.
need() {
  "$python" -W ignore -c "$1" >/dev/null 2>&1 && return
  # shellcheck disable=SC2086 # the words of $source are options
  "$python" -m pip install --quiet --disable-pip-version-check --no-deps $source --target "$packages" "$2" && return
  echo "not installed: $2" >&2
}
need 'import numpy' numpy
need 'import typing_extensions' typing_extensions
need 'import google.protobuf' protobuf
need 'import ml_dtypes' ml_dtypes
need 'import onnx' onnx
need 'import onnxruntime as o; assert len(o.get_available_providers()) > 2' onnxruntime-gpu
need 'import onnxruntime' onnxruntime
need 'import compiler as c; assert [t for t in c.list_targets() if t.name == "cuda-nvidia"][0].compiles' \
  nvidia-cuda-nvrtc-cu12
"$python" -c 'import torch' 2>/dev/null || echo "PyTorch is not here: it will be listed as not run" >&2
exec "$python" "$root/benchmarks/$program" "$@"
