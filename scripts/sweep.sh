# shellcheck shell=bash
# A sweep: run_elastic_pipe.sh with one learning rate after the other, on this node of two. Sourced by
# run_*_batch_experiment_node*.sh. Each run has its own port, so that the faster node does not join the previous run; a
# run that fails ends with the same rate on both nodes. stop.sh sees the sweep as one launch, which passes its signal to
# the current run.

# shellcheck source=scripts/launch.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/launch.sh"

readonly learning_rates=(0.03 0.01 0.3 0.1)
readonly nodes_of_a_sweep=2
sweep_folder=
sweep_node=
arguments=() # of run_elastic_pipe.sh

# sweep DATASET NODE_RANK BATCH ARGUMENTS...: runs the sweep and ends the script.
sweep() {
  local i
  sweep_node=$2
  split_arguments "${@:4}"
  take_sweep "$1" "$3" "${positionals[@]}"
  take_folder "$1"
  start_record "${0##*/}"
  export SLUICE_LAUNCH_RECORD=$launch_record
  pass_signals_on
  for ((i = 0; i < ${#learning_rates[@]} && !stop_asked; ++i)); do
    run_rate "$i"
  done
  [[ $dry_run -eq 1 ]] || tell_end
  exit "$exit_code"
}

# take_sweep DATASET BATCH [NPROC [MASTER_ADDR [MASTER_PORT [IB [IF_NAME [BATCH [DATADIR [PIPE_LEN [FREEZE [SWITCH...]]]]]]]]]]
take_sweep() {
  local dataset=$1 batch=$2
  shift 2
  local folder=${7-data/$dataset} port=${3-${MASTER_PORT:-22222}}
  [[ $# -ge 2 || -n ${MASTER_ADDR:-} ]] || usage_error "MASTER_ADDR is missing: give the host name or IP address of node 0 as second argument or in the environment"
  number MASTER_PORT "$port" 1 $((65536 - ${#learning_rates[@]})) && port=$REPLY
  arguments=("${1-8}" "$nodes_of_a_sweep" "$sweep_node" "${2-${MASTER_ADDR:-}}" "$port" "${4-1}" "${5-}" "${learning_rates[0]}"
    "${6-$batch}" "$dataset" "$folder" "${8-${1-8}}" "${9-1}" "${@:10}")
  # Checks the arguments before the first run.
  take_elastic "${arguments[@]}"
  arguments[6]=$if_name # --if-name, or the argument
  arguments[10]=$(absolute "$folder")
}

# take_folder DATASET: --run-dir is the folder of the sweep; each run gets a folder in it.
take_folder() {
  local -a rest=()
  local i resume=
  for ((i = 0; i < ${#options[@]}; ++i)); do
    case ${options[i]} in
      --run-dir) sweep_folder=${options[++i]} ;;
      --resume) resume=${options[++i]} ;;
      *) rest+=("${options[i]}") ;;
    esac
  done
  options=("${rest[@]}")
  if [[ -n $resume ]]; then
    [[ $resume == auto && -n $sweep_folder ]] || die 2 "a sweep continues with --run-dir FOLDER --resume auto, with the folder of the sweep"
    options+=(--resume auto)
  fi
  sweep_folder=${sweep_folder:-$SLUICE_ROOT/runs/$1_batch_experiment-$(date +%Y%m%d-%H%M%S)}
}

# run_rate INDEX: one run with its own log; a dry run prints its plan.
run_rate() {
  local rate=${learning_rates[$1]} code=0
  local log=$sweep_folder/lr-$rate-node$sweep_node.log
  local -a run=("${arguments[@]}")
  run[4]=$((arguments[4] + $1)) run[7]=$rate
  run=("$SLUICE_ROOT/scripts/run_elastic_pipe.sh" "${run[@]}" "${options[@]}")
  told=()
  if [[ $dry_run -eq 1 ]]; then
    start_apart "$1" "learning rate $rate" "${run[@]}"
  else
    mkdir -p -- "$sweep_folder" || die 8 "cannot create the folder $sweep_folder of the sweep: give another --run-dir"
    say "learning rate $rate, $(($1 + 1)) of ${#learning_rates[@]}: $log"
    start_apart "$1" "learning rate $rate" "${run[@]}" --run-dir "$sweep_folder/lr-$rate" >>"$log" 2>&1
  fi
  # Stops a run that was being started when the signal came.
  [[ $stop_asked -eq 0 ]] || send_to_untold TERM
  wait_for_run "$1" || code=$?
  take_end "$code" "learning rate $rate" "$log"
}

# wait_for_run NUMBER: returns the exit code of the run. A signal interrupts `wait`, so it polls first.
wait_for_run() {
  local code=0
  while is_running "${pid_of[$1]}" "${start_of[$1]}"; do sleep "$poll_s" || true; done
  wait "${pid_of[$1]}" || code=$?
  unset "pid_of[$1]"
  return "$code"
}

# take_end CODE WHAT LOG: a failed rate does not end the sweep; a stopped one does, on both nodes.
take_end() {
  [[ $1 -ne 0 ]] || return 0
  if [[ $1 -eq 130 || $stop_asked -eq 1 ]]; then
    stop_asked=1 exit_code=130
    return
  fi
  [[ $exit_code -ne 0 ]] || exit_code=$1
  if [[ $dry_run -eq 1 ]]; then say "$2 ended with exit code $1"; else say "$2 ended with exit code $1: $(tail -n 1 -- "$3")"; fi
}

tell_end() {
  local folder
  printf -v folder %q "$sweep_folder"
  if [[ $stop_asked -eq 1 ]]; then
    say "stopped; to continue, run the same command on both nodes with --run-dir $folder --resume auto"
  elif [[ $sweep_node -eq 0 ]]; then
    say "to compare the runs: build/release/sluice report $folder/lr-*/"
  fi
}
