"""Draws figures with matplotlib, of this Python or of the one in .venv: each as a PNG file and as a PDF file for a paper.

A figure: {"file": "a" (for a.png and a.pdf), "title": "...", "note": what the marks stand for, "x": "label", "panels": [...]}; the panels lie
under each other. A panel: {"y": "label", "kind": "...", "series": {"name": ...}} and, if needed,
  "log"        "x", "y" or "xy"
  "zero"       true: the axis begins at 0, because lengths are compared; bars and histograms always do
  "failed"     {"as": "out of memory", "at": {"name of a series": [x, ...]}}: marks on the lower edge
  "published"  {"name": [[x, ...], [y, ...]]}: hollow marks beside ours
Kinds, and what each of their series is:
  line, bar    [[x, ...], [y, ...], [lowest, ...], [highest, ...]]: points with error bars; without the last two there are none
  curve, step  [[[x, ...], [y, ...]], ...]: one line a run
  histogram    [edges, values, lowest, highest]: one edge more than values
An axis whose data are whole numbers has whole numbers as ticks.

usage: plots.py FOLDER < figures.json
"""

import json
import math
import pathlib
import subprocess
import sys

MISSING = 3
WIDTH_INCHES = 5.5  # of the text of a page, as conferences have it
STYLE = {
    "font.size": 8, "axes.titlesize": 8, "legend.fontsize": 7, "axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.3, "lines.linewidth": 1.2, "savefig.dpi": 200,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
}
# Okabe and Ito's colours for colour-blind readers; marks and dashes distinguish series without colour.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKS = "os^DvPX"
DASHES = ["-", "--", "-.", ":"]
FAILED = "failed"  # the mark in the legend
FEW_POINTS = 40  # up to so many points of a curve have marks
FEW_TICKS = 8  # up to so many different values on a logarithmic axis have a tick each


def draw(figures, folder, other_python):
    """Returns an empty string, or why nothing was drawn."""
    if not figures:
        return ""
    for python in (sys.executable, str(other_python)):
        if not pathlib.Path(python).exists():
            continue
        done = subprocess.run([python, __file__, str(folder)], input=json.dumps(figures), capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return ""
        if done.returncode != MISSING:
            return f"the plots could not be drawn: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    return "no plots: matplotlib is missing; scripts/bootstrap.sh --plots installs it, and the same call again draws them"


def draw_here(figures, folder, pyplot):
    for figure in figures:
        drawing = drawn(figure, pyplot)
        drawing.savefig(folder / f"{figure['file']}.png")
        drawing.savefig(folder / f"{figure['file']}.pdf", metadata={"CreationDate": None})  # the same bytes from the same rows
        pyplot.close(drawing)


def drawn(figure, pyplot):
    panels = figure["panels"]
    drawing, axes = pyplot.subplots(len(panels), 1, sharex=True, squeeze=False, figsize=(WIDTH_INCHES, 0.8 + 2.1 * len(panels)), layout="constrained")
    explained = set()
    for panel, axis in zip(panels, axes[:, 0]):
        draw_panel(panel, axis)
        add_legend(axis, explained)
    set_x_axis(panels, axes[-1, 0])
    axes[0, 0].set_title(figure.get("note", ""), fontsize=7, color="#444444")
    axes[0, 0].annotate(figure["title"], (0.5, 1), xytext=(0, 15), xycoords="axes fraction", textcoords="offset points", ha="center", fontsize=9)
    axes[-1, 0].set_xlabel(figure["x"])
    return drawing


def draw_panel(panel, axis):
    for index, (name, series) in enumerate(panel["series"].items()):
        look = {"color": COLOURS[index % len(COLOURS)], "label": name}
        if panel["kind"] in ("curve", "step"):
            draw_runs(panel["kind"], series, axis, {**look, "linestyle": DASHES[index % len(DASHES)]}, MARKS[index % len(MARKS)])
        elif panel["kind"] == "histogram":
            draw_histogram(series, axis, look, index / len(panel["series"]))
        else:
            draw_points(panel["kind"], series, axis, look, index)
    for name, (x, y) in panel.get("published", {}).items():
        axis.plot(x, y, linestyle="none", marker="D", markersize=5, markerfacecolor="none", color="#000000", label=name, zorder=4)
    set_y_axis(panel, axis)
    draw_failed(panel, axis)


def add_legend(axis, explained):
    """Adds a legend, unless a panel above has the same; failures come last."""
    entries = sorted(zip(*axis.get_legend_handles_labels()), key=lambda entry: getattr(entry[0], "get_gid", str)() == FAILED)
    labels = [label for _, label in entries]
    if len(labels) > 1 and not explained.issuperset(labels):
        axis.legend([handle for handle, _ in entries], labels)
        explained.update(labels)


def draw_points(kind, series, axis, look, index):
    x, y = series[:2]
    bars = error_bars(series)
    if kind == "bar":
        axis.bar(x, y, width=0.6, yerr=bars, capsize=3, ecolor="#000000", **look)
    else:
        axis.errorbar(x, y, yerr=bars, capsize=2.5, marker=MARKS[index % len(MARKS)], markersize=3.5, linestyle=DASHES[index % len(DASHES)], **look)


def error_bars(series):
    """Lengths below and above each point; None if no point has any."""
    if len(series) < 4:
        return None
    _, y, low, high = series
    bars = [[length_of(value, least) for value, least in zip(y, low)], [length_of(most, value) for value, most in zip(y, high)]]
    return bars if any(map(any, bars)) else None


def length_of(upper, lower):
    """0 if the two differ only by rounding."""
    return upper - lower if upper - lower > 1e-6 * abs(upper) else 0


def draw_runs(kind, lines, axis, look, mark):
    for number, (x, y) in enumerate(lines):
        of_run = {**look, "label": look["label"] if number == 0 else "_"}  # one line of the legend for all runs of a series
        if kind == "step":
            axis.step(x, y, where="post", **of_run)
        else:
            marks = {"marker": mark, "markersize": 2.5} if len(x) <= FEW_POINTS else {}
            axis.plot(x, y, linewidth=0.9, alpha=0.8, **marks, **of_run)


def draw_histogram(series, axis, look, shift):
    edges, values = series[:2]
    axis.stairs(values, edges, fill=True, alpha=0.3, color=look["color"])
    axis.stairs(values, edges, **look)
    bars = error_bars([edges, *series[1:]])
    if bars:  # beside each other where the bins of several series lie on each other
        middles = [low + (high - low) * (0.35 + 0.5 * shift) for low, high in zip(edges, edges[1:])]
        axis.errorbar(middles, values, yerr=bars, linestyle="none", capsize=1.5, linewidth=0.8, color=look["color"])


def set_x_axis(panels, axis):
    values = [x for panel in panels for x in x_of(panel)]
    if any("x" in panel.get("log", "") for panel in panels):
        axis.set_xscale("log")
        set_ticks(axis.xaxis, ticks_of(values))
    elif is_whole(values):
        set_ticks(axis.xaxis, None)


def set_y_axis(panel, axis):
    values = y_of(panel)
    if "y" in panel.get("log", ""):
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        set_ticks(axis.yaxis, [], subs=(1, 2, 5) if high > 10 * low else range(1, 10))
    elif is_whole(values):
        set_ticks(axis.yaxis, None)
    if begins_at_zero(panel):
        axis.set_ylim(0, 1.06 * max(values, default=0) or None)
    axis.set_ylabel(panel["y"])


def set_ticks(one, ticks, subs=(1, 2, 5)):
    """Ticks of a logarithmic axis at these values, without minor ticks; None: whole numbers on a linear axis."""
    from matplotlib import ticker
    if ticks is None:
        one.set_major_locator(ticker.MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
        return
    one.set_major_locator(ticker.FixedLocator(ticks) if ticks else ticker.LogLocator(base=10, subs=subs))
    one.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    one.set_minor_locator(ticker.NullLocator())


def ticks_of(values):
    """The values of a logarithmic axis if they are few; every second or third of many powers of two; else none."""
    known = sorted(set(values))
    if len(known) <= FEW_TICKS:
        return known
    return known[:: -(-len(known) // FEW_TICKS)] if all(math.log2(value).is_integer() for value in known) else []


def x_of(panel):
    """All drawn x: for bins their middles; names of bars are not numbers."""
    series = [middles_of(line[0]) if panel["kind"] == "histogram" else line[0] for line in lines_of(panel)] + list(panel.get("failed", {}).get("at", {}).values())
    return [x for values in series for x in values if not isinstance(x, str)]


def middles_of(edges):
    return [(low + high) / 2 for low, high in zip(edges, edges[1:])]


def y_of(panel):
    series = [values for line in lines_of(panel) for values in line[1:]] + [y for _, y in panel.get("published", {}).values()]
    return [y for values in series for y in values]


def lines_of(panel):
    return [line for series in panel["series"].values() for line in (series if panel["kind"] in ("curve", "step") else [series])]


def is_whole(values):
    return bool(values) and all(float(value).is_integer() for value in values)


def begins_at_zero(panel):
    return "y" not in panel.get("log", "") and (panel.get("zero", False) or panel["kind"] in ("bar", "histogram"))


def draw_failed(panel, axis):
    """Crosses at the lower edge, with a line per series."""
    failed = panel.get("failed", {"at": {}})
    for index, name in enumerate(panel["series"]):
        for x in failed["at"].get(name, []):
            axis.plot([x], [0.03 + 0.05 * index], marker="x", markersize=6, markeredgewidth=1.6, color=COLOURS[index % len(COLOURS)],
                      transform=axis.get_xaxis_transform(), clip_on=False, zorder=4, label="_")
    if any(failed["at"].values()):
        axis.plot([], [], linestyle="none", marker="x", color="#444444", label=failed["as"], gid=FAILED)


def main():
    try:
        import matplotlib
    except ImportError:
        sys.exit(MISSING)
    matplotlib.use("Agg")
    from matplotlib import pyplot
    pyplot.rcParams.update(STYLE)
    draw_here(json.load(sys.stdin), pathlib.Path(sys.argv[1]), pyplot)


if __name__ == "__main__":
    main()
