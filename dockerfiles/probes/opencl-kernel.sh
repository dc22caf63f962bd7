#!/bin/sh
# An OpenCL kernel, compiled when the program runs, on the host's cores.
set -eu
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O1 "$here/opencl-kernel.c" -lOpenCL -o "$work/probe"
"$work/probe"
