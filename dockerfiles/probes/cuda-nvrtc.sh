#!/bin/sh
# A CUDA kernel as a cubin through NVRTC; needs no GPU. The first argument is the arch, by default sm_70.
set -eu
here=$(dirname "$0")
exec /opt/venv/bin/python "$here/cuda-nvrtc.py" "${1:-sm_70}"
