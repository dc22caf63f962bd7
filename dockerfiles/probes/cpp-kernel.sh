#!/bin/sh
# A C++ kernel with threads as a shared library, loaded and checked: what a compiled model needs.
set -eu
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
g++ -std=c++17 -O3 -march=x86-64-v3 -shared -fPIC -pthread "$here/cpp-kernel.cpp" -o "$work/kernel.so"
python3 "$here/cpp-kernel.py" "$work/kernel.so"
