#!/usr/bin/env bash
# Static checks of the sources. Every finding is an error with its file and line.
#
# usage: scripts/check.sh [--changed] [--fast] [CHECK...]
#
#   format     clang-format 14 with .clang-format
#   includes   allowed includes between folders, and uses of CUDA (scripts/check_includes.py)
#   prose      documentation and comments: long sentences, banned words, names of what does not exist (scripts/check_prose.py)
#   units      names that two files of a library, compiled as one unit, both hide (scripts/check_units.py)
#   limits     files of at most 400 lines, functions of at most 60 lines of code and cyclomatic complexity 12 (a switch counts 1); a
#              justified exception says `#lizard forgives(cyclomatic_complexity)` with its reason in the function
#   spelling   codespell with .codespellrc
#   shell      shellcheck
#   tidy       clang-tidy 19 with .clang-tidy (naming, bugprone, performance, modernize): 5-30 s a file
#
#   --changed  only files that differ from the main branch (format, limits, tidy)
#   --fast     all but tidy
#
# The tools come with scripts/bootstrap.sh --check-tools; tidy needs build/release configured.
# Exit codes: 0 nothing found, 2 bad usage or a tool is missing, 70 findings.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

readonly max_file_lines=400
readonly max_function_nloc=60
readonly max_complexity=12
readonly -a all_checks=(format includes prose units limits spelling shell tidy)
readonly -a folders=(src models tests bench)
changed=0
checks=()
sources=()

require() {
  command -v "$1" >/dev/null || die 2 "$1 is missing: run scripts/bootstrap.sh --check-tools"
}

parse_arguments() {
  local argument
  for argument in "$@"; do
    case $argument in
      --changed) changed=1 ;;
      --fast) checks+=(format includes prose units limits spelling shell) ;;
      format | includes | prose | units | limits | spelling | shell | tidy) checks+=("$argument") ;;
      -h | --help)
        print_help
        exit 0
        ;;
      *) die 2 "unknown argument '$argument'; see scripts/check.sh --help" ;;
    esac
  done
  [[ ${#checks[@]} -gt 0 ]] || checks=("${all_checks[@]}")
}

# Files that differ from the branch point of main, including new and uncommitted ones.
changed_files() {
  local base
  base=$(git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)
  git diff --name-only --diff-filter=d "$base" --
  git ls-files --others --exclude-standard
}

list_sources() {
  local -a existing=()
  local folder
  for folder in "${folders[@]}"; do
    [[ ! -d $folder ]] || existing+=("$folder")
  done
  if [[ $changed -eq 1 ]]; then
    mapfile -t sources < <(changed_files | grep -E "^($(IFS='|' && echo "${folders[*]}"))/.*\.(h|cpp|cu)$" | sort -u)
  else
    mapfile -t sources < <(find "${existing[@]}" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' \) -type f | sort)
  fi
}

check_format() {
  require clang-format-14
  # One finding per file is enough, because clang-format corrects it.
  clang-format-14 --dry-run -Werror --style=file "${sources[@]}" 2>&1 | awk -F: '/ error: / && !seen[$1]++ { print $0 "; mend: clang-format-14 -i " $1 }'
}

check_includes() { python3 scripts/check_includes.py; }

check_prose() { python3 scripts/check_prose.py; }

check_units() { python3 scripts/check_units.py; }

check_limits() {
  local file lines rc=0
  .venv/bin/python -c 'import lizard' 2>/dev/null || die 2 "lizard is missing: run scripts/bootstrap.sh --check-tools"
  for file in "${sources[@]}"; do
    lines=$(wc -l <"$file")
    if [[ $lines -gt $max_file_lines ]]; then
      echo "$file:$max_file_lines: error: $lines lines, at most $max_file_lines: cut it along a seam"
      rc=1
    fi
  done
  .venv/bin/python -m lizard --languages cpp -m -T "nloc=$max_function_nloc" -C "$max_complexity" -w "${sources[@]}" || rc=1
  return "$rc"
}

check_spelling() {
  require codespell
  local -a texts=()
  # By path, because a folder name may also be a module name (src/data).
  mapfile -t texts < <(find . \( -path ./.git -o -path ./build -o -path ./.venv -o -path ./runs -o -path ./data -o -name golden -o -name corpus \) -prune \
    -o -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.md' -o -name '*.toml' -o -name '*.sh' -o -name '*.py' \
    -o -name '*.cmake' -o -name 'CMakeLists.txt' \) -print)
  codespell "${texts[@]}"
}

check_shell() {
  require shellcheck
  local -a scripts=()
  mapfile -t scripts < <(find scripts tests .ci \( -name '*.sh' -o -path .ci/run \) -type f)
  shellcheck -x "${scripts[@]}"
}

check_tidy() {
  require clang-tidy-19
  python3 scripts/clang_commands.py build/release/compile_commands.json build/clang || return
  local -a units=()
  mapfile -t units < <(python3 - "${sources[@]}" <<'PYTHON'
# Sources of this build (CUDA files are not in every build).
import json, os, sys
built = {os.path.realpath(entry["file"]) for entry in json.load(open("build/clang/compile_commands.json"))}
print("\n".join(source for source in sys.argv[1:] if os.path.realpath(source) in built))
PYTHON
  )
  [[ ${#units[@]} -gt 0 && -n ${units[0]} ]] || return 0
  local root # as a regular expression
  root=$(printf '%s' "$SLUICE_ROOT" | sed 's/[][\.+*?(){}|^$]/\\&/g')
  printf '%s\0' "${units[@]}" \
    | xargs -0 -n 1 -P "$(build_jobs)" clang-tidy-19 -p build/clang --quiet \
      --header-filter="^$root/($(IFS='|' && echo "${folders[*]}"))/" 2>&1 | { grep -v ' warnings\? generated\.$' || true; }
}

run_check() {
  if [[ ${#sources[@]} -eq 0 ]]; then
    case $1 in format | limits | tidy) return 0 ;; esac
  fi
  case $1 in
    format) check_format ;;
    includes) check_includes ;;
    prose) check_prose ;;
    units) check_units ;;
    limits) check_limits ;;
    spelling) check_spelling ;;
    shell) check_shell ;;
    tidy) check_tidy ;;
  esac
}

main() {
  parse_arguments "$@"
  cd "$SLUICE_ROOT"
  list_sources
  local check start rc found=0
  [[ ${#sources[@]} -gt 0 ]] || say "no source file differs from main"
  for check in "${checks[@]}"; do
    start=$SECONDS
    rc=0
    (run_check "$check") || rc=$?
    case $rc in
      0) say "$check: ok ($((SECONDS - start)) s)" ;;
      2) found=2 ;; # a tool is missing; it has said so
      *)
        [[ $found -eq 2 ]] || found=70
        say "$check: FINDINGS ($((SECONDS - start)) s)"
        ;;
    esac
  done
  exit "$found"
}

main "$@"
