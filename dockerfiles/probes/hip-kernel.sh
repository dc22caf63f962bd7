#!/bin/sh
# A HIP kernel as a code object; needs no GPU. The first argument is the arch, by default gfx906.
set -eu
here=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arch=${1:-gfx906}
# It asks for the GPU that is here, and complains when there is none, although it was told the arch.
HIP_PLATFORM=amd hipcc --genco "--offload-arch=$arch" -O3 "$here/hip-kernel.hip" -o "$work/kernel.hsaco" 2>"$work/log" ||
    { cat "$work/log" >&2; exit 1; }
# A bundle of code objects: each entry names its arch, and one symbol is the kernel.
grep -q "amdgcn-amd-amdhsa--$arch" "$work/kernel.hsaco"
grep -q "multiply_add" "$work/kernel.hsaco"
echo "code object for $arch: $(wc -c <"$work/kernel.hsaco") bytes"
