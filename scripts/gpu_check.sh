#!/usr/bin/env bash
# Runs what only a machine with a GPU can show, with programs that were built elsewhere. For docs/gpu.md.
#
# usage: scripts/gpu_check.sh [OUT_DIR]
#
# Needs build/release (carried here when this machine cannot build) and Python's torch of the same version, whose
# libraries the programs then use; others that it lacks (libzmq) are carried in build/release/lib. Writes OUT_DIR/gpu_check.txt (default: build/gpu_check): one line a check.
# Exit codes: 0 all passed, 2 no GPU or nothing built, 70 a check failed.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in
  -h | --help)
    print_help
    exit 0
    ;;
esac
out=${1:-$SLUICE_ROOT/build/gpu_check}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$SLUICE_ROOT"
[[ -x build/release/sluice ]] || die 2 "build/release/sluice is missing: run scripts/bootstrap.sh, or carry the build here"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader >"$out/gpu.txt" 2>/dev/null || die 2 "no NVIDIA GPU answers here"
if [[ ! -d .venv ]]; then
  LD_LIBRARY_PATH=$(python3 -c 'import glob, os, torch
root = os.path.dirname(torch.__file__)
print(":".join([root + "/lib", *glob.glob(os.path.dirname(root) + "/nvidia/*/lib")]))')${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
fi
export LD_LIBRARY_PATH=$SLUICE_ROOT/build/release/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-3000}

failed=0
: >"$out/gpu_check.txt"
# check NAME COMMAND...: its output goes to OUT_DIR/NAME.log.
check() {
  local name=$1 start=$SECONDS verdict=passed
  shift
  timeout 300 "$@" >"$out/$name.log" 2>&1 || { verdict="FAILED (exit code $?)" && failed=70; }
  # A test that skips proves nothing here.
  if grep -q '\[  SKIPPED \]' "$out/$name.log"; then verdict="FAILED (skipped)" && failed=70; fi
  echo "$name: $verdict after $((SECONDS - start)) s" | tee -a "$out/gpu_check.txt"
}

tests=build/release/tests
check devices build/release/sluice devices
check transfer "$tests/device/device_test" --gtest_filter='*Gpu*'
check features "$tests/data/data_feature_cache_test" --gtest_filter='*Gpu*'
check parity "$tests/engine/engine_cuda_parity_test"
on_gpu=(--set 'device.list="cuda"' --set 'data.name="shapes"' --set data.samples=2000 --set train.steps=40)
check train_one build/release/sluice train configs/quickstart.toml "${on_gpu[@]}" --run-dir "$out/run_one" \
  --set pipeline.stages=1 --set replicas.local=1
check train_grid build/release/sluice train configs/quickstart.toml "${on_gpu[@]}" --run-dir "$out/run_grid" \
  --set 'device.list=["cuda:0", "cuda:0", "cuda:0", "cuda:0"]'
check eval_on_cpu build/release/sluice eval configs/quickstart.toml "${on_gpu[@]}" --checkpoint "$out/run_grid" \
  --set 'device.list="cpu"'
# Batches that fill the GPU: else the gaps between kernels, which only events count, are most of a phase.
large=(--set pipeline.stages=1 --set replicas.local=1 --set train.global_batch=1000 --set data.samples=20000 --set log.every=1)
check train_events build/release/sluice train configs/quickstart.toml "${on_gpu[@]}" "${large[@]}" --run-dir "$out/run_events"
check train_cupti build/release/sluice train configs/quickstart.toml "${on_gpu[@]}" "${large[@]}" --run-dir "$out/run_cupti" \
  --set 'profile.level="cupti"'
check grid_cupti build/release/sluice train configs/quickstart.toml "${on_gpu[@]}" --run-dir "$out/run_grid_cupti" \
  --set 'device.list=["cuda:0", "cuda:0", "cuda:0", "cuda:0"]' --set 'profile.level="cupti"'
check cupti_against_events python3 scripts/cupti_check.py "$out/run_events" "$out/run_cupti"
# NCCL refuses two processes on one GPU; Gloo carries the tensors of a shared one.
# shellcheck disable=SC2317 # the bash that `ranks` starts calls it
two_ranks() {
  local rank pids=() code=0
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29871 "$@" &
    pids+=("$!")
  done
  for rank in 0 1; do wait "${pids[rank]}" || code=$?; done
  return "$code"
}
export -f two_ranks
ranks() { check "$1" bash -c 'two_ranks "$@"' bash "${@:2}"; }
ranks ranks_gloo build/release/sluice train configs/quickstart.toml "${on_gpu[@]}" --run-dir "$out/run_ranks" \
  --set 'device.list=["cuda:0", "cuda:0"]' --set replicas.local=1 --set 'replicas.backend="gloo"'
if [[ $(wc -l <"$out/gpu.txt") -ge 2 ]]; then
  ranks ranks_nccl build/release/sluice train configs/quickstart.toml "${on_gpu[@]}" --run-dir "$out/run_nccl" \
    --set pipeline.stages=1 --set replicas.local=1 --set 'replicas.backend="nccl"'
else
  echo "ranks_nccl: not run: it needs two GPUs" | tee -a "$out/gpu_check.txt"
fi
exit "$failed"
