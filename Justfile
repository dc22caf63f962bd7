# Recipes for people who work on tk. `bin/just` sets up what they need; `bin/just --list` shows them.

set shell := ["sh", "-eu", "-c"]
set positional-arguments

demo_dir := justfile_directory() / "build" / "demo"
quick := '-n auto --dist worksteal -m "not slow and not network and not perf"'
export COVERAGE_FILE := justfile_directory() / "build" / "coverage" / "data"

# list the recipes
default:
    @just --list --unsorted

# compile, run, verify and time ResNet-50 beside onnxruntime
demo *args:
    @tk demo --directory "{{demo_dir}}" "$@"

# the tests: everything that takes seconds, not minutes, and a sample of the rest
test *args:
    @python -m pytest {{quick}} "$@"

# of these tests those that a change since main can break, or since another commit
test-changed base="main":
    @files=$(python -m tests.changed "{{base}}"); [ -n "$files" ] || { echo "nothing changed since {{base}}"; exit 0; }; python -m pytest {{quick}} $files

# the slow tests, too: every network, every float, 2.3 GB of constants, fifty killed compiles
test-all *args:
    @python -m pytest -m "not network and not perf" "$@"

# what needs the internet: every pin of a Python package, resolved by the real index
test-network *args:
    @python -m pytest -q -n 0 -m network tests/images "$@"

# ONNX's own cases on targets (`cpu`, `opencl-cpu`, `cuda@emulator` ...); `--only TopK`, `--write` for docs/conformance.md
conformance *args:
    @python -W ignore -m tests.conformance "$@"

# try to break what tk promises of hostile models and failing machines: `P7 ...`, `--share 0.1`, `--write` for docs/reliability.md
promises *args:
    @python -W ignore -m tests.promises "$@"

# random graphs of all operators and types beside onnxruntime; `--seconds 60`, `--graphs 5000`, `--seed N` again, `--sanitize`
fuzz *args:
    @python -W ignore -m tests.fuzz "$@"

# plant 40 faults in our compiler, one at a time, and tell which of them a hundred random graphs find
fuzz-mutants *args:
    @python -W ignore -m tests.fuzz.hunt "$@"

# the models that exporters wrote, at five sizes beside onnxruntime; `--target opencl-cpu`, `--write` for docs/exporters.md
exporters *args:
    @python -W ignore -m tests.exporters "$@"

# every network on each OpenCL driver for processors and on SYCL; with `--record FILE` it goes on where it was stopped
test-devices *args:
    @python -m pytest -q -n 0 tests/networks/test_device_networks.py "$@"

# all ops, random graphs and random schedules on OpenCL; samples of them on SYCL and in the emulator
test-devices-parts *args:
    @python -m pytest -q -n auto --dist worksteal -k "not as_for_gpus" tests/e2e/test_opencl_ops.py tests/e2e/test_sycl_ops.py tests/fuzz/test_random_opencl.py tests/fuzz/test_random_schedules.py tests/fuzz/test_random_sycl.py "$@"

# lines and branches that the tests run, by file: takes twice as long as the tests
coverage *args:
    @mkdir -p build/coverage; rm -f build/coverage/*
    @status=0; python -m coverage run -m pytest -q {{quick}} "$@" || status=$?; \
      python -m coverage combine -q; python -m coverage report --sort=cover --skip-covered; exit $status

# the ten-second test from end to end
tiny:
    @python -m pytest -q tests/test_tiny.py

# before every commit: lint, types, rules, unit tests
check: lint types
    @python -m pytest -q -m "not slow and not network and not perf" tests/rules tests/unit tests/errors

# formatting, lint, and code that nothing uses
lint:
    @ruff format --check .
    @ruff check .
    @vulture

# put the formatting right
format:
    @ruff format .
    @ruff check --fix .

# static types
types:
    @mypy

# rewrite golden files and generated pages; review the difference
golden:
    @python -m pytest -q tests/unit tests/gallery -m "not slow" --update-golden
    @python -m toolchain.reference docs/cli.md

# generated pages of the documentation
docs:
    @python -m toolchain.reference docs/cli.md
    @python -m toolchain.recipes.published docs/recipes.md
    @python -m toolchain.licences docs/licences.md
    @python -m toolchain.recipes.issues_page docs/known-issues.md

# latency beside onnxruntime and OpenVINO: two tables, with ratios to the better one
bench *args:
    @python benchmarks/peers.py "$@"

# libraries with free dimensions beside libraries for one size
bench-sizes *args:
    @python benchmarks/free_sizes.py "$@"

# untuned and tuned libraries beside onnxruntime and OpenVINO: `--minutes 20`, `--networks squeezenet`
bench-tuning *args:
    @python benchmarks/tuning.py "$@"

# time per token of decoders that keep keys and values, beside onnxruntime and OpenVINO
bench-decoder *args:
    @python benchmarks/decoder.py "$@"

# parts of the peak that the matrix product of docs/schedules.md reaches, step by step
bench-schedules *args:
    @python benchmarks/schedules.py "$@"

# latency of devices on the host's cores (OpenCL, SYCL) beside target cpu
bench-devices *args:
    @python benchmarks/devices.py "$@"

# everything that needs a GPU: every network verified and timed, and PyTorch and onnxruntime beside; else `not run`
gpu *args:
    @python benchmarks/gpu.py "$@"

# every network compiled for GPUs and SYCL ahead of time, here and in the images; a table of what each kernel takes
gpu-compile *args:
    @python -m pytest -n auto --dist loadgroup tests/networks/test_gpu_networks.py tests/networks/test_sycl_ahead_networks.py tests/images/test_gpu_compile_inside.py "$@"

# kernels for GPUs beside bars (sectors, bank conflicts, grids) and a golden table, without a GPU; `--update`, `--networks all`
gpu-lint *args:
    @python benchmarks/gpu_lint.py "$@"

# no vector spill in the innermost loops of the convolution and GEMM kernels
asm-check *args:
    @python benchmarks/asm_check.py "$@"

# tests that measure time; on a quiet machine
perf *args:
    @python -m pytest -m perf "$@"

# source distribution and wheel
wheel:
    @python -m build --no-isolation --outdir dist .

# break rendered CUDA and HIP kernels in 40 ways drawn by a seed, and count which breaks the emulator finds
mutants *args:
    @python -m tests.mutation.hunt "$@"
