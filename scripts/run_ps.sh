#!/usr/bin/env bash
# One process of a run on a parameter server: RANK 0 of WORLD is the server, the others are its workers. Start each
# process in any order, on any machine; you can restart workers that died.
#
# usage: scripts/run_ps.sh ADDR WORLD RANK [CONFIG] [OPTIONS]
#        scripts/run_ps.sh -a=ADDR -w=WORLD -r=RANK [CONFIG] [OPTIONS]
#
# ADDR is where the server listens, HOST or HOST:PORT (29600), the same in all processes. Beyond one machine it needs keys:
# build/release/sluice make-keys DIR, the same DIR on all machines, and --set ps.keys=DIR. The configuration is CONFIG,
# $SLUICE_CONFIG or configs/parameter_server.toml; options are those of scripts/run.sh.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/launch.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/launch.sh"

readonly default_port=29600

named=()
while [[ $# -gt 0 && $1 == -[awr]=* ]]; do
  named+=("$1")
  shift
done
split_arguments "$@"
if [[ ${#named[@]} -gt 0 ]]; then
  declare -A values=()
  for word in "${named[@]}"; do values[${word:1:1}]=${word:3}; done
  [[ ${#values[@]} -eq 3 ]] || usage_error "-a=, -w= and -r= go together"
  positionals=("${values[a]}" "${values[w]}" "${values[r]}" "${positionals[@]}")
fi
[[ ${#positionals[@]} -ge 3 && ${#positionals[@]} -le 4 ]] || usage_error "${#positionals[@]} arguments, but it takes 3 or 4"
[[ ${#positionals[@]} -eq 3 ]] || SLUICE_CONFIG=${positionals[3]}
take_config configs/parameter_server.toml

address=${positionals[0]}
port=$default_port
if [[ $address =~ ^(.*[^:]|\[.*\]):([0-9]+)$ ]]; then
  address=${BASH_REMATCH[1]}
  port=${BASH_REMATCH[2]}
fi
number WORLD "${positionals[1]}" 1 "$max_world" && world=$REPLY
take_world 1 "$world" "${positionals[2]}" "$address" "$port"
case $address in
  localhost | 127.* | ::1 | '[::1]') on_this_machine "$world" ;;
esac
launch
