"""What a trace file of ours must be for those who read it (docs/how-to/profile.md), and the events of any trace."""

import contextlib
import gzip
import importlib.util
import io
import json
import re
import shutil
import tempfile

HAS_HTA = importlib.util.find_spec("hta") is not None  # HolisticTraceAnalysis


def read(file):
    """The file's object. Checks what readers look for before they parse it."""
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        text = stream.read()
    trace = json.loads(text)
    first = re.search(r'"rank":\s+(\d+)', text)  # as HolisticTraceAnalysis finds it
    assert first and int(first[1]) == trace["distributedInfo"]["rank"], "the first rank is another one"
    return trace


def bars(trace, **arguments):
    """Events with a duration that have these arguments."""
    return [event for event in trace["traceEvents"] if event.get("ph") == "X"
            and all(event["args"].get(name) == value for name, value in arguments.items())]


def end(bar):
    return bar["ts"] + bar["dur"]


def within(inner, outer):
    """One bar in another one of the same row."""
    same_row = (inner["pid"], inner["tid"]) == (outer["pid"], outer["tid"])
    return same_row and outer["ts"] <= inner["ts"] and end(inner) <= end(outer)


def time_of_union(some):
    """Microseconds in which at least one of these bars goes on."""
    total, until = 0.0, float("-inf")
    for bar in sorted(some, key=lambda bar: bar["ts"]):
        total += max(0.0, end(bar) - max(bar["ts"], until))
        until = max(until, end(bar))
    return total


def arrows(trace):
    """[(start, end)] by their number."""
    for phase in "sf":
        numbers = [event["id"] for event in trace["traceEvents"] if event["ph"] == phase]
        assert len(numbers) == len(set(numbers)), "two arrows have one number"
    starts = {event["id"]: event for event in trace["traceEvents"] if event["ph"] == "s"}
    ends = {event["id"]: event for event in trace["traceEvents"] if event["ph"] == "f"}
    assert starts.keys() == ends.keys(), "an arrow has one end only"
    return [(starts[number], ends[number]) for number in sorted(starts)]


def group_names(trace):
    """{pid: name}"""
    return {event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}


def row_names(trace):
    """{(pid, tid): name}"""
    return {(event["pid"], event["tid"]): event["args"]["name"]
            for event in trace["traceEvents"] if event["name"] == "thread_name"}


def check(trace):
    """Bars of a row nest, arrows lead forward, every row has a name, every piece of work was begun by a call."""
    rows = {}
    for bar in bars(trace):
        assert bar["dur"] >= 0, bar
        rows.setdefault((bar["pid"], bar["tid"]), []).append(bar)
    named = {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert rows.keys() <= named, f"rows without a name: {rows.keys() - named}"
    for row in rows.values():
        open_bars = []
        for bar in sorted(row, key=lambda bar: (bar["ts"], -bar["dur"])):
            while open_bars and end(open_bars[-1]) <= bar["ts"] + 1e-6:
                open_bars.pop()
            assert not open_bars or end(bar) <= end(open_bars[-1]) + 1e-6, f"{bar} is cut by {open_bars[-1]}"
            open_bars.append(bar)
    for start, arrow_end in arrows(trace):
        assert start["ts"] <= arrow_end["ts"], f"{start} comes after {arrow_end}"
        assert start["name"] == arrow_end["name"] and arrow_end["bp"] == "e"
    work = [bar["args"]["correlation"] for bar in bars(trace) if bar["cat"] in ("kernel", "gpu_memcpy")]
    calls = [bar["args"]["correlation"] for bar in bars(trace) if bar["cat"] == "cuda_runtime"]
    assert sorted(work) == sorted(calls) and len(set(work)) == len(work), "work and calls do not match"


def sums(trace):
    """The sums over processes: {(step, stage, bucket): bar}"""
    return {(bar["args"]["step"], bar["args"]["stage"], bar["args"]["bucket"]): bar
            for bar in bars(trace, phase="all_reduce") if "bucket" in bar["args"]}


def hta_breakdown(files, folder):
    """What HolisticTraceAnalysis reads from these files alone: (its temporal breakdown, the ranks). folder: of copies."""
    from hta.trace_analysis import TraceAnalysis

    copies = tempfile.mkdtemp(dir=folder)
    for file in files:
        shutil.copy(file, copies)
    with contextlib.redirect_stdout(io.StringIO()):
        analysis = TraceAnalysis(trace_dir=copies)
        breakdown = analysis.get_temporal_breakdown(visualize=False)
    assert sorted(analysis.t.traces) == sorted(breakdown["rank"]), "a trace was left out"
    return breakdown, sorted(analysis.t.traces)
