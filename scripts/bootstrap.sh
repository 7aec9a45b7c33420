#!/usr/bin/env bash
# Installs the dependencies of Sluice and builds the command. You can run it again at any time.
#
# usage: scripts/bootstrap.sh [--preset release|debug|asan|tsan] [--no-build] [--tests] [--check-tools] [--plots]
#
#   --preset NAME   build preset, in build/NAME (default: release)
#   --no-build      install and configure only
#   --tests         also install the dependencies of tests and benchmarks, and build them
#   --check-tools   --tests, --plots, and the tools of scripts/test.sh and scripts/check.sh
#   --plots         also install the plotting packages of scripts/experiment.py
#
# Debian packages are installed as root or through sudo; Python packages (LibTorch, CMake, Ninja) go into .venv. The log
# is build/bootstrap.log. CMAKE_BUILD_PARALLEL_LEVEL limits the compile jobs.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=scripts/dependencies.sh
source "$SLUICE_ROOT/scripts/dependencies.sh"

readonly log=build/bootstrap.log
readonly disk_need_gb=6 # LibTorch with its NVIDIA libraries takes 4.6 GB
preset=release
build=1
tests=0
check_tools=0
plots=0
did_work=0

parse_arguments() {
  while [[ $# -gt 0 ]]; do
    case $1 in
      --preset)
        [[ $# -ge 2 ]] || die 2 "--preset needs a name: release, debug, asan or tsan"
        preset=$2
        shift
        ;;
      --no-build) build=0 ;;
      --tests) tests=1 ;;
      --check-tools) tests=1 check_tools=1 plots=1 ;;
      --plots) plots=1 ;;
      -h | --help)
        print_help
        exit 0
        ;;
      *) die 2 "unknown argument '$1'; see scripts/bootstrap.sh --help" ;;
    esac
    shift
  done
  case $preset in
    release | debug | asan | tsan) ;;
    *) die 2 "unknown preset '$preset': choose release, debug, asan or tsan" ;;
  esac
}

# Logs every 20 s that the command still runs, with the last "[12/80] ..." of the log.
tick() {
  local label=$1 start=$SECONDS progress
  while kill -0 "$$" 2>/dev/null; do
    sleep 20 >/dev/null 2>&1 9>&- 8>&-
    progress=$(tail -c 4000 "$log" | tr '\r' '\n' | grep -o '^\[[0-9]*/[0-9]*\]' | tail -n 1) || true
    say "... $label ${progress:+$progress }($((SECONDS - start)) s)"
  done
}

# step LABEL COMMAND...: runs the command with its output in the log; on a failure, explains it and exits.
step() {
  local label=$1 start=$SECONDS offset ticker rc=0
  shift
  did_work=1
  say "$label"
  printf '\n== %s: %s\n' "$label" "$*" >>"$log"
  offset=$(stat -c %s "$log")
  tick "$label" &
  ticker=$!
  "$@" >>"$log" 2>&1 </dev/null || rc=$? # inherits the locks: they last as long as what they protect
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  [[ $rc -eq 0 ]] || explain_failure "$label" "$rc" "$offset"
  printf '== done after %s s\n' $((SECONDS - start)) >>"$log"
}

explain_failure() {
  local label=$1 rc=$2 offset=$3 text
  [[ $rc -ne 130 ]] || interrupted
  text=$(tail -c "+$((offset + 1))" "$log")
  tail -n 20 <<<"$text" | cut -c -240 >&2
  if grep -qiE 'No space left on device|enough free space|Disk quota exceeded' <<<"$text"; then
    die 8 "the disk is full ($label): free about $disk_need_gb GB under $SLUICE_ROOT and ${TMPDIR:-/tmp}, then run this again"
  elif grep -qiE 'Read-only file system' <<<"$text"; then
    die 8 "the disk is read-only ($label): make $SLUICE_ROOT writable, then run this again"
  elif [[ $label == installing* || $label == updating* ]] && grep -qiE 'Temporary failure (in name )?resol|Could not resolve|(Could not|Unable to) connect|unreachable|timed out|Failed to establish a new connection|Max retries exceeded|ConnectionError' <<<"$text"; then
    die 5 "the package registry cannot be reached ($label): check the network and the proxy settings, then run this again"
  elif grep -qE 'Killed signal terminated program|Cannot allocate memory' <<<"$text"; then
    die 4 "out of memory ($label): run again with CMAKE_BUILD_PARALLEL_LEVEL=1, or close other programs"
  fi
  die 70 "'$label' failed with exit code $rc: the lines above and $log say why"
}

interrupted() { die 130 "interrupted: run it again to go on"; }

# take_lock FD MESSAGE: waits for another bootstrap.
take_lock() {
  flock -n "$1" && return
  say "$2"
  flock -w 3600 "$1" || die 5 "the other bootstrap still runs after an hour: end it, then run this again"
}

missing_debian_packages() {
  local name status
  local -A installed=()
  while read -r status name; do
    [[ $status != installed ]] || installed[$name]=1
  done < <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for name in "$@"; do
    [[ -n ${installed[$name]:-} ]] || printf '%s\n' "$name"
  done
}

install_debian_packages() {
  local -a missing as_root=()
  local command
  command -v dpkg-query >/dev/null \
    || die 2 "this is not a Debian system: install the equivalents of these packages, then build with CMake: ${debian_packages[*]}"
  mapfile -t missing < <(missing_debian_packages "${debian_packages[@]}")
  [[ ${#missing[@]} -gt 0 ]] || return 0
  command="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
  if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
      die 2 "Debian packages are missing, and sudo is not installed; run as root: $command"
    elif sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    elif [[ -t 0 ]] && sudo -v; then
      as_root=(sudo)
    else
      die 2 "Debian packages are missing, and sudo needs a password; run as root: $command"
    fi
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  local -a apt=(apt-get -q -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3)
  step "finishing an interrupted installation, if any" "${as_root[@]}" dpkg --configure -a
  step "updating the list of Debian packages" "${as_root[@]}" "${apt[@]}" update
  step "installing ${#missing[@]} Debian packages" "${as_root[@]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
}

# A stamp lists the packages that were completely installed and verified.
python_group_is_ready() {
  local file=.venv/.sluice-$1 pin
  shift
  [[ -f $file && $(<"$file") == "$*" ]] || return 1
  for pin in "$@"; do
    [[ $pin != --* ]] || continue # an option of pip's
    pin=${pin//-/_}               # as pip names the folders; names in lower case
    [[ -n $(compgen -G ".venv/lib/python3*/site-packages/${pin/==/-}.dist-info") ]] || return 1
  done
}

has_libtorch() { [[ -n $(compgen -G '.venv/lib/python3*/site-packages/torch/lib/libtorch_cpu.so') ]]; }

python_is_ready() {
  venv_works && has_libtorch && python_group_is_ready base "${PYTHON_PACKAGES[@]}" \
    && { [[ $check_tools -eq 0 ]] || python_group_is_ready test "${PYTHON_TEST_PACKAGES[@]}"; } \
    && { [[ $check_tools -eq 0 ]] || python_group_is_ready trace --no-deps "${PYTHON_TRACE_PACKAGES[@]}"; } \
    && { [[ $check_tools -eq 0 ]] || python_group_is_ready model --no-deps "${PYTHON_MODEL_PACKAGES[@]}"; } \
    && { [[ $plots -eq 0 ]] || python_group_is_ready plot "${PYTHON_PLOT_PACKAGES[@]}"; }
}

# False for an environment that is missing, incomplete, moved, or without its interpreter.
venv_works() {
  .venv/bin/python -c 'import pip' 2>/dev/null || return 1
  [[ ! -e .venv/bin/cmake ]] || .venv/bin/cmake --version >/dev/null 2>&1
}

check_disk() {
  local free_kib
  free_kib=$(df --output=avail -k "$SLUICE_ROOT/.venv/." 2>/dev/null || df --output=avail -k "$SLUICE_ROOT")
  free_kib=${free_kib##*[!0-9]}
  [[ $free_kib -ge $((disk_need_gb * 1024 * 1024)) ]] \
    || die 8 "LibTorch needs about $disk_need_gb GB of disk and $((free_kib / 1024 / 1024)) GB are free: free some under $SLUICE_ROOT, then run this again"
}

make_venv() {
  [[ ! -L .venv || -d .venv ]] || die 2 "the link .venv is broken: remove it, then run this again"
  local python
  for python in python3 /usr/bin/python3; do
    if command -v "$python" >/dev/null && "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      step "making the Python environment .venv" "$python" -m venv --clear .venv
      return
    fi
  done
  die 2 "no Python 3.11 or newer with its venv module was found: install one and put it first in PATH, then run this again"
}

# Installs the packages and verifies all files. --no-compile skips Torch's 110 MB of Python, of which Sluice uses
# little.
install_python_group() {
  local group=$1
  shift
  python_group_is_ready "$group" "$@" && return
  rm -f ".venv/.sluice-$group"
  step "installing Python packages: $*" .venv/bin/python -m pip install --no-input --disable-pip-version-check --progress-bar off --no-compile "$@"
  step "verifying the Python packages" .venv/bin/python scripts/verify_venv.py
  printf '%s\n' "$*" >".venv/.sluice-$group.new"
  mv ".venv/.sluice-$group.new" ".venv/.sluice-$group"
}

install_python_packages() {
  if ! venv_works; then
    make_venv
  elif [[ ! -f .venv/.sluice-base ]] && ! .venv/bin/python scripts/verify_venv.py >>"$log" 2>&1; then
    say "an earlier installation into .venv did not finish: making it again"
    make_venv
  elif [[ -f .venv/.sluice-base ]] && ! has_libtorch; then
    say "files are missing from .venv: making it again"
    make_venv
  fi
  has_libtorch || check_disk
  install_python_group base "${PYTHON_PACKAGES[@]}"
  [[ $check_tools -eq 0 ]] || install_python_group test "${PYTHON_TEST_PACKAGES[@]}"
  [[ $check_tools -eq 0 ]] || install_python_group trace --no-deps "${PYTHON_TRACE_PACKAGES[@]}"
  [[ $check_tools -eq 0 ]] || install_python_group model --no-deps "${PYTHON_MODEL_PACKAGES[@]}"
  [[ $plots -eq 0 ]] || install_python_group plot "${PYTHON_PLOT_PACKAGES[@]}"
}

# A folder that was configured with tests keeps them. Without tests, GoogleTest is not required.
configure() {
  local dir=build/$preset key with_tests=OFF
  [[ $tests -eq 0 && ! -f $dir/.tests ]] || with_tests=ON
  key=$(cat CMakePresets.json scripts/dependencies.sh | sha256sum)
  key="${key%% *} $with_tests $SLUICE_ROOT"
  [[ -f $dir/build.ninja && -f $dir/.configured && $(<"$dir/.configured") == "$key" ]] && return
  local -a fresh=()
  if [[ -f $dir/CMakeCache.txt ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$SLUICE_ROOT" "$dir/CMakeCache.txt"; then
    fresh=(--fresh) # the checkout was moved or copied
  fi
  mkdir -p "$dir"
  step "configuring build/$preset" cmake "${fresh[@]}" --preset "$preset" -D "SLUICE_TESTS=$with_tests"
  [[ $with_tests == OFF ]] || touch "$dir/.tests"
  printf '%s\n' "$key" >"$dir/.configured"
}

compile() {
  local jobs target=sluice
  [[ $tests -eq 0 ]] || target=all
  if ninja -C "build/$preset" -n "$target" 2>/dev/null | grep -q 'no work to do'; then
    return
  fi
  jobs=$(build_jobs)
  step "building build/$preset with $jobs job(s)" cmake --build --preset "$preset" -j "$jobs" --target "$target"
}

main() {
  parse_arguments "$@"
  local start=$SECONDS
  cd "$SLUICE_ROOT"
  trap interrupted INT
  # ccache needs this for files that use the precompiled header.
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
  export PATH="$SLUICE_ROOT/.venv/bin:$PATH"
  export LC_ALL=C.UTF-8 # the causes of failures are recognised by their English messages

  { mkdir -p build && touch "$log"; } 2>/dev/null \
    || die 8 "cannot write $SLUICE_ROOT/build: the disk is full or read-only, or the folder belongs to another user"
  # Lock 9: one bootstrap per checkout. Lock 8: one installation per user and machine.
  exec 9>>build/.bootstrap.lock
  take_lock 9 "waiting for another bootstrap of this checkout"
  printf '==== %s: preset %s\n' "$(date -u +%FT%TZ)" "$preset" >"$log"

  debian_packages=("${DEBIAN_BUILD_PACKAGES[@]}")
  [[ $tests -eq 0 ]] || debian_packages+=("${DEBIAN_TEST_PACKAGES[@]}")
  [[ $check_tools -eq 0 ]] || debian_packages+=("${DEBIAN_CHECK_PACKAGES[@]}")
  if [[ $(missing_debian_packages "${debian_packages[@]}") != '' ]] || ! python_is_ready; then
    exec 8>>"${TMPDIR:-/tmp}/sluice-bootstrap.$(id -u).lock"
    take_lock 8 "waiting for another bootstrap on this machine to finish installing"
    install_debian_packages
    install_python_packages
    exec 8>&-
  fi

  configure
  [[ $build -eq 0 ]] || compile
  [[ $did_work -eq 0 ]] || say "ready: build/$preset ($((SECONDS - start)) s)"
}

main "$@"
