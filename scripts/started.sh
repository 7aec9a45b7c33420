# shellcheck shell=bash
# Records the processes that the launch scripts start on this node, so that scripts/stop.sh ends only those. Sourced by
# bash, after common.sh.
# A launch has one file, $STARTED_DIR/PID.START of the launching script. Its first line is the boot id, each other line
# "PID START WHAT", the launching script's first. START is the start time (field 22 of /proc/PID/stat), so a reused PID
# does not match. The folder is in /tmp because XDG_RUNTIME_DIR vanishes at logout.
STARTED_DIR=${SLUICE_STATE_DIR:-/tmp/sluice-$UID}
read -r this_boot </proc/sys/kernel/random/boot_id

# read_start_time PID: sets start_time; fails if the process does not exist or is a zombie.
read_start_time() {
  local line
  local -a fields
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra fields <<<"${line##*) }" # the name before it may hold anything
  [[ ${fields[0]} != [ZX] ]] || return 1
  start_time=${fields[19]}
}

# is_running PID START
is_running() {
  local start_time
  read_start_time "$1" && [[ $start_time == "$2" ]]
}

# Fails if another user could have prepared the folder or could write into it.
open_started_dir() {
  [[ -e $STARTED_DIR ]] || mkdir -m 700 -- "$STARTED_DIR" 2>/dev/null || true # another launch may be quicker
  [[ -d $STARTED_DIR && ! -L $STARTED_DIR && -O $STARTED_DIR && $(stat -c %a -- "$STARTED_DIR") == *700 ]]
}

# list_running FILE: prints the lines of a record whose processes still run; nothing if another launch removed the file.
list_running() {
  local boot pid start what
  {
    read -r boot && [[ $boot == "$this_boot" ]] || return 0
    while read -r pid start what; do
      [[ $pid =~ ^[0-9]+$ && $start =~ ^[0-9]+$ ]] || continue
      ! is_running "$pid" "$start" || printf '%s %s %s\n' "$pid" "$start" "$what"
    done
  } 2>/dev/null <"$1"
}

remove_stale_records() {
  local record
  for record in "$STARTED_DIR"/*.*; do
    [[ ! -f $record || -n $(list_running "$record") ]] || rm -f -- "$record"
  done
}

# start_record WHAT: begins the record of this launch, or warns if it cannot. A launch of a sweep is already in the
# sweep's record (SLUICE_LAUNCH_RECORD); with a second one, stop.sh would signal it twice.
start_record() {
  local start_time
  launch_record=${SLUICE_LAUNCH_RECORD:-}
  [[ -z $launch_record ]] || return 0
  if ! open_started_dir; then
    say "other users may write to $STARTED_DIR, so scripts/stop.sh will not find this run; set SLUICE_STATE_DIR to another folder"
    return
  fi
  remove_stale_records
  read_start_time "$$"
  launch_record=$STARTED_DIR/$$.$start_time
  # Renames a finished file, because another launch may be looking for stale records.
  printf '%s\n' "$this_boot" "$$ $start_time $1" >"$STARTED_DIR/.$$"
  mv -- "$STARTED_DIR/.$$" "$launch_record"
}

record() {
  local start_time
  [[ -n $launch_record ]] && read_start_time "$1" || return 0
  printf '%s %s %s\n' "$1" "$start_time" "$2" >>"$launch_record"
}
