#!/usr/bin/env bash
# Packs the programs of scripts/gpu_check.sh into one file, for a GPU machine that has a copy of this repository and
# PyTorch, but no build. Then tries the file here, without a GPU.
#
# usage: scripts/gpu_pack.sh [FILE]      FILE: default .gpu/build.tar.xz, which git ignores
#
# On the GPU machine: tar xJf FILE && scripts/gpu_check.sh PART OUT_DIR BRING_DIR
# The file contains build/release/sluice and the tests of gpu_check.sh, without symbols, and in build/release/lib their
# libraries, except those of PyTorch and NVIDIA, glibc, libstdc++, libgcc and libgomp. SLUICE_GPU_PACK_PRESET=0 packs in a few
# seconds, into a larger file.
# Exit codes: 0 packed and tried; 2 bad usage or nothing built; 70 the file is larger than SLUICE_GPU_PACK_MIB (default: 50)
# or does not run.
[ -n "${BASH_VERSION:-}" ] || exec bash -- "$0" "$@" # `sh SCRIPT` works too
set +o posix -euo pipefail
# shellcheck source=scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

limit_mib=50
preset=6
[[ ! ${SLUICE_GPU_PACK_PRESET:-} =~ ^[0-9]$ ]] || preset=$SLUICE_GPU_PACK_PRESET
[[ ! ${SLUICE_GPU_PACK_MIB:-} =~ ^[0-9]{1,4}$ ]] || limit_mib=$((10#$SLUICE_GPU_PACK_MIB))
readonly machines_own='ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|stdc\+\+|gcc_s|gomp)\.so.*|linux-vdso\.so.*'

case ${1:-} in
  -h | --help)
    print_help
    exit 0
    ;;
  -*) die 2 "unknown option '$1'; see scripts/gpu_pack.sh --help" ;;
esac
[[ $# -le 1 ]] || die 2 "unknown argument '$2'; see scripts/gpu_pack.sh --help"
file=$(absolute "${1:-$SLUICE_ROOT/.gpu/build.tar.xz}")
cd "$SLUICE_ROOT"

# shellcheck disable=SC2016 # gpu_check.sh has this name as it stands here
mapfile -t tests < <(sed -nE 's|.*"\$tests/([a-z_/]+)".*|\1|p' scripts/gpu_check.sh | sort -u)
programs=(sluice "${tests[@]/#/tests/}")
for program in "${programs[@]}"; do
  [[ -x build/release/$program ]] || die 2 "build/release/$program is missing: run scripts/bootstrap.sh --tests"
done
[[ -x .venv/bin/python ]] || die 2 ".venv is missing: run scripts/bootstrap.sh"
command -v xz >/dev/null || die 2 "xz is missing: run scripts/bootstrap.sh --tests, or install the package xz-utils"
torch_path=$(torch_library_path .venv/bin/python)

scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch" "$file.new"' EXIT

# in_torch NAME: true if PyTorch or an NVIDIA package beside it has the library.
in_torch() {
  local -a folders
  IFS=: read -r -a folders <<<"$torch_path"
  local folder
  for folder in "${folders[@]}"; do
    [[ ! -e $folder/$1 ]] || return 0
  done
  return 1
}

# needed_by LIBRARY_PATH PROGRAM...: prints NAME<tab>FILE of each library of these programs; FILE is empty if the loader
# does not find it.
needed_by() {
  LD_LIBRARY_PATH=$1 ldd "${@:2}" | sed -nE 's/^\t([^ ]+) => (not found|(.*) \(0x[0-9a-f]+\))$/\1\t\3/p' | sort -u
}

collect() {
  local program name from
  mkdir -p "$scratch/pack/build/release/lib"
  for program in "${programs[@]}"; do
    mkdir -p "$scratch/pack/build/release/$(dirname -- "$program")"
    strip -o "$scratch/pack/build/release/$program" "build/release/$program"
  done
  while IFS=$'\t' read -r name from; do
    if [[ $name =~ ^($machines_own)$ ]] || in_torch "$name"; then continue; fi
    [[ -n $from ]] || die 2 "library $name of the programs was not found: run scripts/bootstrap.sh"
    cp -L -- "$from" "$scratch/pack/build/release/lib/$name"
  done < <(needed_by "$torch_path" "${programs[@]/#/build/release/}")
}

# The programs share most code, so a window that holds all of them stores it once.
pack() {
  mkdir -p "$(dirname -- "$file")"
  tar -C "$scratch/pack" --sort=name --owner=0 --group=0 -cf - build | xz -T1 --lzma2="preset=$preset,dict=256MiB" >"$file.new"
  local mib=$((($(stat -c %s "$file.new") + 1048575) / 1048576))
  if [[ $mib -gt $limit_mib ]]; then
    rm -- "$file.new"
    die 70 "the programs take $mib MiB packed, more than $limit_mib MiB (SLUICE_GPU_PACK_MIB): no file was written"
  fi
  mv -- "$file.new" "$file"
  say "$file: $mib MiB, ${#programs[@]} programs, $(find "$scratch/pack/build/release/lib" -type f | wc -l) libraries"
}

# Checks in an empty folder that all libraries are found and the programs start.
try() {
  local there=$scratch/there name from root=${torch_path%%/torch/lib*}
  mkdir "$there"
  tar -xJf "$file" -C "$there"
  local library_path=$there/build/release/lib:$torch_path
  while IFS=$'\t' read -r name from; do
    [[ $from == "$there"/* || $from == "$root"/* || $name =~ ^($machines_own)$ ]] || die 70 "$name would not be found on the GPU machine (here: ${from:-not found})"
  done < <(needed_by "$library_path" "${programs[@]/#/$there/build/release/}")
  cd "$there"
  LD_LIBRARY_PATH=$library_path build/release/sluice devices >/dev/null || die 70 "the packed sluice does not run"
  LD_LIBRARY_PATH=$library_path "build/release/tests/${tests[0]}" --gtest_list_tests >/dev/null || die 70 "the packed ${tests[0]} does not run"
  say "tried in an empty folder: sluice devices, ${tests[0]} --gtest_list_tests"
}

collect
pack
try
