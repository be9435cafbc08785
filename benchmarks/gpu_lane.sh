#!/usr/bin/env bash
# For a machine with an NVIDIA GPU: the tests marked `gpu`, then the benchmarks, their --json output into a folder. Under ten minutes.
#
#   benchmarks/gpu_lane.sh [FOLDER]        PYTHON=/path/to/python chooses the environment; without it, .venv's
#
# Needs GPUlayer with its extras dev and jupyter, and a torch that was built for CUDA. It installs nothing and changes no setting of
# the GPU. Nothing of it runs in `make test`.
set -u
cd "$(dirname "$0")/.."
results="${1:-results-gpu}"
python="${PYTHON:-.venv/bin/python}"
mkdir -p "$results"
failed=0

part() {  # part SECONDS NAME COMMAND…: what runs longer is ended, with what it started, and counts as failed
    local seconds="$1" name="$2"
    shift 2
    echo "== $name" >&2
    if timeout --signal=INT --kill-after=20 "$seconds" "$@" >"$results/$name" 2>"$results/$name.log"; then
        tail -n 2 "$results/$name" >&2
    else
        echo "FAILED: $name (see $results/$name.log)" >&2
        tail -n 15 "$results/$name.log" >&2
        failed=1
    fi
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$results/gpu.txt" || {
    echo "No NVIDIA GPU is seen here (nvidia-smi)." >&2
    exit 2
}
"$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || {
    echo "This environment's torch can't use CUDA; install a build for it." >&2
    exit 2
}

# 5: no test is marked so; that is said, and is no failure.
# shellcheck disable=SC2016
part 180 tests.txt bash -c '"$1" -m pytest -q -m gpu --timeout 120; code=$?; [ "$code" -ne 5 ] || { echo "No test is marked gpu."; exit 0; }; exit "$code"' _ "$python"
part 20 import_time.jsonl "$python" benchmarks/import_time.py --quick --json
part 70 dispatch.jsonl "$python" benchmarks/dispatch.py --quick --json --stages
part 50 log_throughput.jsonl "$python" benchmarks/log_throughput.py --quick --json
part 50 transfer.jsonl "$python" benchmarks/transfer.py --quick --json
part 60 responsiveness.jsonl "$python" benchmarks/responsiveness.py --quick --json
part 150 distributed_startup.jsonl "$python" benchmarks/distributed_startup.py --quick --json --stages
"$python" benchmarks/table.py "$results"/*.jsonl >"$results/tables.md"
exit "$failed"
