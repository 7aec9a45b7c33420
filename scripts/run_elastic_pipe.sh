#!/usr/bin/env bash
# Pipelines that freeze layers and shrink: one process per node drives NPROC devices, at first PIPE_LEN per pipeline.
#
# usage: scripts/run_elastic_pipe.sh NPROC NNODES NODE_RANK MASTER_ADDR MASTER_PORT [IB [IF_NAME [LR [BATCH [DATASET
#            [DATADIR [PIPE_LEN [FREEZE [SWITCH...]]]]]]]]] [OPTIONS]
#
#   NPROC                     devices of this node; NPROC / PIPE_LEN pipelines (replicas.local), which must be a whole number
#   NNODES NODE_RANK          nodes, this node from 0
#   MASTER_ADDR MASTER_PORT   where node 0 is found, and a free port there
#   IB                        1: NCCL may use InfiniBand, 0: it may not (NCCL_IB_DISABLE is set to match)
#   IF_NAME                   network interface that carries tensors; '' leaves it open; --if-name wins
#   LR BATCH                  train.lr; samples per step of one pipeline: train.global_batch = BATCH x NPROC / PIPE_LEN x
#                             NNODES, which stays when the pipelines change
#   DATASET DATADIR           data.name (imagenet means image_folder; squad and sst2 train BERT, see run.sh --help);
#                             data.path, relative to where you are
#   PIPE_LEN                  pipeline.stages to begin with
#   FREEZE                    0: freeze.policy=none, 1: linear or what the configuration has; a share such as 0.33: 1 with
#                             this freeze.alpha
#   SWITCH                    for each part, in any order; the later one holds:
#     freeze | no_freeze        FREEZE again: 1 or 0
#     auto_pipe | no_auto_pipe  whether the pipeline may shrink (freeze.elastic)
#     auto_dp | no_auto_dp      whether freed devices become replicas (freeze.replicas)
#     cache | no_cache          whether outputs of frozen layers are kept (freeze.cache: auto, or as configured); with crops
#                               and flips also data.views=2, if it is 0
#
# Arguments that are missing at the end stay as configured; options are those of scripts/run.sh. The configuration is
# $SLUICE_CONFIG, or configs/elastic_pipe.toml or one of BERT by DATASET.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/launch.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/launch.sh"

split_arguments "$@"
[[ ${#positionals[@]} -ge 5 ]] || usage_error "${#positionals[@]} arguments, but it takes 5 or more"
take_config configs/elastic_pipe.toml
text_shape=(--set pipeline.stages=2 --set pipeline.chunks=auto --set freeze.policy=linear --set freeze.alpha=0.3333333333333333)
take_elastic "${positionals[@]}"
launch
