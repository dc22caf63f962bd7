export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 PATH=$PATH:/usr/local/cuda/bin XDG_CACHE_HOME=/tmp/cache
mkdir -p build; ln -sfn $OUT build/benchmarks
J="mnist squeezenet resnet50 resnet50+f16 resnet50+tf32 mobilenetv2 bert-base bert-base+f16 transformer-encoder"
cp -r . /tmp/nopdl; rm -rf /tmp/nopdl/build; mkdir -p /tmp/nopdl/build/benchmarks
sed -i 's/kRecordsOverlap = 12030/kRecordsOverlap = 99999/' /tmp/nopdl/compiler/runtime/src/devices/cuda.cpp
(cd /tmp/nopdl; PYTHONPATH=/tmp/nopdl timeout 60 python3 benchmarks/gpu.py --minutes 1 --stages verify --models /tmp/models2 --jobs $J > /tmp/nopdl.log 2>&1) &
timeout 60 python3 benchmarks/gpu.py --minutes 1 --stages verify --models /tmp/models --jobs $J >/tmp/pdl.log 2>&1
wait
grep -h ': error\|problem' /tmp/pdl.log /tmp/nopdl.log | grep -v '^|' | cut -c1-200
for r in 1 2; do for j in $J; do for v in models2 models; do python3 - $j $v <<'E'
import sys; sys.path.insert(0,'benchmarks')
import gpu; from pathlib import Path
r=gpu.timed(gpu.Job.parse(sys.argv[1]),'cuda-nvidia:sm_90',Path('/tmp/'+sys.argv[2]),0.3) if False else None
import compiler
f=compiler.bench_library(compiler.BenchRequest(Path(f'/tmp/{sys.argv[2]}/{sys.argv[1]}-cuda-nvidia:sm_90.so'),seconds=0.3,warmup=0.2))
print(sys.argv[1],'PDL' if sys.argv[2]=='models' else 'no ', 'e2e', round(f.p50_ms*1e3), 'kernels', round(f.on_device.kernels_ms*1e3,1), flush=True)
E
done; done; done
S="--section SpeedOfLight --section WarpStateStats --section SchedulerStats --section MemoryWorkloadAnalysis --section Occupancy --section LaunchStats --section InstructionStats"
for j in resnet50 resnet50+f16 bert-base bert-base+f16 mobilenetv2; do
timeout 40 ncu --clock-control none --cache-control none $S --launch-count 60 --csv --page raw python3 benchmarks/gpu.py --child run "/tmp/models/$j-cuda-nvidia:sm_90.so" > $OUT/ncu-$j.csv 2> /tmp/ncu.err; tail -1 /tmp/ncu.err | cut -c1-200; wc -l $OUT/ncu-$j.csv
done
nvidia-smi --query-gpu=clocks.sm,clocks.mem,clocks.max.sm,power.draw --format=csv
