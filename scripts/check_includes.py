#!/usr/bin/env python3
"""Checks the architecture: who may include whom, who may know LibTorch, and where CUDA may be asked for.

usage: scripts/check_includes.py [ROOT]

The table below is the one of docs/architecture.md; the DEPS lines in CMake say the same to the linker.
A quoted include names its folder ("core/error.h"), relative to src/, the repository (models) or tests/ (support).
Exit codes: 0 nothing found, 70 findings (one line each).
"""

import pathlib
import re
import sys

# Each module: a folder (longest match wins) and the modules that it may include besides itself.
MAY_INCLUDE = {
    "core": set(),
    "config": {"core"},
    "device": {"core"},
    "comm": {"core", "device"},
    "profiler": {"core", "device"},
    "data": {"core", "device"},
    "nn": {"core", "device"},
    "models": {"core", "nn"},
    "pipeline/schedule": {"core"},
    "pipeline": {"core", "nn", "device", "comm", "profiler", "pipeline/schedule"},
    "ddp": {"core", "device", "comm", "profiler"},
    "ps": {"core", "device", "comm", "profiler"},
    "freeze": {"core"},
    "tune": {"core", "pipeline/schedule"},
    "train/records": {"core"},
}
BELOW_TRAIN = set(MAY_INCLUDE)
MAY_INCLUDE["train"] = BELOW_TRAIN
MAY_INCLUDE["app"] = BELOW_TRAIN | {"train"}
MAY_INCLUDE["tests"] = BELOW_TRAIN | {"train", "app"}
MAY_INCLUDE["bench"] = BELOW_TRAIN | {"train", "app"}

TORCH_FREE = {"core", "config", "pipeline/schedule", "freeze", "tune"}
CUDA_ALLOWED = {"device", "comm", "profiler"}

SOURCE_FOLDERS = ("src", "models", "tests", "bench")
PROGRAMS = {"tests", "bench"}  # nothing includes them, so they may include what lies beside a file by its bare name
TEST_ONLY = {"support", "golden"}  # folders of tests/ that tests include without its name
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA_CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|elifdef)\b.*CUDA")
TORCH_HEADER = re.compile(r"^(torch|ATen|c10)/")


def module_of(path):
    """The module that a path relative to src/ (or the repository) lies in, or None."""
    parts = path.split("/")[:-1]
    for length in range(len(parts), 0, -1):
        name = "/".join(parts[:length])
        if name in MAY_INCLUDE:
            return name
    return None


def include_defect(includer, quote, header):
    """What is wrong with one include in a file of the module, or an empty string."""
    if quote == "<":
        if includer in TORCH_FREE and TORCH_HEADER.match(header):
            return f"'{includer}' is free of LibTorch, but includes <{header}>"
        if header.split("/")[0] in MAY_INCLUDE and module_of(header):
            return f'<{header}> is ours: write "{header}"'
        return ""
    if includer in PROGRAMS and ("/" not in header or (includer == "tests" and header.split("/")[0] in TEST_ONLY)):
        return ""
    included = module_of(header)
    if included is None:
        return f'"{header}" names no folder of the table in scripts/check_includes.py (quoted includes are ours and full: "core/ids.h")'
    if included != includer and included not in MAY_INCLUDE[includer]:
        allowed = ", ".join(sorted(MAY_INCLUDE[includer])) or "only the standard library"
        return f"'{includer}' may not include '{included}' (\"{header}\"); it may include: {allowed}"
    return ""


def file_defects(path, relative):
    """Yields (line number, text) for each defect of one file."""
    inside = relative.removeprefix("src/")
    includer = module_of(inside)
    if includer is None:
        yield 1, f"the folder of {relative} is not in the table of scripts/check_includes.py"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        include = INCLUDE.match(line)
        what = include_defect(includer, *include.groups()) if include else ""
        if CUDA_CONDITION.match(line) and includer not in CUDA_ALLOWED:
            what = f"CUDA is asked for outside {', '.join('src/' + name for name in sorted(CUDA_ALLOWED))}"
        if what:
            yield number, what


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    found = 0
    for folder in SOURCE_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            relative = path.relative_to(root).as_posix()
            for number, what in file_defects(path, relative):
                print(f"{relative}:{number}: error: {what}")
                found += 1
    return 70 if found else 0


if __name__ == "__main__":
    sys.exit(main())
