#!/usr/bin/env bash
# Data parallelism by processes: NPROC processes on each of NNODES nodes, each with the whole model on one device.
#
# usage: scripts/run_ddp.sh NPROC NNODES NODE_RANK MASTER_ADDR MASTER_PORT [IB [LR [BATCH [DATASET [DATADIR]]]]] [OPTIONS]
#
# Arguments and options are those of scripts/run.sh; see its --help. BATCH is the samples per step of one process:
# train.global_batch = BATCH x NPROC x NNODES. The configuration is $SLUICE_CONFIG, or configs/ddp.toml or one of BERT by
# DATASET, with pipeline.stages=1 and replicas.local=1. If NPROC > 1, lines of standard error begin with [rank N]. The
# exit code is that of the rank that failed first, or another code than 5 (lost peer) if there is one.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/launch.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/launch.sh"

split_arguments "$@"
[[ ${#positionals[@]} -ge 5 && ${#positionals[@]} -le 10 ]] || usage_error "${#positionals[@]} arguments, but it takes 5 to 10"
take_config configs/ddp.toml
argument_sets+=(--set pipeline.stages=1 --set replicas.local=1)
take_world "${positionals[@]:0:6}"
take_recipe "${positionals[@]:6}"
launch
