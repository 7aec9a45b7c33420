#!/usr/bin/env bash
# ImageNet with one learning rate after the other, 0.03, 0.01, 0.3 and 0.1, on two nodes: this is for node 0.
#
# usage: scripts/run_imagenet_batch_experiment_node0.sh [NPROC [MASTER_ADDR [MASTER_PORT [IB [IF_NAME [BATCH
#            [DATADIR [PIPE_LEN [FREEZE [SWITCH...]]]]]]]]]] [OPTIONS]
#
# Arguments and options are those of scripts/run_cifar100_batch_experiment_node0.sh; see its --help. Other defaults: BATCH
# 400, DATADIR data/imagenet where you are.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/sweep.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/sweep.sh"

sweep imagenet 0 400 "$@"
