#!/bin/sh
# A SYCL program compiled ahead of time for AMD; only compiled, so it needs no device.
set -eu
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clang++ -std=c++17 -O2 -fsycl -fsycl-targets=amdgcn-amd-amdhsa -Xsycl-target-backend "--offload-arch=${1:-gfx906}" \
    -Wno-sycl-target -Wno-linker-warnings "$here/sycl-kernel.cpp" -o "$work/probe"
echo "compiled for AMD"
