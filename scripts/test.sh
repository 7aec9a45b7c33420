#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests. The last lines are CTest's.
#
# usage: scripts/test.sh [--all] [CTEST ARGUMENTS...]
#
#   (default)  the tests labelled `ci`
#   --all      before these scripts/check.sh, the fuzzers (30 s each), the tests under ASan + UBSan and the torch-free
#              ones under TSan; with them the tests labelled `long`
#
# CTest arguments narrow the release build's tests, e.g. scripts/test.sh -R core --verbose
set -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

readonly fuzz_seconds=30
failed=()

# timed LABEL COMMAND...: says how long it took; a failure is kept for the end, so that the other parts still run.
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

# Each fuzzer is an executable build/fuzz/bin/NAME with its seeds in tests/fuzz/corpus/NAME; findings stay in build/fuzz.
fuzzers() {
  local fuzzer name rc=0
  mkdir -p build/fuzz
  if ! { cmake --preset fuzz && cmake --build --preset fuzz --target fuzzers -j "$(build_jobs)"; } >build/fuzz/build.log 2>&1; then
    tail -n 20 build/fuzz/build.log >&2
    return 70
  fi
  for fuzzer in build/fuzz/bin/*; do
    [[ -x $fuzzer && -f $fuzzer ]] || continue
    name=${fuzzer##*/}
    say "fuzzing $name for $fuzz_seconds s"
    mkdir -p "build/fuzz/corpus/$name" "build/fuzz/findings"
    local -a seeds=()
    [[ ! -d tests/fuzz/corpus/$name ]] || seeds=("tests/fuzz/corpus/$name")
    if ! "$fuzzer" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="build/fuzz/findings/$name-" \
      "build/fuzz/corpus/$name" "${seeds[@]}" >"build/fuzz/$name.log" 2>&1; then
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
# A test may keep two threads busy.
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$((($(nproc) + 1) / 2))}
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
