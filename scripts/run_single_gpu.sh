#!/usr/bin/env bash
# The whole model on one device, in one process: the baseline of the other scripts.
#
# usage: scripts/run_single_gpu.sh LR [BATCH [DATASET [DATADIR [IS_GPU]]]] [OPTIONS]
#
#   LR BATCH          train.lr, train.global_batch
#   DATASET DATADIR   data.name (imagenet means image_folder; squad and sst2 train BERT, see run.sh --help); data.path,
#                     relative to where you are
#   IS_GPU            1: one GPU (device.list=cuda), 0: one CPU device (device.list=cpu)
#
# Arguments that are missing at the end stay as configured; options are those of scripts/run.sh. The configuration is
# $SLUICE_CONFIG, or configs/single_device.toml or one of BERT by DATASET, with pipeline.stages=1 and replicas.local=1.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/launch.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/launch.sh"

split_arguments "$@"
[[ ${#positionals[@]} -ge 1 && ${#positionals[@]} -le 5 ]] || usage_error "${#positionals[@]} arguments, but it takes 1 to 5"
take_config configs/single_device.toml
argument_sets+=(--set pipeline.stages=1 --set replicas.local=1)
take_recipe "${positionals[@]:0:4}"
if [[ ${#positionals[@]} -eq 5 ]]; then
  yes_or_no IS_GPU "${positionals[4]}"
  devices=(cpu cuda)
  argument_sets+=(--set "device.list=${devices[REPLY]}")
fi
placed=1 # the only process
launch
