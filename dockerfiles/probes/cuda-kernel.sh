#!/bin/sh
# A CUDA kernel as a cubin through nvcc; needs no GPU. The first argument is the arch, by default sm_80.
set -eu
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arch=${1:-sm_80}
nvcc -cubin "-arch=$arch" -O3 "$here/cuda-kernel.cu" -o "$work/kernel.cubin"
grep -q "multiply_add" "$work/kernel.cubin"
echo "cubin for $arch: $(wc -c <"$work/kernel.cubin") bytes"
