#!/usr/bin/env bash
# CIFAR-100 with one learning rate after the other, 0.03, 0.01, 0.3 and 0.1, on two nodes: this is for node 0.
#
# usage: scripts/run_cifar100_batch_experiment_node0.sh [NPROC [MASTER_ADDR [MASTER_PORT [IB [IF_NAME [BATCH
#            [DATADIR [PIPE_LEN [FREEZE [SWITCH...]]]]]]]]]] [OPTIONS]
#
# Each is one run of scripts/run_elastic_pipe.sh; its --help explains the arguments. Defaults: NPROC 8, MASTER_ADDR and
# MASTER_PORT from the environment (else 22222), IB 1, IF_NAME '' (any), BATCH 320, DATADIR data/cifar100 where you are,
# PIPE_LEN equal to NPROC, FREEZE 1. The runs use MASTER_PORT and the next three ports.
#
# A failed rate, for example a diverging one, does not end the sweep; the exit code is that of the first failure. OPTIONS:
# those of scripts/run.sh; --run-dir FOLDER is the folder of the sweep (else runs/cifar100_batch_experiment-DATE-TIME), with
# FOLDER/lr-RATE and FOLDER/lr-RATE-node0.log. scripts/stop.sh ends the sweep on both nodes; --run-dir FOLDER --resume auto
# on both nodes continues it.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/sweep.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/sweep.sh"

sweep cifar100 0 320 "$@"
