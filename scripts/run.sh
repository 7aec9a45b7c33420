#!/usr/bin/env bash
# Builds Sluice when it is missing or old, then trains: build/release/sluice train configs/quickstart.toml
#
# usage: scripts/run.sh [--set key=value]... [--run-dir DIR] [--resume DIR|auto] [--dry-run] [...]
#
# All options go to `sluice train` as they are. It runs in the repository's folder, so that the paths in the
# configuration hold; a DIR given here is relative to where you are. SLUICE_CONFIG names another configuration file.
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

# Directories on the command line are meant from the caller's folder.
absolute() {
  case $1 in
    /* | auto) printf '%s\n' "$1" ;;
    *) printf '%s/%s\n' "$PWD" "$1" ;;
  esac
}

case ${1:---} in
  -h | --help)
    print_help
    exit 0
    ;;
  -*) ;;
  *)
    say "unexpected argument '$1'"
    print_help >&2
    exit 2
    ;;
esac

options=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --run-dir | --resume)
      [[ $# -ge 2 ]] || die 2 "$1 needs a directory"
      options+=("$1" "$(absolute "$2")")
      shift
      ;;
    --run-dir=* | --resume=*) options+=("${1%%=*}" "$(absolute "${1#*=}")") ;;
    *) options+=("$1") ;;
  esac
  shift
done
config=${SLUICE_CONFIG:+$(absolute "$SLUICE_CONFIG")}

cd "$SLUICE_ROOT"
scripts/bootstrap.sh --preset release
[[ -x build/release/sluice ]] || die 70 "the build made no build/release/sluice: this checkout has no command-line program yet"
# With fewer cores than threads, OpenMP's default spinning costs a hundredfold; it is read before main() starts.
export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-3000}
exec build/release/sluice train "${config:-configs/quickstart.toml}" "${options[@]}"
