# shellcheck shell=bash
# Converts the arguments of the run*.sh scripts to a call of `sluice train`. Sourced by bash. Arguments of the user are
# passed on as whole words and never expanded. sluice checks the values; only the numbers of processes are checked here.

# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=scripts/started.sh
source "$SLUICE_ROOT/scripts/started.sh"
# shellcheck source=scripts/ranks.sh
source "$SLUICE_ROOT/scripts/ranks.sh"
# shellcheck source=scripts/elastic.sh
source "$SLUICE_ROOT/scripts/elastic.sh"

readonly max_world=65536 # sluice's own limit
positionals=()           # what stands before the first option
options=()               # the rest, for sluice train
user_sets=()             # the --set among them, for sluice config
argument_sets=()         # --set key=value from the positional arguments
text_set=                # DATASET, if it is one of texts
text_shape=()            # --set of pipeline and freezing that the script's configuration has, for one of texts
if_name=
dry_run=0
config=
batch=                   # samples a replica; empty: train.global_batch is the configuration's
nproc=1
nnodes=1
node_rank=0
local_rank=0             # of this process among those of its machine, where they are not nproc
local_size=
placed=0                 # whether the arguments say which process of how many this is

usage_error() {
  say "$*"
  print_help >&2
  exit 2
}

split_arguments() {
  while [[ $# -gt 0 && $1 != -* ]]; do
    positionals+=("$1")
    shift
  done
  while [[ $# -gt 0 ]]; do
    case $1 in
      -h | --help)
        print_help
        exit 0
        ;;
      --run-dir=* | --resume=* | --set=* | --if-name=*) take_option "${1%%=*}" "${1#*=}" ;;
      --run-dir | --resume | --set | --if-name)
        [[ $# -ge 2 ]] || die 2 "$1 needs a value"
        take_option "$1" "$2"
        shift
        ;;
      *)
        [[ $1 != --dry-run ]] || dry_run=1
        options+=("$1")
        ;;
    esac
    shift
  done
}

take_option() {
  case $1 in
    --if-name) if_name=$2 ;;
    --set)
      options+=(--set "$2")
      user_sets+=(--set "$2")
      ;;
    *)
      [[ $1 == --resume && $2 == auto ]] || set -- "$1" "$(absolute "$2")"
      options+=("$1" "$2")
      ;;
  esac
}

# number NAME TEXT LOW HIGH: sets REPLY to the number without leading zeros.
number() {
  if [[ ! $2 =~ ^[0-9]{1,10}$ ]] || ((10#$2 < $3 || 10#$2 > $4)); then
    usage_error "$1 = '$2' is not a whole number from $3 to $4"
  fi
  REPLY=$((10#$2))
}

# real NAME TEXT: sets REPLY to the number in the syntax of TOML.
real() {
  [[ $2 =~ ^([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$ ]] || usage_error "$1 = '$2' is not a number"
  REPLY=$2
  [[ $REPLY != .* ]] || REPLY=0$REPLY # TOML knows no .03
}

# yes_or_no NAME TEXT: sets REPLY to 1 or 0.
yes_or_no() {
  [[ $2 == [01] ]] || usage_error "$1 = '$2' is neither 0 nor 1"
  REPLY=$2
}

# take_world NPROC NNODES NODE_RANK MASTER_ADDR MASTER_PORT [IB]
take_world() {
  number NPROC "$1" 1 "$max_world" && nproc=$REPLY
  number NNODES "$2" 1 "$((max_world / nproc))" && nnodes=$REPLY
  number NODE_RANK "$3" 0 "$((nnodes - 1))" && node_rank=$REPLY
  [[ -n $4 ]] || usage_error "MASTER_ADDR is empty: give the host name or IP address of node 0"
  number MASTER_PORT "$5" 1 65535
  export MASTER_ADDR=$4 MASTER_PORT=$REPLY
  if [[ $# -ge 6 ]]; then
    yes_or_no IB "$6"
    export NCCL_IB_DISABLE=$((1 - REPLY))
  fi
  if_name=${if_name:-${SLUICE_IF_NAME:-}}
  placed=1
}

on_this_machine() {
  local_rank=$node_rank
  local_size=$1
}

# take_recipe [LR [BATCH [DATASET [DATADIR]]]]: missing arguments stay as configured.
take_recipe() {
  argument_sets+=(--set log.lines=full)
  [[ $# -lt 1 ]] || take_lr "$1"
  [[ $# -lt 2 ]] || { number BATCH "$2" 1 1000000000 && batch=$REPLY; }
  [[ $# -lt 3 ]] || take_data_set "$3"
  [[ $# -lt 4 ]] || take_data_folder "$4"
}

take_lr() {
  real LR "$1"
  argument_sets+=(--set "train.lr=$REPLY")
}

take_data_set() {
  [[ -n $1 ]] || usage_error "DATASET is empty: build/release/sluice datasets lists the names"
  case $1 in
    imagenet) argument_sets+=(--set data.name=image_folder) ;;
    squad) take_texts "$1" configs/bert_squad.toml data.name=squad model.task=qa ;;
    sst2)
      take_texts "$1" configs/bert_classify.toml data.name=csv model.task=classify data.text_column=sentence \
        data.label_column=label
      ;;
    *) argument_sets+=(--set "data.name=$1") ;;
  esac
}

# take_texts DATASET CONFIG KEY=VALUE...: CONFIG replaces the script's configuration, which has a model of images.
take_texts() {
  local setting
  text_set=$1
  [[ -n ${SLUICE_CONFIG:-} ]] || config=$2 argument_sets+=("${text_shape[@]}")
  for setting in "${@:3}"; do argument_sets+=(--set "$setting"); done
}

# The configuration in SLUICE_CONFIG may have a model of images.
check_text_model() {
  [[ -n $text_set && -n ${SLUICE_CONFIG:-} ]] || return 0
  local model
  model=$(configured model name) || exit
  case $model in
    '"bert"' | '"llama"' | '"gpt2"') ;;
    *) die 2 "DATASET = $text_set needs a text model, but $SLUICE_CONFIG has model.name = $model; set SLUICE_CONFIG to a configuration of BERT, or leave it empty" ;;
  esac
}

take_data_folder() {
  [[ -n $1 ]] || usage_error "DATADIR is empty: give the folder of the data set"
  argument_sets+=(--set "data.path=$(absolute "$1")")
}

# take_config DEFAULT: uses SLUICE_CONFIG or the default.
take_config() {
  config=$1
  [[ -z ${SLUICE_CONFIG:-} ]] || config=$(absolute "$SLUICE_CONFIG")
}

# configured TABLE KEY: prints the value of the key in the resolved configuration.
configured() {
  build/release/sluice config --all "$config" "${argument_sets[@]}" "${user_sets[@]}" \
    | awk -v table="[$1]" -v key="$2" '/^\[/ { inside = $0 == table } inside && $1 == key && $2 == "=" { print $3 }'
}

configured_number() {
  REPLY=$(configured "$1" "$2") || exit
  [[ $REPLY =~ ^[0-9]+$ ]] || die 70 "sluice config $config does not say $1.$2"
}

# BATCH is per replica; each process has replicas.local of them.
apply_batch() {
  [[ -n $batch ]] || return 0
  configured_number replicas local
  argument_sets+=(--set "train.global_batch=$((batch * REPLY * nproc * nnodes))")
}

# Positional arguments win over the environment of another launcher.
forget_other_launchers() {
  unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE SLURM_PROCID SLURM_NTASKS OMPI_COMM_WORLD_RANK
  unset MV2_COMM_WORLD_RANK PALS_RANKID PMI_RANK PMIX_RANK
  unset TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_RESTART_COUNT TORCHELASTIC_RUN_ID
}

use_interface() {
  [[ -n $if_name ]] || return 0
  export NCCL_SOCKET_IFNAME=$if_name GLOO_SOCKET_IFNAME=$if_name
  options+=(--if-name "$if_name")
}

# Builds if necessary and trains. One process replaces this script; several become its children.
launch() {
  cd "$SLUICE_ROOT" || exit
  start_record "${0##*/} $config"
  scripts/bootstrap.sh --preset release
  [[ -x build/release/sluice ]] || die 70 "the build made no build/release/sluice; see build/bootstrap.log"
  # With fewer cores than threads, the default spinning of OpenMP costs a factor of a hundred. main() is too late.
  export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-3000}
  [[ $placed -eq 0 ]] || forget_other_launchers
  check_text_model
  apply_devices
  apply_freeze
  apply_feature_cache
  apply_batch
  use_interface
  # The last --set wins.
  local -a command=(build/release/sluice train "$config" "${argument_sets[@]}" "${options[@]}")
  if [[ $((nproc * nnodes)) -gt 1 ]]; then
    export WORLD_SIZE=$((nproc * nnodes)) LOCAL_WORLD_SIZE=${local_size:-$nproc}
    local first_rank=$((node_rank * nproc))
    [[ $(configured replicas elastic 2>/dev/null) != true ]] || goes_on=1
    [[ $nproc -eq 1 || $dry_run -eq 1 ]] || run_ranks "$first_rank" "$nproc" "${command[@]}" # ends the script
    export RANK=$first_rank LOCAL_RANK=$local_rank
  fi
  exec "${command[@]}"
}
