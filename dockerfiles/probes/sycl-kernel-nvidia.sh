#!/bin/sh
# A SYCL program compiled ahead of time for NVIDIA; only compiled, so it needs no device.
set -eu
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clang++ -std=c++17 -O2 -fsycl -fsycl-targets=nvptx64-nvidia-cuda -Xsycl-target-backend "--cuda-gpu-arch=${1:-sm_70}" \
    -Wno-sycl-target -Wno-linker-warnings "$here/sycl-kernel.cpp" -o "$work/probe"
echo "compiled for NVIDIA"
