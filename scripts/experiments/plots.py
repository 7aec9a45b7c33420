"""Draws figures as PNG files with matplotlib, of this Python or of the one in .venv.

A figure: {"file": "a.png", "title": "...", "x": "label", "panels": [{"y": "label", "kind": "line" (with a mark at each point), "curve",
"step", "bar" or "histogram" (x: one edge more than values), "log": "", "x" or "xy", "series": {"name": [[x, ...], [y, ...]]}}]}; the
panels lie under each other.

usage: plots.py FOLDER < figures.json
"""

import json
import pathlib
import subprocess
import sys

MISSING = 3


def draw(figures, folder, other_python):
    """Empty, or a sentence that says why nothing was drawn."""
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
        panels = figure["panels"]
        drawing, axes = pyplot.subplots(len(panels), 1, sharex=True, squeeze=False, figsize=(7, 1.2 + 3 * len(panels)), layout="constrained")
        for panel, axis in zip(panels, axes[:, 0]):
            draw_panel(panel, axis)
        axes[0, 0].set_title(figure["title"])
        axes[-1, 0].set_xlabel(figure["x"])
        drawing.savefig(folder / figure["file"], dpi=120)
        pyplot.close(drawing)


def draw_panel(panel, axis):
    for name, (x, y) in panel["series"].items():
        if panel["kind"] == "bar":
            axis.bar(x, y, label=name)
        elif panel["kind"] == "histogram":
            axis.stairs(y, x, label=name, fill=True, alpha=0.5)
        elif panel["kind"] == "curve":
            axis.plot(x, y, linewidth=1, label=name)
        elif panel["kind"] == "step":
            axis.step(x, y, where="post", label=name)
            axis.yaxis.get_major_locator().set_params(integer=True)
        else:
            axis.plot(x, y, marker="o", markersize=3, label=name)
    log = panel.get("log", "")
    if "x" in log:
        axis.set_xscale("log", base=2)
    if "y" in log:
        axis.set_yscale("log")
    axis.set_ylabel(panel["y"])
    axis.grid(alpha=0.3)
    if len(panel["series"]) > 1:
        axis.legend(fontsize="small")


def main():
    try:
        import matplotlib
    except ImportError:
        sys.exit(MISSING)
    matplotlib.use("Agg")
    from matplotlib import pyplot
    draw_here(json.load(sys.stdin), pathlib.Path(sys.argv[1]), pyplot)


if __name__ == "__main__":
    main()
