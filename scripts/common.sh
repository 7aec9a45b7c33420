# shellcheck shell=bash
# Shared by the scripts of this folder: the repository root, messages and exits. Sourced by bash. Exit codes are those
# of docs/reference/exit_codes.md; messages for users go to standard error.

# shellcheck disable=SC2034 # the scripts that source this file use it
SLUICE_ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die CODE SENTENCE: ends the script.
die() {
  local code=$1
  shift
  say "$*"
  exit "$code"
}

# The comment at the head of the script is its help.
print_help() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"; }

# Relative paths of the user are relative to the caller's folder; the scripts work in the repository.
absolute() {
  case $1 in
    /*) printf '%s\n' "$1" ;;
    *) printf '%s/%s\n' "$PWD" "$1" ;;
  esac
}

# torch_library_path PYTHON: library folders of its PyTorch and of the NVIDIA packages beside it.
torch_library_path() {
  "$1" -c 'import glob, os, torch
root = os.path.dirname(torch.__file__)
print(":".join([root + "/lib", *glob.glob(os.path.dirname(root) + "/nvidia/*/lib")]))'
}

# One job per core, but no more than the free memory allows: a file that includes LibTorch takes up to 1.5 GB.
build_jobs() {
  if [[ -n ${CMAKE_BUILD_PARALLEL_LEVEL:-} ]]; then
    printf '%s\n' "$CMAKE_BUILD_PARALLEL_LEVEL"
    return
  fi
  local cores kib by_memory
  cores=$(nproc)
  kib=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  by_memory=$((${kib:-0} / 1572864))
  local jobs=$((by_memory < cores ? by_memory : cores))
  printf '%s\n' $((jobs < 1 ? 1 : jobs))
}
