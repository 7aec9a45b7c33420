# shellcheck shell=bash
# Starts several processes of a run on this node, passes signals on, waits for all, and returns the exit code of the
# cause. Sourced by launch.sh. Each rank has its own session, so it gets a Ctrl-C once, through this script.

readonly poll_s=0.25
peer_grace_s=30                         # how long ranks may go on after one has failed
[[ ! ${SLUICE_PEER_GRACE_S:-} =~ ^[0-9]{1,6}$ ]] || peer_grace_s=$((10#$SLUICE_PEER_GRACE_S))
pid_of=() start_of=() # of the processes that have not been waited for, by rank
told=()     # ranks that have been sent a signal to stop
filters=()
stop_asked=0     # a signal to stop was passed on
failed_rank=     # the first rank that ended with an error, and when
failed_at=0
ending=none      # what was sent after the grace: none, TERM, KILL
exit_code=0
goes_on=0        # 1: with replicas.elastic, ranks go on without a failed one
done_at=         # when the first rank ended well

# How much a code says about the cause: code 5 (lost a peer) and 130 (interrupted) are consequences.
weight_of() {
  case $1 in
    0) REPLY=0 ;;
    130) REPLY=1 ;;
    5) REPLY=2 ;;
    *) REPLY=3 ;;
  esac
}

# run_ranks FIRST_RANK COUNT COMMAND...: ends the script.
run_ranks() {
  local first=$1 count=$2 i messages
  shift 2
  pass_signals_on
  for ((i = 0; i < count && !stop_asked; ++i)); do
    start_rank $((first + i)) "$i" "$@"
  done
  # Signals a rank that was being started when the signal came. A second signal would end the others at once.
  [[ $stop_asked -eq 0 ]] || send_to_untold TERM
  exec {messages}>&2
  # Hides the messages of the shell about killed children.
  wait_for_ranks 2>/dev/null
  [[ $goes_on -eq 0 || -z $done_at ]] || exit_code=0
  wait "${filters[@]}" || true
  exit "$exit_code"
}

pass_signals_on() {
  local signal
  for signal in TERM INT HUP; do
    # shellcheck disable=SC2064 # the name of the signal is meant as it is now
    trap "pass_on $signal" "$signal"
  done
}

start_rank() {
  local rank=$1 local_rank=$2 output
  shift 2
  open_output "$rank"
  # Standard output is the result of rank 0 and stays unchanged.
  RANK=$rank LOCAL_RANK=$local_rank start_apart "$rank" "rank $rank" "$@" 2>&"$output"
  exec {output}>&-
}

# start_apart NUMBER WHAT COMMAND...: starts the command in its own session; sets pid_of[NUMBER].
start_apart() {
  local number=$1 what=$2 start_time=gone
  shift 2
  # By default, a background child of a script ignores SIGINT.
  env --default-signal=INT --default-signal=QUIT setsid "$@" </dev/null &
  pid_of[number]=$!
  read_start_time "$!" || true
  start_of[number]=$start_time
  record "$!" "$what"
}

# open_output RANK: sets output to a descriptor for standard error that puts the rank before every line. On a terminal,
# rank 0 is unchanged because of its progress line, which lines of other ranks clear.
open_output() {
  local name="[rank $1] "
  if [[ -t 2 ]]; then
    if [[ $1 -eq 0 ]]; then
      exec {output}>&2
      return
    fi
    name=$'\r\e[K'$name
  fi
  # Ignores signals; it ends with its rank.
  exec {output}> >(
    trap '' INT TERM HUP
    exec sed -u "s/^/$name/" >&2
  )
  filters+=("$!")
}

send() {
  local rank
  for rank in "${!pid_of[@]}"; do
    ! is_running "${pid_of[rank]}" "${start_of[rank]}" || kill -s "$1" "${pid_of[rank]}" 2>/dev/null || true
  done
}

pass_on() {
  local rank
  stop_asked=1
  send "$1"
  for rank in "${!pid_of[@]}"; do told[rank]=1; done
}

send_to_untold() {
  local rank
  for rank in "${!pid_of[@]}"; do
    [[ -n ${told[rank]:-} ]] || kill -s "$1" "${pid_of[rank]}" 2>/dev/null || true
  done
}

# Polls, because bash 5.2's `wait -n` misses a child that a signal killed before the call, and `read -t` forgets its
# limit at a signal. Signals to this script are handled when `sleep` ends.
wait_for_ranks() {
  local rank code
  while [[ ${#pid_of[@]} -gt 0 ]]; do
    for rank in "${!pid_of[@]}"; do
      ! is_running "${pid_of[rank]}" "${start_of[rank]}" || continue
      code=0
      wait "${pid_of[rank]}" || code=$?
      take_code "$rank" "$code"
      unset "pid_of[rank]"
    done
    [[ ${#pid_of[@]} -eq 0 ]] || end_the_rest
    sleep "$poll_s" || true
  done
}

# take_code RANK CODE: the first code of the greatest weight becomes the exit code of the script.
take_code() {
  local weight
  [[ $2 -ne 0 || -n $done_at ]] || done_at=$SECONDS
  # Ignores results of our own signals.
  [[ $ending == none ]] || [[ $2 -ne 143 && $2 -ne 137 ]] || return 0
  weight_of "$2" && weight=$REPLY
  weight_of "$exit_code"
  [[ $weight -le $REPLY ]] || exit_code=$2
  [[ $weight -ge 2 ]] || return 0
  say "rank $1 ended with exit code $2" 2>&"$messages"
  [[ -n $failed_rank ]] || { failed_rank=$1 failed_at=$SECONDS; }
}

# The other ranks would wait for a failed one, so they get SIGTERM, and later SIGKILL. In an elastic run they go on, and
# a rank that still runs long after another one was done is one that they have lost.
end_the_rest() {
  local since=${failed_at}
  [[ $goes_on -eq 1 || -n $failed_rank ]] || return 0
  if [[ $goes_on -eq 1 ]]; then
    [[ -n $done_at ]] || return 0
    [[ $ending != none ]] || since=$done_at
  fi
  [[ $((SECONDS - since)) -ge $peer_grace_s ]] || return 0
  case $ending in
    none) ending=TERM ;;
    TERM) ending=KILL ;;
    KILL) return ;;
  esac
  say "ranks ${!pid_of[*]} still run $peer_grace_s s later: sending SIG$ending" 2>&"$messages"
  send "$ending"
  failed_at=$SECONDS
}
