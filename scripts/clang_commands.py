#!/usr/bin/env python3
"""Converts a compile_commands.json of GCC to one for clang's tools.

usage: scripts/clang_commands.py BUILD/compile_commands.json OUT_DIR

Removes the forced include of GCC's precompiled header, which clang cannot read, and flags that clang does not support.
Files that are compiled as one unit get a command each. CUDA files are left out.
Exit code: 0 done, 2 a file cannot be read.
"""

import json
import pathlib
import re
import shlex
import sys

# -Werror is for the warnings of GCC.
GCC_ONLY = {"-fpch-preprocess", "-Winvalid-pch", "-Wno-subobject-linkage", "-Werror"}


def for_clang(command):
    kept = []
    words = iter(shlex.split(command))
    for word in words:
        if word == "-include":
            header = next(words)
            if not header.endswith("cmake_pch.hxx"):
                kept += [word, header]
        elif word not in GCC_ONLY and not word.startswith("--param="):
            kept.append(word)
    return shlex.join(kept)


def commands_of_files(entry):
    """One entry for each file that the entry's unit (Unity/unity_0_cxx.cxx) includes; any other entry as it is."""
    unit = entry["file"]
    if "/Unity/unity_" not in unit:
        return [entry]
    files = re.findall(r'^#include "(.+)"$', pathlib.Path(unit).read_text(encoding="utf-8"), re.MULTILINE)
    return [entry | {"file": file, "command": entry["command"].replace(unit, file)} for file in files]


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    source = pathlib.Path(sys.argv[1])
    try:
        entries = [one for entry in json.loads(source.read_text(encoding="utf-8")) if not entry["file"].endswith(".cu")
                   for one in commands_of_files(entry)]
    except (OSError, ValueError) as error:
        print(f"clang_commands.py: cannot read {source} ({error}): run scripts/bootstrap.sh first", file=sys.stderr)
        return 2
    for entry in entries:
        entry["command"] = for_clang(entry["command"])
    out = pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    (out / source.name).write_text(json.dumps(entries, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
