#!/usr/bin/env bash
# Runs the checks that need a GPU, with programs that were built elsewhere. For docs/how-to/gpu_check.md.
#
# usage: scripts/gpu_check.sh [--on-cpu] [first|right|shape|costs] [OUT_DIR [BRING_DIR]]
#        scripts/gpu_check.sh --record FILE
#
#   --on-cpu  a rehearsal without a GPU: small models on CPU devices; what needs a GPU is not run, nothing is recorded
#   first   some of each part, if the GPU is available for one part only
#   right   correctness: tests, parity under compute-sanitizer, number formats, NCCL, Gloo, stages that share the GPU,
#           memory, CUPTI compared with events
#   shape   speed of the GPU and its use by a step: product rates, copies, kernels and idle time, cost of recording
#   costs   samples/s compared with PyTorch; the predicted step compared with the measured one
#   none    right, shape and costs, one after the other
#
# A part takes at most 520 s (SLUICE_GPU_CHECK_BUDGET_S); checks without time left are skipped. Needs build/release, or a
# file of scripts/gpu_pack.sh, and Python's torch of the same version. Prints one line per check, also to
# OUT_DIR/gpu_check.txt (default: build/gpu_check) and, as table rows, to OUT_DIR/gpu_results.md and
# docs/how-to/gpu_check.md. Logs and runs of a part are in OUT_DIR/PART, which begins empty. If this repository is a
# temporary copy, name a BRING_DIR outside of OUT_DIR. It receives gpu_check.txt and gpu_results.md after each check, and
# logs.tar.gz at the end. Pass gpu_results.md to --record.
# Exit codes: 0 all passed, 2 bad usage, no GPU or nothing built, 70 a check failed.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

readonly page=$SLUICE_ROOT/docs/how-to/gpu_check.md
budget_s=520 # of a part: with unpacking and loading less than 10 minutes
[[ ! ${SLUICE_GPU_CHECK_BUDGET_S:-} =~ ^[0-9]{1,4}$ ]] || budget_s=$((10#$SLUICE_GPU_CHECK_BUDGET_S))
python=python3
[[ ! -x $SLUICE_ROOT/.venv/bin/python ]] || python=$SLUICE_ROOT/.venv/bin/python

parts=(right shape costs)
on_cpu=
if [[ ${1:-} == --on-cpu ]]; then
  on_cpu=yes
  shift
fi
case ${1:-} in
  -h | --help)
    print_help
    exit 0
    ;;
  --record)
    [[ $# -eq 2 ]] || die 2 "--record takes the file gpu_results.md of a run; see scripts/gpu_check.sh --help"
    exec "$python" "$SLUICE_ROOT/scripts/gpu_record.py" "$page" "$2"
    ;;
  first | right | shape | costs)
    parts=("$1")
    shift
    ;;
  -*) die 2 "unknown option '$1'; see scripts/gpu_check.sh --help" ;;
esac
[[ $# -le 2 ]] || die 2 "unknown argument '$3'; see scripts/gpu_check.sh --help"
out=$(realpath -m -- "${1:-$SLUICE_ROOT/build/gpu_check}")
bring=${2:+$(realpath -m -- "$2")}
[[ -z $bring || ($out/ != "$bring"/* && $bring/ != "$out"/*) ]] || die 2 "OUT_DIR and BRING_DIR lie in each other: name two folders apart"
cd "$SLUICE_ROOT"
[[ -x build/release/sluice ]] || die 2 "build/release/sluice is missing: run scripts/bootstrap.sh, or carry the build here"
gpus="no GPU, none"
[[ -n $on_cpu ]] || gpus=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null) || die 2 "no NVIDIA GPU found: nvidia-smi failed"
mkdir -p "$out" ${bring:+"$bring"}
if [[ ! -d .venv ]]; then
  LD_LIBRARY_PATH=$(torch_library_path "$python")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
fi
export LD_LIBRARY_PATH=$SLUICE_ROOT/build/release/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-3000}
# The tests do not call settle_environment() (src/app/process.h).
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32} NCCL_RUNTIME_CONNECT=${NCCL_RUNTIME_CONNECT:-0}
for variable in ASYNC_ERROR_HANDLING ENABLE_MONITORING RETHROW_CUDA_ERRORS DUMP_ON_TIMEOUT; do
  declare -x "TORCH_NCCL_$variable=0"
done
export TORCH_CPP_LOG_LEVEL=${TORCH_CPP_LOG_LEVEL:-WARNING} # the program alone would hide what LibTorch warns of

failed=0
part=
part_began=0
only=    # checks that run; empty: all
running= # the process of the check
work=            # the folder of the part
declare -A ended # by check: passed, FAILED or not run
: >"$out/gpu_check.txt"
: >"$out/gpu_results.md"
today=$(date +%Y-%m-%d)
IFS=, read -r gpu_name driver <<<"$gpus"

# Removes logs and runs of an earlier call, but no folder of another origin.
begin_part() {
  work=$out/$part
  [[ ! -e $work || -e $work/.gpu_check ]] || die 2 "$work exists and was not made by this script; give another OUT_DIR"
  rm -rf -- "$work"
  mkdir -p "$work"
  : >"$work/.gpu_check"
  part_began=$SECONDS
}

# Copies the short results after each check.
bring_results() { [[ -z $bring ]] || cp -- "$out/gpu_check.txt" "$out/gpu_results.md" "$bring/"; }

# Ends a running check and packs the logs, except weights and files of more than 4 MiB.
# shellcheck disable=SC2317 # the trap calls it
at_end() {
  [[ -z $running ]] || kill "$running" || true
  [[ -n $bring ]] || return 0
  bring_results
  (cd -- "$out" && find . -type f ! -name '*.safetensors' -size -4096k -print0 | tar --null -T - -czf "$bring/logs.tar.gz") || say "$bring/logs.tar.gz: not all logs were packed"
}

is_left_out() { [[ -n $only && " $only " != *" $1 "* ]]; }

# answer NAME VERDICT: writes the line and the table row of a check.
answer() {
  ! is_left_out "$1" || return 0
  case $2 in passed*) ended[$1]=passed ;; *) ended[$1]=other ;; esac
  printf '%s: %s\n' "$1" "$2" | tee -a "$out/gpu_check.txt"
  # shellcheck disable=SC2016 # these are a table's
  printf '| %s | %s | %s | %s | `%s` | %s |\n' "$today" "$gpu_name" "${driver# }" "$part" "$1" "${2//|/\/}" >>"$out/gpu_results.md"
  bring_results
}

# check NAME SECONDS COMMAND...: logs to OUT_DIR/PART/NAME.log; a line `result: ...` of the command becomes part of the
# answer. Exit code 77: the check cannot run here, for the reason in that line.
check() {
  local name=$1 limit=$2 left=$((budget_s - (SECONDS - part_began))) start=$SECONDS code=0 verdict said
  shift 2
  ! is_left_out "$name" || return 0
  if [[ $left -lt 5 ]]; then
    answer "$name" "not run: out of time"
    return
  fi
  [[ $limit -le $left ]] || limit=$left
  timeout -k 5 "$limit" "$@" >"$work/$name.log" 2>&1 &
  running=$!
  wait "$running" || code=$?
  running=
  said=$(sed -n 's/^result: //p' "$work/$name.log" | tail -n 1)
  case $code in
    0) verdict=passed ;;
    77)
      answer "$name" "not run: ${said:-no reason given}"
      return
      ;;
    124 | 137) verdict="FAILED (not done after $limit s)" ;;
    *) verdict="FAILED (exit code $code)" ;;
  esac
  # A skipped test is a failure here.
  if grep -q '\[  SKIPPED \]' "$work/$name.log"; then verdict="FAILED (skipped)"; fi
  if [[ -n $on_cpu && $verdict == "FAILED (skipped)" ]]; then
    answer "$name" "not run: it needs a GPU"
    return
  fi
  [[ $verdict == passed ]] || failed=70
  answer "$name" "$verdict after $((SECONDS - start)) s${said:+; $said}"
}

# on_gpu_only NAME SECONDS COMMAND...: a check that does not skip itself without a GPU.
on_gpu_only() {
  if [[ -n $on_cpu ]]; then answer "$1" "not run: it needs a GPU"; else check "$@"; fi
}

# check_of "OTHER..." NAME SECONDS COMMAND...: a check that reads the results of other checks.
check_of() {
  local others=$1 other
  shift
  ! is_left_out "$1" || return 0
  for other in $others; do
    if [[ ${ended[$other]:-} != passed ]]; then
      answer "$1" "not run: it needs $other, which did not pass"
      return
    fi
  done
  check "$@"
}

readonly tests=build/release/tests
train=(build/release/sluice train configs/quickstart.toml)
on_gpu=(--set 'device.list="cuda"' --set 'data.name="shapes"' --set data.samples=2000 --set train.steps=40
  --set pipeline.chunks=4) # auto would measure and plan for up to 15 s a run
one_place=(--set pipeline.stages=1 --set replicas.local=1)
four_places=(--set 'device.list=["cuda:0", "cuda:0", "cuda:0", "cuda:0"]')
# Batches that fill the GPU: otherwise the gaps between kernels, which only events count, dominate a phase.
large=("${one_place[@]}" --set pipeline.chunks=1 --set train.global_batch=1000 --set data.samples=20000 --set data.workers=8
  --set log.every=1)

vit_b16=(--set model.name=vit --set model.size=base --set model.patch_size=16 --set model.image_size=224 --set train.global_batch=128
  --set train.precision=bf16 --set train.optimizer=adamw --set train.lr=0.0001 --set train.steps=15 --set train.eval_limit=128
  --set data.samples=4000 --set data.workers=8)
compared=(--device cuda)
if [[ -n $on_cpu ]]; then
  on_gpu=(--set 'device.list="cpu"' --set 'data.name="shapes"' --set data.samples=256 --set train.steps=12 --set train.eval_limit=64
    --set pipeline.chunks=2)
  four_places=()
  large=("${one_place[@]}" --set pipeline.chunks=1 --set log.every=1)
  vit_b16=(--set model.name=vit --set model.size=nano --set train.global_batch=16)
  compared=(--device cpu --peers eager)
fi

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
# shellcheck disable=SC2317 # called by its name
lists_gpu() {
  local listed wanted=cuda:0
  [[ -z $on_cpu ]] || wanted=cpu:0
  listed=$(build/release/sluice devices) || return
  echo "$listed"
  [[ $listed != *$wanted* ]] || return 0
  echo "result: it does not list $wanted"
  return 70
}
# shellcheck disable=SC2317 # called by its name
ends_with() {
  local expected=$1 code=0
  shift
  "$@" || code=$?
  echo "result: it ended with exit code $code"
  [[ $code -eq $expected ]]
}
# shellcheck disable=SC2317 # called by its name
sanitized() {
  local tool=$1
  shift
  if ! command -v compute-sanitizer >/dev/null; then
    echo "result: compute-sanitizer is not installed"
    return 77
  fi
  compute-sanitizer --tool "$tool" --error-exitcode 70 "$@"
}
export on_cpu
export -f two_ranks lists_gpu ends_with sanitized
# shellcheck disable=SC2016 # the inner bash expands it
by_function() { check "$1" "$2" bash -c '"$@"' bash "${@:3}"; }

measure=("$python" scripts/gpu_measure.py)

part_right() {
  by_function devices 30 lists_gpu
  check transfer 60 "$tests/device/device_test" --gtest_filter='*Gpu*-GraphOnGpu*'
  check recorded 60 "$tests/device/device_test" --gtest_filter='GraphOnGpu*'
  check local_sum 60 "$tests/ddp/ddp_test" --gtest_filter='*Gpu*'
  check tf32 60 "$tests/train/train_test" --gtest_filter='LibtorchSettings.*'
  check pixel_batches 60 "$tests/train/train_test" --gtest_filter='PixelBatches.*Gpu*'
  check sample_ids 60 "$tests/pipeline/pipeline_test" --gtest_filter='Executor.*Gpu*'
  check losses 60 "$tests/engine/engine_test" --gtest_filter='PassSums.*Gpu*'
  if [[ $(wc -l <<<"$gpus") -ge 2 ]]; then
    check transfer_two 60 "$tests/device/device_test" --gtest_filter='*TwoDevices*'
    check local_sum_two 60 "$tests/ddp/ddp_test" --gtest_filter='*TwoDevices*'
  else
    answer transfer_two "not run: it needs two GPUs"
    answer local_sum_two "not run: it needs two GPUs"
  fi
  check features 60 "$tests/data/data_feature_cache_test" --gtest_filter='*Gpu*'
  check parity 120 "$tests/engine/engine_cuda_parity_test"
  check graphs 120 "$tests/engine/engine_cuda_graphs_test"
  check kernels_nn 120 "$tests/nn/nn_cuda_test" --gtest_filter='-KernelRates.*'
  check layer_times 90 "$tests/train/train_layer_timer_test" --gtest_filter='*Gpu*'
  on_gpu_only number_formats 60 "${measure[@]}" formats
  check nccl_one 60 "$tests/comm/comm_test" --gtest_filter='*ByNccl'
  check gloo_tensors 60 "$tests/comm/comm_test" --gtest_filter='*ByGloo'
  check train_one 60 "${train[@]}" "${on_gpu[@]}" --run-dir "$work/run_one" "${one_place[@]}"
  check train_grid 60 "${train[@]}" "${on_gpu[@]}" --run-dir "$work/run_grid" "${four_places[@]}"
  on_gpu_only train_graphs 60 "${train[@]}" "${on_gpu[@]}" --run-dir "$work/run_graphs" "${four_places[@]}" --set device.cuda_graphs=true
  check_of train_grid eval_on_cpu 60 build/release/sluice eval configs/quickstart.toml "${on_gpu[@]}" --checkpoint "$work/run_grid" \
    --set 'device.list="cpu"'
  by_function ranks_gloo 60 two_ranks "${train[@]}" "${on_gpu[@]}" --run-dir "$work/run_ranks" \
    --set 'device.list=["cuda:0", "cuda:0"]' --set replicas.local=1 --set 'replicas.backend="gloo"'
  if [[ $(wc -l <<<"$gpus") -ge 2 ]]; then
    by_function ranks_nccl 60 two_ranks "${train[@]}" "${on_gpu[@]}" --run-dir "$work/run_nccl" "${one_place[@]}" \
      --set 'replicas.backend="nccl"'
  else
    answer ranks_nccl "not run: it needs two GPUs"
  fi
  check train_events 60 "${train[@]}" "${on_gpu[@]}" "${large[@]}" --run-dir "$work/run_events"
  check train_cupti 60 "${train[@]}" "${on_gpu[@]}" "${large[@]}" --run-dir "$work/run_cupti" --set 'profile.level="cupti"'
  check grid_cupti 60 "${train[@]}" "${on_gpu[@]}" --run-dir "$work/run_grid_cupti" "${four_places[@]}" --set 'profile.level="cupti"'
  check_of "train_events train_cupti" cupti_against_events 20 "$python" scripts/cupti_check.py "$work/run_events" "$work/run_cupti"
  by_function out_of_memory 60 ends_with 4 "${train[@]}" "${on_gpu[@]}" "${large[@]}" --run-dir "$work/run_too_large" \
    --set 'device.memory_limit="64MiB"'
  check memory_profile 90 build/release/sluice profile configs/quickstart.toml "${on_gpu[@]}" "${large[@]}" --out "$work/memory.json"
  check_of memory_profile memory 10 "${measure[@]}" memory "$work/memory.json"
  check chunks_profile 90 build/release/sluice profile configs/quickstart.toml "${on_gpu[@]}" "${one_place[@]}" "${vit_b16[@]}" \
    --set pipeline.chunks=16 --out "$work/memory_chunks.json"
  check_of chunks_profile memory_chunks 10 "${measure[@]}" memory "$work/memory_chunks.json"
  check warnings 10 "${measure[@]}" warnings "$work"
  # The slowest ones last, because they are skipped if time is short.
  local smallest='*toy_cnn_2stages_2replicas'
  by_function sanitizer_memory 150 sanitized memcheck "$tests/engine/engine_cuda_parity_test" --gtest_filter="$smallest"
  by_function sanitizer_races 150 sanitized racecheck "$tests/engine/engine_cuda_parity_test" --gtest_filter="$smallest"
  local kernels='NnCuda.*-*AttentionDrops*:*Repeats*' tool # our own kernels; those of LibTorch are not ours to check
  for tool in memcheck racecheck initcheck; do
    by_function "kernels_$tool" 100 sanitized "$tool" "$tests/nn/nn_cuda_test" --gtest_filter="$kernels"
  done
}

part_shape() {
  on_gpu_only product_rates 120 "${measure[@]}" rates
  on_gpu_only copies 60 "${measure[@]}" copies
  check train_kernels 90 "${train[@]}" "${on_gpu[@]}" "${large[@]}" --run-dir "$work/run_kernels" --set 'profile.level="cupti"'
  check_of train_kernels kernels 10 "${measure[@]}" kernels "$work/run_kernels"
  on_gpu_only attention_rates 60 "${measure[@]}" attention
  check kernel_rates 60 "$tests/nn/nn_cuda_test" --gtest_filter='KernelRates.*'
  on_gpu_only idle 150 "${measure[@]}" idle "$work/idle" "${train[@]}" "${on_gpu[@]}" "${one_place[@]}" "${vit_b16[@]}"
  check settings 200 "${measure[@]}" settings "$work/settings" "${train[@]}" "${on_gpu[@]}" "${one_place[@]}" "${vit_b16[@]}" \
    --set pipeline.chunks=1
  check recording 250 "${measure[@]}" recording "$work/recording" "${train[@]}" "${on_gpu[@]}" "${large[@]}"
}

part_costs() {
  local level
  for level in events cupti; do
    check "profile_$level" 60 build/release/sluice profile configs/quickstart.toml "${on_gpu[@]}" "${large[@]}" \
      --out "$work/profile_$level.json" --set "profile.level=\"$level\""
    check_of "profile_$level" "predicted_$level" 10 "${measure[@]}" predicted "$work/profile_$level.json"
  done
  local model models
  models=$("$python" bench/gpu.py --list) || die 2 "bench/gpu.py has no list of models"
  for model in $models; do
    on_gpu_only "speed_$model" 200 "$python" bench/gpu.py "$model" "$work/speed_$model"
  done
}

# Speed of three models in two rounds.
part_first() {
  only="devices transfer recorded local_sum tf32 pixel_batches losses parity graphs kernels_nn number_formats nccl_one gloo_tensors train_one train_grid
    train_graphs train_cupti product_rates copies kernel_rates attention_rates idle speed_vit_b16 speed_resnet50 speed_llama_05b"
  only=${only//[[:space:]]/ }
  part_right
  part_shape
  local vit=vit_b16 resnet=resnet50 llama=llama_05b
  [[ -z $on_cpu ]] || vit=gpt2_nano resnet=gpt2_nano llama=gpt2_nano
  check speed_vit_b16 140 "$python" bench/gpu.py "$vit" "$work/speed_vit_b16" --rounds 2 "${compared[@]}"
  check speed_resnet50 80 "$python" bench/gpu.py "$resnet" "$work/speed_resnet50" --rounds 2 --peers eager "${compared[@]}"
  check speed_llama_05b 50 "$python" bench/gpu.py "$llama" "$work/speed_llama_05b" --rounds 2 "${compared[@]}" --peers
}

trap at_end EXIT
for part in "${parts[@]}"; do
  begin_part
  case $part in
    first) part_first ;;
    right) part_right ;;
    shape) part_shape ;;
    costs) part_costs ;;
  esac
done
[[ -n $on_cpu ]] || "$python" scripts/gpu_record.py "$page" "$out/gpu_results.md" || say "the results are in $out/gpu_results.md only"
exit "$failed"
