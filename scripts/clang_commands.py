#!/usr/bin/env python3
"""Makes a compile_commands.json that clang's tools can read from one that was made for GCC.

usage: scripts/clang_commands.py BUILD/compile_commands.json OUT_DIR

GCC's precompiled header cannot be read by clang, so its forced include goes (every file includes what it uses), and
so do the flags that clang does not know. Where several files are compiled as one unit, each gets a command of its own. What
nvcc compiles is left out.
Exit code: 0 done, 2 a file cannot be read.
"""

import json
import pathlib
import re
import shlex
import sys

# -Werror: warnings are GCC's to judge in its own build.
GCC_ONLY = {"-fpch-preprocess", "-Winvalid-pch", "-Wno-subobject-linkage", "-Werror"}


def for_clang(command):
    """One compiler command without what only GCC understands."""
    kept = []
    words = iter(shlex.split(command))
    for word in words:
        if word == "-include":
            header = next(words)
            if not header.endswith("cmake_pch.hxx"):
                kept += [word, header]
        elif word not in GCC_ONLY:
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
