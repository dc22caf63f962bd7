#!/bin/sh
# A SYCL kernel, compiled from source when the program runs, on the host's cores.
set -eu
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
g++ -std=c++17 -O1 -I/opt/venv/include "$here/sycl-runtime.cpp" -L/opt/venv/lib -lsycl -o "$work/probe"
"$work/probe"
