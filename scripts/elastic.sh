# shellcheck shell=bash
# Converts the arguments of run_elastic_pipe.sh to configuration keys. Sourced by launch.sh. One process drives the
# NPROC devices of a node, which hold NPROC / PIPE_LEN pipelines at first. The apply_* functions run after sluice is
# built, because they read the configuration.

# shellcheck disable=SC2154 # max_world and config are launch.sh's
local_devices= # NPROC; empty: replicas.local is the configuration's
freeze=        # 1, 0; empty: freeze.policy is the configuration's
feature_cache= # 1, 0; empty: freeze.cache is the configuration's

# take_elastic NPROC NNODES NODE_RANK MASTER_ADDR MASTER_PORT [IB [IF_NAME [LR [BATCH [DATASET [DATADIR [PIPE_LEN [FREEZE
# [SWITCH...]]]]]]]]]
take_elastic() {
  number NPROC "$1" 1 "$max_world" && local_devices=$REPLY
  [[ $# -lt 7 ]] || take_interface "$7"
  take_world 1 "${@:2:5}"
  take_recipe "${@:8:4}"
  [[ $# -lt 12 ]] || take_pipe_len "${12}"
  [[ $# -lt 13 ]] || take_freeze "${13}"
  take_switches "${@:14}"
}

# --if-name wins. An empty argument leaves the interface open.
take_interface() {
  [[ ! $1 =~ ^[0-9.]+$ ]] \
    || usage_error "IF_NAME = '$1' is a number: give the name of a network interface between IB and LR, or '' for any"
  if_name=${if_name:-$1}
}

take_pipe_len() {
  number PIPE_LEN "$1" 1 1024
  check_pipes "$REPLY"
  argument_sets+=(--set "pipeline.stages=$REPLY")
}

check_pipes() {
  [[ $((local_devices % $1)) -eq 0 ]] \
    || die 2 "NPROC = $local_devices is not a multiple of PIPE_LEN = $1 (pipeline.stages); change one of them"
}

# FREEZE may be a share such as 0.33: freezing, with this freeze.alpha.
take_freeze() {
  if [[ $1 =~ ^0?\.[0-9]+$ ]]; then
    freeze=1
    argument_sets+=(--set "freeze.alpha=0.${1#*.}")
  else
    yes_or_no FREEZE "$1" && freeze=$REPLY
  fi
}

# take_switches [SWITCH...]: the last of contradictory switches wins.
take_switches() {
  local switch
  for switch in "$@"; do
    case $switch in
      freeze) freeze=1 ;;
      no_freeze) freeze=0 ;;
      auto_pipe) argument_sets+=(--set freeze.elastic=true) ;;
      no_auto_pipe) argument_sets+=(--set freeze.elastic=false) ;;
      auto_dp) argument_sets+=(--set freeze.replicas=true) ;;
      no_auto_dp) argument_sets+=(--set freeze.replicas=false) ;;
      cache) feature_cache=1 ;;
      no_cache) feature_cache=0 ;;
      *) usage_error "'$switch' is not one of [no_]freeze, [no_]auto_pipe, [no_]auto_dp, [no_]cache" ;;
    esac
  done
}

apply_devices() {
  [[ -n $local_devices ]] || return 0
  configured_number pipeline stages
  check_pipes "$REPLY"
  argument_sets+=(--set "replicas.local=$((local_devices / REPLY))")
}

# FREEZE = 1 keeps a policy that the configuration names.
apply_freeze() {
  local policy
  case $freeze in
    0) argument_sets+=(--set freeze.policy=none) ;;
    1)
      policy=$(configured freeze policy) || exit
      [[ -n $policy ]] || die 70 "sluice config $config does not say freeze.policy"
      [[ $policy != '"none"' ]] || argument_sets+=(--set freeze.policy=linear)
      ;;
  esac
}

# New crops and flips in each epoch would make every feature a miss. So with the cache a sample has two views in turn,
# unless the configuration sets data.views or no layers freeze.
apply_feature_cache() {
  case $feature_cache in
    0) argument_sets+=(--set freeze.cache=off) ;;
    1)
      [[ $(configured freeze policy) != '"none"' ]] || return 0
      local kept views crop flip
      kept=$(configured freeze cache) && views=$(configured data views) || exit
      crop=$(configured data crop_padding) && flip=$(configured data flip) || exit
      [[ $kept != '"off"' ]] || argument_sets+=(--set freeze.cache=auto)
      [[ $views -ne 0 || ($crop -eq 0 && $flip == false) ]] || argument_sets+=(--set data.views=2)
      ;;
  esac
}
