#!/usr/bin/env bash
# Runs a GoogleTest program in several processes at once, each of which has a share of its tests. For programs that wait most
# of the time: one core serves all of them.
#
# usage: tests/support/shards.sh NUMBER PROGRAM
#
# Each process's output comes as a whole. Exit code: 0 if all processes ended with 0, else 1.
set -euo pipefail

readonly number=$1 program=$2
output=$(mktemp -d)
readonly output
trap 'rm -rf -- "$output"' EXIT

pids=()
for ((shard = 0; shard < number; ++shard)); do
  GTEST_TOTAL_SHARDS=$number GTEST_SHARD_INDEX=$shard "$program" >"$output/$shard" 2>&1 &
  pids+=($!)
done
trap 'kill "${pids[@]}" 2>/dev/null || true; exit 1' TERM INT
rc=0
for ((shard = 0; shard < number; ++shard)); do
  wait "${pids[shard]}" || rc=1
  cat -- "$output/$shard"
done
exit "$rc"
