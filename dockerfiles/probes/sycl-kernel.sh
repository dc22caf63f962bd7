#!/bin/sh
# A SYCL program compiled ahead of time for spir64; only compiled, so it needs no device.
set -eu
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compiler=$(command -v icpx || command -v clang++)
"$compiler" -std=c++17 -O2 -fsycl -fsycl-targets=spir64 \
    -Wno-sycl-target -Wno-linker-warnings "$here/sycl-kernel.cpp" -o "$work/probe"
echo "compiled for spir64"
