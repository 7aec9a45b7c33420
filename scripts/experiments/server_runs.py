"""Runs on a parameter server, by their events: when each update was made, what was learned, what the workers did."""

import bisect
import itertools
import math
import statistics

from . import runs

TAIL = 3  # evaluations whose mean is an accuracy at the end


class ServerRun:
    """Updates in order. Seconds count from the beginning of training, in virtual time if the run has it."""

    def __init__(self, events):
        self.steps = runs.events_named(events, "step")
        self.pushes = runs.events_named(events, "push")
        self.evaluations = runs.events_named(events, "eval")
        self.times = times_of(self.steps, self.pushes)

    def of_steps(self, name):
        return [step[name] for step in self.steps]

    def of_pushes(self, name):
        return [push[name] for push in self.pushes]

    def examples_so_far(self):
        return list(itertools.accumulate(self.of_steps("samples")))

    def evaluated(self, name):
        """[times, values] of evaluations, at the time of the last update before each."""
        at = dict(zip(self.of_steps("step"), self.times))
        kept = [event for event in self.evaluations if event["step"] in at]
        return [[at[event["step"]] for event in kept], [event[name] for event in kept]]


def times_of(steps, pushes):
    """When each update was made. With processes the first step also has the time until all workers were there: of it
    counts what the slowest worker's first push took."""
    of_update = {push["step"]: push["virtual_s"] for push in pushes if "virtual_s" in push}
    if of_update:
        return [of_update[step["step"]] for step in steps]
    if not steps:
        return []
    first = max((push["compute_s"] + push["send_s"] for push in pushes if push["step"] == steps[0]["step"]), default=0.0)
    return list(itertools.accumulate((step["step_ms"] / 1000 for step in steps[1:]), initial=first))


def moving_mean(values, width):
    """Mean of the last `width` values up to each, of fewer at the beginning."""
    return [statistics.fmean(values[max(0, end - width) : end]) for end in range(1, len(values) + 1)]


def time_to(times, values, threshold):
    """Time at which the values first reached the threshold, or None."""
    return next((time for time, value in zip(times, values) if value >= threshold), None)


def tail_mean(times, values, time=math.inf):
    """Mean of the last evaluations before this time, or None."""
    known = values[: bisect.bisect_right(times, time)]
    return statistics.fmean(known[-TAIL:]) if known else None


def histogram(groups, bins=24):
    """{name: [edges, shares in percent of all runs, least, greatest share of a run]} of {name: values by run}: the same edges for all."""
    known = [value for runs_of in groups.values() for values in runs_of for value in values]
    if not known:
        return {}
    low, high = min(known), max(known)
    if low == high or (all(float(value).is_integer() for value in known) and high - low < bins):  # counts: a bar each
        edges = [low - 0.5 + i for i in range(int(high - low) + 2)]
    else:
        edges = [low + (high - low) * i / bins for i in range(bins + 1)]
    return {name: [edges, *shares_of_runs([values for values in runs_of if values], edges)] for name, runs_of in groups.items() if any(runs_of)}


def shares_of_runs(runs_of, edges):
    each = list(zip(*(shares(values, edges) for values in runs_of)))
    return [shares(list(itertools.chain(*runs_of)), edges), [min(of) for of in each], [max(of) for of in each]]


def shares(values, edges):
    """The last bin includes its upper edge."""
    counts = [0] * (len(edges) - 1)
    for value in values:
        counts[min(bisect.bisect_right(edges, value), len(counts)) - 1] += 1
    return [100 * count / len(values) for count in counts]


def to_cell(values):
    return " ".join("-" if value is None else f"{value:.9g}" for value in values)


def from_cell(cell):
    return [None if word == "-" else float(word) for word in str("" if cell is None else cell).split()]
