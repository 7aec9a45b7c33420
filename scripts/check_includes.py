#!/usr/bin/env python3
"""Checks the architecture: allowed includes between folders, and uses of LibTorch, CUDA and clocks.

usage: scripts/check_includes.py [--whole] [ROOT]

--whole   also checks the whole tree: unused edges of the table, include cycles, rooms with too many lines.
A quoted include names its folder ("core/error.h"), relative to src/, the repository (models) or tests/ (support).
Exit codes: 0 nothing found, 70 findings (one line each).
"""

import pathlib
import re
import sys

# Each room is a folder (the longest match wins), with the other rooms that it may include.
MAY_INCLUDE = {
    "core": set(),
    "config": {"core"},
    "storage": {"core"},
    "device": {"core"},
    "comm": {"core", "device"},
    "nn": {"core"},
    "models": {"core", "nn"},
    "graph": {"core", "nn", "models"},
    "task": {"core", "nn", "text"},
    "optim": {"core"},
    "data": {"core", "storage", "text"},
    "text": {"core", "storage"},
    "profiler": {"core"},
    "profiler/cupti": {"core", "profiler"},
    "profiler/operators": {"core", "profiler"},
    "profiler/torch_trace": {"core", "profiler", "profiler/operators"},
    "pipeline/schedule": {"core"},
    "pipeline": {"core", "nn", "device", "comm", "pipeline/schedule"},
    "ddp": {"core", "device", "comm"},
    "measure": {"core", "profiler", "profiler/cupti", "profiler/operators", "device", "comm", "nn", "models", "task", "optim", "storage",
                         "pipeline", "ddp", "data", "ps", "ps/policy", "ps/net"},
    "freeze": {"core"},
    "ps/policy": {"core"},
    "ps": {"core", "comm", "device", "optim", "ddp", "ps/policy"},
    "ps/net": {"core", "comm", "data", "storage", "ps"},
    "tune": {"core", "pipeline/schedule"},
    "engine": {"core", "device", "comm", "nn", "task", "optim", "storage", "pipeline", "pipeline/schedule", "ddp"},
    "report": {"core", "config", "device", "pipeline/schedule", "profiler", "tune", "storage"},
    "train/setup": {"core", "config", "device", "comm", "data", "text", "pipeline/schedule", "pipeline", "freeze", "ps/policy", "tune", "storage",
                    "optim", "models", "task", "ps", "measure", "engine", "report"},
    "train/trace": {"core", "config", "device", "comm", "profiler", "profiler/cupti", "profiler/operators", "profiler/torch_trace", "data",
                    "storage", "engine", "report", "tune", "train/setup"},
    "train/plan": {"core", "config", "device", "comm", "profiler", "data", "pipeline/schedule", "pipeline", "freeze", "tune", "storage",
                   "models", "ps", "measure", "engine", "report", "train/setup", "train/trace"},
    "train/serve": {"core", "config", "device", "comm", "profiler", "data", "pipeline", "ps/policy", "storage", "ps", "ps/net", "engine",
                    "report", "train/setup", "train/trace", "train/plan"},
    "train/run": {"core", "config", "device", "comm", "profiler", "data", "pipeline", "storage", "optim", "engine", "report", "train/setup", "train/trace",
                  "train/plan", "train/serve"},
    "train/study": {"core", "config", "device", "comm", "task", "profiler", "data", "pipeline/schedule", "freeze", "tune", "storage", "models",
                    "measure", "engine", "report", "train/setup", "train/plan"},
}
# These may include all rooms above; unused edges are no finding.
ROOMS = set(MAY_INCLUDE)
OPEN = {"app": ROOMS, "tests": ROOMS | {"app"}, "bench": ROOMS | {"app"}}
MAY_INCLUDE |= OPEN

TORCH_FREE = {"core", "config", "pipeline/schedule", "profiler", "freeze", "ps/policy", "text", "tune"}
CUDA_ALLOWED = {"device", "comm", "profiler"}
KERNELS, KERNEL_SUFFIXES = "src/nn/cuda/", {".cu", ".cuh"}  # the one folder of what nvcc compiles

# Files that may read a clock that continues while the process is stopped. Code with a time limit uses OwnTime, OwnClock
# or wait_own_time() (core/own_time.h).
OWN_TIME_ROOMS = {"comm", "data", "ddp", "engine", "pipeline", "ps", "ps/net", "ps/policy", "train/setup", "train/trace", "train/plan", "train/serve",
                  "train/run", "train/study"}
MAY_READ_CLOCKS = {
    "how long something took, for records": {
        "comm/clock_offset.cpp", "comm/communicator.cpp", "comm/communicator.h", "comm/link_rates.cpp", "comm/membership.cpp", "ddp/local_sum.cpp", "ddp/ordered_all_reduce.cpp", "ddp/tree_exchange.cpp",
        "engine/noise_norms.cpp", "pipeline/feature_source.h", "pipeline/stream_spans.cpp", "ps/net/network_server.cpp",
        "ps/net/log_recovery.cpp", "train/plan/choose_chunks.cpp", "train/run/feature_reuse.cpp", "train/plan/freeze_planner.cpp", "train/run/loop.cpp",
        "train/trace/recorded_step.cpp", "train/serve/served_workers.cpp", "train/trace/step_trace.cpp", "train/serve/virtual_workers.cpp", "train/serve/worker.cpp"},
    "when to save, to look at the files, or to end a search": {
        "train/plan/replan_watch.cpp", "train/run/loop.h", "train/run/loop_saving.cpp", "train/study/profile.cpp", "train/study/memory_proof.cpp", "train/study/tuning.cpp"},
    "short waits in a loop that has no limit or counts its own time": {"comm/door.cpp", "comm/store.h", "train/setup/stop_before_training.cpp"},
}
CLOCK_READERS = set().union(*MAY_READ_CLOCKS.values())

SOURCE_FOLDERS = ("src", "models", "tests", "bench")
PROGRAMS = {"tests", "bench"}  # nothing includes them, so they may include what lies beside a file by its bare name
TEST_ONLY = {"support", "golden"}  # folders of tests/ that tests include without its name
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CLOCK = re.compile(r"\bnow_ns\b|_clock::now\b|\.wait_(for|until)\(")
LARGEST_SHARE = 0.10  # of the lines of src/ and models/, for one room

CUDA_CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|elifdef)\b.*CUDA")
TORCH_HEADER = re.compile(r"^(torch|ATen|c10)/")


def reads_clock(line):
    return CLOCK.search(line.split("//")[0]) is not None


def module_of(path):
    """The module of a path relative to src/ or the repository, or None."""
    parts = path.split("/")[:-1]
    for length in range(len(parts), 0, -1):
        name = "/".join(parts[:length])
        if name in MAY_INCLUDE:
            return name
    return None


def include_defect(includer, quote, header):
    """The defect of one include in a file of the module, or an empty string."""
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
    if path.suffix in KERNEL_SUFFIXES and includer not in PROGRAMS and not relative.startswith(KERNELS):
        yield 1, f"GPU kernels lie in {KERNELS} only"
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        include = INCLUDE.match(line)
        what = include_defect(includer, *include.groups()) if include else ""
        if CUDA_CONDITION.match(line) and includer not in CUDA_ALLOWED:
            what = f"CUDA is asked for outside {', '.join('src/' + name for name in sorted(CUDA_ALLOWED))}"
        if reads_clock(line) and includer in OWN_TIME_ROOMS and inside not in CLOCK_READERS:
            what = ("a limit must not count the time in which this process is stopped: use OwnClock, OwnTime or wait_own_time() "
                    "(core/own_time.h); a file that only measures goes into MAY_READ_CLOCKS")
        if what:
            yield number, what


def source_files(root):
    for folder in SOURCE_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path, path.relative_to(root).as_posix()


def includes_of(path):
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    found = (INCLUDE.match(line) for line in lines)
    return [include.group(2) for include in found if include and include.group(1) == '"']


def ring_in(graph):
    """The nodes of one cycle of a graph {node: its successors}, or None."""
    state = {}  # absent: not visited; False: on the path; True: done
    for start in graph:
        path = [(start, iter(graph[start]))] if start not in state else []
        state.setdefault(start, False)
        while path:
            node, successors = path[-1]
            following = next(successors, None)
            if following is None:
                state[node] = True
                path.pop()
            elif state.get(following) is False:
                names = [name for name, _ in path]
                return names[names.index(following):] + [following]
            elif following not in state:
                state[following] = False
                path.append((following, iter(graph.get(following, ()))))
    return None


def whole_tree_defects(root):
    used, headers, lines = set(), {}, {}
    idle = set(CLOCK_READERS)
    for path, relative in source_files(root):
        inside = relative.removeprefix("src/")
        room = module_of(inside)
        if room is None or room in PROGRAMS:
            continue
        lines[room] = lines.get(room, 0) + len(path.read_text(encoding="utf-8", errors="replace").splitlines())
        used |= {(room, module_of(header)) for header in includes_of(path)}
        if path.suffix == ".h":
            headers[inside] = includes_of(path)
        if any(map(reads_clock, path.read_text(encoding="utf-8", errors="replace").splitlines())):
            idle.discard(inside)
    for reader in sorted(idle):
        yield f"MAY_READ_CLOCKS names {reader}, but it reads no clock; take it out"
    for room in sorted(set(MAY_INCLUDE) - set(OPEN)):
        for unused in sorted(other for other in MAY_INCLUDE[room] if (room, other) not in used):
            yield f"the table lets '{room}' include '{unused}', but no file does; take the edge out"
    if ring := ring_in(headers):
        yield f"headers include each other in a ring: {' -> '.join(ring)}"
    for room, count in sorted(lines.items()):
        share = count / sum(lines.values())
        if share > LARGEST_SHARE:
            yield f"'{room}' holds {share:.0%} of the lines, more than {LARGEST_SHARE:.0%}; it is more than one room"


def main():
    arguments = [word for word in sys.argv[1:] if word != "--whole"]
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent)
    findings = [f"{relative}:{number}: error: {what}"
                for path, relative in source_files(root) for number, what in file_defects(path, relative)]
    if "--whole" in sys.argv:
        findings += [f"error: {what}" for what in whole_tree_defects(root)]
    for finding in findings:
        print(finding)
    return 70 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
