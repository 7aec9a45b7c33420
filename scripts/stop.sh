#!/usr/bin/env bash
# Ends the runs and sweeps that the launch scripts (run*.sh) of this user have started on this node, and nothing else.
#
# usage: scripts/stop.sh [--timeout SECONDS]
#
# Every run gets SIGTERM, saves a checkpoint and ends; --resume continues it. Processes that still run after --timeout
# (default: 120) are killed. A second call waits for the first. If the first call was interrupted, a second one sends a
# second signal, which ends a run at once, without saving.
# Exit codes: 0 all ended, or nothing ran; 2 bad usage; 5 some were killed; 8 the records cannot be trusted.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=scripts/started.sh
source "$SLUICE_ROOT/scripts/started.sh"

readonly say_every_s=5
timeout_s=120

parse_arguments() {
  while [[ $# -gt 0 ]]; do
    case $1 in
      --timeout | --timeout=*)
        if [[ $1 == *=* ]]; then
          timeout_s=${1#*=}
        else
          timeout_s=${2-}
          shift
        fi
        [[ $timeout_s =~ ^[0-9]{1,6}$ ]] || die 2 "--timeout needs a whole number of seconds"
        timeout_s=$((10#$timeout_s))
        ;;
      -h | --help)
        print_help
        exit 0
        ;;
      *) die 2 "unknown argument '$1'; see scripts/stop.sh --help" ;;
    esac
    shift
  done
}

# Sets running to the lines "PID START WHAT" of all records.
find_running() {
  local record
  local -a lines
  running=()
  for record in "$STARTED_DIR"/*.*; do
    [[ -f $record ]] || continue
    mapfile -t lines < <(list_running "$record")
    running+=("${lines[@]}")
  done
}

# ask_to_stop RECORD: signals the launching script, which passes the signal on, or, if it is gone, its ranks.
ask_to_stop() {
  local launcher=${1##*/} pid start
  while read -r pid start _; do
    send TERM "$pid" "$start"
    [[ $pid != "${launcher%%.*}" ]] || return 0
  done < <(list_running "$1")
}

send() { ! is_running "$2" "$3" || kill -s "$1" "$2" 2>/dev/null || true; }

describe_running() {
  local line pid what text=
  for line in "${running[@]}"; do
    read -r pid _ what <<<"$line"
    text+="${text:+, }$what (pid $pid)"
  done
  printf '%s\n' "$text"
}

wait_until_ended() {
  local start=$SECONDS said=$SECONDS
  find_running
  while [[ ${#running[@]} -gt 0 ]]; do
    [[ $((SECONDS - start)) -lt $1 ]] || return 1
    if [[ $((SECONDS - said)) -ge $say_every_s ]]; then
      said=$SECONDS
      say "${#running[@]} still run after $((SECONDS - start)) s of at most $1 s"
    fi
    sleep 0.1
    find_running
  done
}

parse_arguments "$@"
open_started_dir || die 8 "other users may write to $STARTED_DIR, so its records cannot be trusted; inspect it and remove it"
exec {lock}>"$STARTED_DIR/lock"
flock -n "$lock" || { say "waiting for another stop.sh" && flock "$lock"; }
remove_stale_records
find_running
[[ ${#running[@]} -gt 0 ]] || { say "no process of these scripts is running" && exit 0; }
say "asking to stop: $(describe_running)"
for record in "$STARTED_DIR"/*.*; do ask_to_stop "$record"; done

code=0
if ! wait_until_ended "$timeout_s"; then
  say "killing processes that did not end: $(describe_running)"
  for line in "${running[@]}"; do
    read -r pid start _ <<<"$line"
    send KILL "$pid" "$start"
  done
  code=5
  wait_until_ended 10 || die 5 "${#running[@]} processes do not end even when killed: the kernel holds them"
fi
remove_stale_records
say "all ended"
exit "$code"
