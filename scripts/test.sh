#!/usr/bin/env bash
# Installs missing dependencies, builds, and runs the tests. The last lines are those of CTest.
#
# usage: scripts/test.sh [--all] [CTEST ARGUMENTS...]
#
#   (default)  the tests labelled `ci`
#   --all      first scripts/check.sh, the fuzzers (30 s each), the tests under ASan + UBSan and the torch-free ones
#              under TSan; also the tests labelled `long`
#
# CTest arguments narrow the release build's tests, e.g. scripts/test.sh -R core --verbose
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

readonly fuzz_seconds=30
failed=()

# timed LABEL COMMAND...: logs the duration; a failure is remembered, so that the other parts still run.
timed() {
  local label=$1 start=$SECONDS rc=0 verdict="done"
  shift
  "$@" || rc=$?
  [[ $rc -eq 0 ]] || verdict="FAILED (exit code $rc)"
  say "$label: $verdict after $((SECONDS - start)) s"
  [[ $rc -eq 0 ]] || failed+=("$label")
}

run_ctest() {
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error "$@"
}

address_sanitizer() {
  scripts/bootstrap.sh --check-tools --preset asan && run_ctest asan -L '^ci$' -LE '^gpu$'
}

thread_sanitizer() {
  scripts/bootstrap.sh --check-tools --preset tsan --no-build \
    && cmake --build --preset tsan --target torch_free_tests -j "$(build_jobs)" >build/tsan/build.log \
    && run_ctest tsan -L '^torch_free$'
}

# Each tests/FOLDER/fuzz_NAME.cpp is a libFuzzer program. Its corpus stays in build/fuzz for the next run; seeds are in
# tests/FOLDER/corpus/fuzz_NAME.
fuzzers() {
  local source name rc=0
  local -a sources names=() corpus
  mapfile -t sources < <(find tests -name 'fuzz_*.cpp' | sort)
  [[ ${#sources[@]} -gt 0 ]] || return 0
  for source in "${sources[@]}"; do names+=("$(basename "$source" .cpp)"); done
  mkdir -p build/fuzz/findings
  if ! { cmake --preset fuzz && cmake --build --preset fuzz -j "$(build_jobs)" --target "${names[@]}"; } >build/fuzz/build.log 2>&1; then
    tail -n 20 build/fuzz/build.log >&2
    return 70
  fi
  for source in "${sources[@]}"; do
    name=$(basename "$source" .cpp)
    say "$name for $fuzz_seconds s"
    corpus=("build/fuzz/corpus/$name")
    mkdir -p "${corpus[0]}"
    [[ ! -d $(dirname "$source")/corpus/$name ]] || corpus+=("$(dirname "$source")/corpus/$name")
    if ! "$(find build/fuzz -name "$name" -type f -executable)" -max_total_time="$fuzz_seconds" -timeout=20 -rss_limit_mb=3000 \
      -artifact_prefix="build/fuzz/findings/$name-" "${corpus[@]}" >"build/fuzz/$name.log" 2>&1; then
      tail -n 30 "build/fuzz/$name.log" >&2
      rc=70
    fi
  done
  return "$rc"
}

all=0
ctest_arguments=()
for argument in "$@"; do
  case $argument in
    --all) all=1 ;;
    -h | --help)
      print_help
      exit 0
      ;;
    *) ctest_arguments+=("$argument") ;;
  esac
done

cd "$SLUICE_ROOT"
start=$SECONDS
scripts/bootstrap.sh --check-tools
export PATH="$SLUICE_ROOT/.venv/bin:$PATH"
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros}
# Tests wait more than they compute, so several run at once; tests of several processes run alone (PROCESSORS).
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}
say "installed and built after $((SECONDS - start)) s"

labels='^ci$'
if [[ $all -eq 1 ]]; then
  labels='^(ci|long)$'
  timed "scripts/check.sh" scripts/check.sh
  timed "fuzzers" fuzzers
  timed "ASan and UBSan" address_sanitizer
  timed "TSan" thread_sanitizer
  [[ ${#failed[@]} -eq 0 ]] || say "FAILED before the release tests: $(printf '%s; ' "${failed[@]}")"
fi

rc=0
run_ctest release -L "$labels" "${ctest_arguments[@]}" || rc=$?
[[ $rc -eq 0 && ${#failed[@]} -eq 0 ]] || exit 70
