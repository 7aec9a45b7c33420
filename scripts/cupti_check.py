#!/usr/bin/env python3
"""Compares a run with profile.level = "cupti" with the same run measured by events. For scripts/gpu_check.sh.

usage: scripts/cupti_check.py EVENTS_RUN CUPTI_RUN

Prints the median time of each phase by both, and the cost of the records, as reported by CUPTI and from the length of steps
without their wait for data.
Exit codes: 0 all agree; 70 a phase above 1 % of the step is more than 3 % longer by CUPTI, or more than 3 % and 1.5 us for
each of its kernels shorter; no phase is that long, records were dropped, a tag disagrees, or there are no records.
"""

import statistics
import sys

import gpu_measure

PHASES = ("forward_ms", "backward_ms", "optimizer_ms")
TOLERANCE = 0.03
GAP_MS = 0.0015  # between two kernels: events measure it, CUPTI does not
LEAST_SEEN = 0.7  # of a phase by events, whatever its gaps
LEAST_SHARE = 0.01  # of a step: shorter phases are not compared


def medians(lines):
    """The median of each phase and of the step without its wait for data; the first steps do not count."""
    steps = gpu_measure.steps_of(lines)
    return {**{phase: statistics.median(step[phase] for step in steps) for phase in PHASES},
            "step_ms": gpu_measure.step_ms(lines)}


def gaps_ms(kernels, phase):
    """Of a phase of one step; the calls that the table leaves out have none."""
    rows = kernels.get("rows", []) if kernels else []
    return GAP_MS * sum(row["calls"] for row in rows if f"{row['phase']}_ms" == phase) / kernels["steps"] if rows else 0


def defects(events, cupti, kernels):
    long = [phase for phase in PHASES if not max(events[phase], cupti[phase]) < LEAST_SHARE * events["step_ms"]]
    if not long:
        yield "no phase is long enough to be compared"
    for phase in long:
        shorter = events[phase] - cupti[phase] - gaps_ms(kernels, phase)
        agrees = max(shorter, cupti[phase] - events[phase]) <= TOLERANCE * events[phase]  # not a number does not
        if not (agrees and cupti[phase] >= LEAST_SEEN * events[phase]):
            yield f"{phase} is {cupti[phase]:.3f} ms by CUPTI and {events[phase]:.3f} ms by events"
    if kernels is None:
        yield "the run has no event `kernels`: CUPTI was not available"
        return
    for count in ("dropped", "without_times", "without_launch", "late", "disagreements"):
        if kernels[count]:
            yield f"{count}: {kernels[count]}"


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    by_events, by_cupti = gpu_measure.lines_of(sys.argv[1]), gpu_measure.lines_of(sys.argv[2])
    events, cupti = medians(by_events), medians(by_cupti)
    kernels = next((line for line in by_cupti if line["event"] == "kernels"), None)
    for key in events:
        print(f"{key:14} events {events[key]:9.3f}  cupti {cupti[key]:9.3f}")
    print(f"overhead: {cupti['step_ms'] / events['step_ms'] - 1:+.2%} of a step")
    if kernels is not None:
        print(f"overhead by CUPTI's account: {kernels['overhead_ms']:.1f} ms in {kernels['steps']} steps")
    found = list(defects(events, cupti, kernels))
    for defect in found:
        print(f"cupti_check: {defect}")
    return 70 if found else 0


if __name__ == "__main__":
    sys.exit(main())
