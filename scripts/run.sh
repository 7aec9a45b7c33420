#!/usr/bin/env bash
# Builds Sluice if necessary, then trains: the quickstart, or pipelines on one or more nodes.
#
# usage: scripts/run.sh [OPTIONS]
#        scripts/run.sh NPROC NNODES NODE_RANK MASTER_ADDR MASTER_PORT [IB [LR [BATCH [DATASET [DATADIR]]]]] [OPTIONS]
#
# Without arguments it trains configs/quickstart.toml. With arguments, start it on every node with that node's NODE_RANK. It
# trains configs/pipe_ddp.toml: a pipeline in every process, replicated over all nodes.
#
#   NPROC NNODES NODE_RANK    processes a node (normally 1, which drives all devices), nodes, this node from 0
#   MASTER_ADDR MASTER_PORT   where node 0 is found, and a free port there
#   IB                        1: NCCL may use InfiniBand, 0: it may not (NCCL_IB_DISABLE is set to match)
#   LR BATCH                  train.lr; samples per step of one replica: train.global_batch = BATCH x replicas.local x
#                             NPROC x NNODES
#   DATASET DATADIR           data.name (imagenet means image_folder); data.path, relative to where you are
#
# DATASET squad (SQuAD's JSON: train-v1.1.json, dev-v1.1.json) and sst2 (GLUE's SST-2: train.tsv, dev.tsv) train BERT:
# configs/bert_squad.toml and configs/bert_classify.toml with the pipeline of the script's configuration. They read
# models/bert in the repository, the folder of bert-base-uncased.
#
# Arguments that are missing at the end stay as configured. OPTIONS: those of `sluice train`, among them
#
#   --set key=value           wins over the arguments before it
#   --run-dir DIR, --resume DIR|auto    relative to where you are; give the same on every node
#   --dry-run                 print the plan and stop
#   --if-name NAME            network interface that carries tensors (else $SLUICE_IF_NAME)
#
# SLUICE_CONFIG names another configuration file. scripts/stop.sh ends what was started. docs/how-to/launch.md says more.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/launch.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/launch.sh"

split_arguments "$@"
case ${#positionals[@]} in
  0) take_config configs/quickstart.toml ;;
  5 | 6 | 7 | 8 | 9 | 10)
    take_config configs/pipe_ddp.toml
    text_shape=(--set pipeline.stages=2 --set pipeline.chunks=4)
    take_world "${positionals[@]:0:6}"
    take_recipe "${positionals[@]:6}"
    ;;
  *) usage_error "${#positionals[@]} arguments given, but run.sh takes none or 5 to 10" ;;
esac
launch
