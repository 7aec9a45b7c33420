#!/usr/bin/env bash
# Anytime or fixed mini-batches on a parameter server, by the command lines of the anytime project (run_perf_amb.py).
#
# usage: scripts/run_perf_amb.sh DATASET amb|fmb OPTIMIZER BATCH [ARGUMENTS] [OPTIONS]
#
#   DATASET                   mnist, cifar10 or toy (the built-in shapes), with a small model for each; or another name of
#                             build/release/sluice datasets, with ResNet-8
#   amb | fmb                 workers compute for a fixed time, or a fixed batch
#   OPTIMIZER                 rms, adm, mom or sgd: RMSprop, Adam, momentum 0.9, plain
#   BATCH                     samples of a worker and step; of amb at most, in whole slices
#
# ARGUMENTS, as --name VALUE or --name=VALUE:
#
#   --amb_time_limit S        amb: seconds after which a worker begins no other slice
#   --amb_num_partitions P    amb: slices of a batch (older lines: --amb_num_splits)
#   --test_size N             evaluate on the first N samples of the test set; -1: all, as without it
#   --induce                  workers stall as those on EC2 were made to
#   --starter_learning_rate R --decay_rate F --decay_steps N    R (0.001) times F (1: it stays) every N (50) updates
#   --last_step N             updates of the run (2000)
#   --log_freq N              updates between two lines of the log (1)
#
# Under mpirun, srun or torchrun the first process is the master and the others are its workers; a single process trains
# alone. Without a launcher ten workers run in this process, on a virtual clock that counts 22.3 ms per sample, as measured
# by the project. Change this with --set ps.workers=N, ps.sample_s=S, ps.step_s=S (per slice).
#
# OPTIONS: those of scripts/run.sh. Data are in data/mnist and data/cifar10, or where --set data.path=DIR says. The
# configuration is $SLUICE_CONFIG or configs/perf_amb.toml.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/launch.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/launch.sh"

readonly value_names=' amb_time_limit amb_num_partitions test_size starter_learning_rate decay_rate decay_steps last_step log_freq '
declare -A given=() # their arguments by name
others=()           # the words that are not theirs

set_key() { argument_sets+=(--set "$1=$2"); }

# take_arguments WORDS...: fills given and others.
take_arguments() {
  local name
  while [[ $# -gt 0 ]]; do
    name=${1%%=*}
    name=${name#--}
    [[ $name != amb_num_splits ]] || name=amb_num_partitions
    if [[ $1 == --induce ]]; then
      given[induce]=1
    elif [[ $1 == --* && $value_names == *" $name "* ]]; then
      if [[ $1 == *=* ]]; then
        given[$name]=${1#*=}
      else
        [[ $# -ge 2 ]] || die 2 "$1 needs a value"
        given[$name]=$2
        shift
      fi
    else
      others+=("$1")
    fi
    shift
  done
}

# take_number NAME KEY LOW HIGH: sets a key to a whole number, if the argument is given.
take_number() {
  [[ -n ${given[$1]+x} ]] || return 0
  number "--$1" "${given[$1]}" "$3" "$4"
  set_key "$2" "$REPLY"
}

take_real() {
  [[ -n ${given[$1]+x} ]] || return 0
  real "--$1" "${given[$1]}"
  set_key "$2" "$REPLY"
}

take_data() {
  local name=$1
  [[ $name != toy && $name != toy_model ]] || name=shapes
  take_data_set "$name"
  [[ -z $text_set ]] || die 2 "DATASET = '$name' has texts, but these runs train models of images; use scripts/run_single_gpu.sh or scripts/run.sh"
  [[ $name != mnist && $name != cifar10 ]] || set_key data.path "data/$name"
  case $name in
    mnist | fashion_mnist | shapes) set_key model.name toy_cnn ;;
  esac
}

take_rule() {
  case $1 in
    # As in TensorFlow, whose eps of 1e-10 is inside the root.
    rms) argument_sets+=(--set train.optimizer=rmsprop --set train.rms_alpha=0.9 --set train.eps=1e-5) ;;
    adm) set_key train.optimizer adam ;;
    mom) argument_sets+=(--set train.optimizer=momentum --set train.momentum=0.9) ;;
    sgd) set_key train.optimizer sgd ;;
    *) usage_error "OPTIMIZER = '$1' is not one of rms, adm, mom, sgd" ;;
  esac
}

take_batch() {
  number BATCH "$2" 1 1000000000
  local samples=$REPLY
  case $1 in
    fmb)
      [[ -z ${given[amb_time_limit]+x}${given[amb_num_partitions]+x} ]] || say "fmb has neither time limit nor partitions: ignoring these arguments"
      ;;
    amb)
      [[ -n ${given[amb_time_limit]+x} && -n ${given[amb_num_partitions]+x} ]] || usage_error "amb needs --amb_time_limit and --amb_num_partitions"
      take_real amb_time_limit ps.time_limit_s
      number --amb_num_partitions "${given[amb_num_partitions]}" 1 65536
      [[ $REPLY -le $samples ]] || usage_error "--amb_num_partitions = $REPLY is more than BATCH = $samples"
      set_key ps.partitions "$REPLY"
      samples=$((samples - samples % REPLY))
      ;;
    *) usage_error "'$1' is neither amb nor fmb" ;;
  esac
  set_key ps.policy "$1"
  set_key ps.worker_batch "$samples"
}

take_recipe_of_theirs() {
  [[ ${given[test_size]:-} != -1 ]] || given[test_size]=0
  take_number test_size train.eval_limit 0 1000000000
  take_real starter_learning_rate train.lr
  take_real decay_rate train.lr_decay
  take_number decay_steps train.lr_decay_every 1 1000000000
  take_number last_step train.steps 1 1000000000
  take_number log_freq log.every 1 1000000000
  [[ -z ${given[induce]:-} ]] || set_key ps.induce ec2
}

# Number of processes that a launcher started; 0: none.
launched() {
  REPLY=${WORLD_SIZE:-${OMPI_COMM_WORLD_SIZE:-${MV2_COMM_WORLD_SIZE:-${PMI_SIZE:-0}}}}
  [[ -z ${SLURM_STEP_ID:-} || $REPLY != 0 ]] || REPLY=${SLURM_STEP_NUM_TASKS:-${SLURM_NTASKS:-0}}
}

place_workers() {
  launched
  if [[ $REPLY == 0 ]]; then
    say "no launcher: ten workers on a virtual clock, in this process (mpirun -n 3 ${0##*/} ... has a master and two workers)"
    argument_sets+=(--set ps.clock=virtual --set ps.workers=10 --set ps.sample_s=0.0223)
  elif [[ ${RANK:-${OMPI_COMM_WORLD_RANK:-${MV2_COMM_WORLD_RANK:-${PALS_RANKID:-${PMI_RANK:-${SLURM_PROCID:-0}}}}}} == 0 ]]; then
    say "$REPLY processes: this one is the master"
  fi
}

take_arguments "$@"
split_arguments ${others[@]+"${others[@]}"}
[[ ${#positionals[@]} -eq 4 ]] || usage_error "${#positionals[@]} arguments, but it takes 4"
take_config configs/perf_amb.toml
take_data "${positionals[0]}"
take_batch "${positionals[1]}" "${positionals[3]}"
take_rule "${positionals[2]}"
take_recipe_of_theirs
place_workers
launch
