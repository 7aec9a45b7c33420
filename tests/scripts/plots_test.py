#!/usr/bin/env python3
"""What scripts/experiment.py puts into a paper: figures (scripts/experiments/plots.py) and tables in LaTeX (latex.py)."""

import importlib.util
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))

from experiments import arguments, latex, plots  # noqa: E402

RANGES = [[64, 128, 256], [10, 12, 11], [9, 12, 10], [10, 14, 11]]
BATCHES = {"y": "images/s", "kind": "line", "log": "x", "zero": True, "series": {"ddp": RANGES, "pipe": [[], [], [], []]},
           "failed": {"as": "out of memory", "at": {"ddp": [512], "pipe": [64, 512]}}}


class DecisionsTest(unittest.TestCase):
    """What needs no matplotlib."""

    def test_error_bars_are_lengths(self):
        self.assertEqual(plots.error_bars(RANGES), [[1, 0, 1], [0, 2, 0]])
        self.assertIsNone(plots.error_bars([[1], [2]]))
        self.assertIsNone(plots.error_bars([[1], [2], [2], [2]]), "a single run has none")
        self.assertEqual(plots.error_bars([[1], [2], [2.1], [3]]), [[0], [1]])
        self.assertIsNone(plots.error_bars([[1], [0.0123456789], [0.01234567890123], [0.012345678899]]), "rounding is no spread")

    def test_lengths_are_compared_from_zero(self):
        self.assertTrue(plots.begins_at_zero(BATCHES))
        for kind, begins in (("bar", True), ("histogram", True), ("line", False), ("curve", False)):
            self.assertEqual(plots.begins_at_zero({"kind": kind}), begins, kind)
        self.assertFalse(plots.begins_at_zero({"kind": "line", "zero": True, "log": "xy"}))

    def test_ticks_of_a_logarithmic_axis_stand_at_values(self):
        self.assertEqual(plots.ticks_of([64, 48, 48, 512]), [48, 64, 512])
        self.assertEqual(plots.ticks_of([2**n for n in range(10)]), [1, 4, 16, 64, 256])
        self.assertEqual(plots.ticks_of(range(1, 20)), [])

    def test_a_batch_that_failed_is_within_the_axis(self):
        self.assertEqual(sorted(set(plots.x_of(BATCHES))), [64, 128, 256, 512])
        self.assertEqual(plots.y_of({"kind": "bar", "series": {"a": [["x"], [1], [0], [2]]}, "published": {"b": [["x"], [9]]}}), [1, 0, 2, 9])

    def test_nothing_is_drawn_of_nothing(self):
        self.assertEqual(plots.draw([], None, None), "")


class SpreadTest(unittest.TestCase):
    def test_what_runs_do_not_tell_apart_is_marked(self):
        self.assertEqual([arguments.ranges_overlap(*pair) for pair in (([1, 3], [2, 4]), ([1, 2], [3, 4]), ([2, 4], [1, 3]), ([1, 9], [2, 3]), ([2], [1, 3]))],
                         [True, False, True, True, False])
        self.assertEqual([arguments.range_holds(values, 1) for values in ([0.9, 1.2], [1.1, 1.2], [1])], [True, False, False])
        self.assertEqual((arguments.inconclusive_mark(True), arguments.inconclusive_mark(False)), (" ≈", ""))

    def test_one_run_is_said_to_be_one(self):
        self.assertEqual(arguments.count_with_spread(3, "seed"), "3 seeds")
        self.assertEqual(arguments.count_with_spread(1, "seed"), "one seed (n = 1: nothing is known of the spread)")
        self.assertEqual([arguments.note(n, "round", "medians") for n in (1, 3)], ["one round (n = 1): no error bars", "medians of 3 rounds; error bars: least and greatest"])
        self.assertEqual([arguments.note_of_lines(n, "seed") for n in (1, 3)], ["one seed (n = 1)", "a line for each of 3 seeds"])
        row = {"a": 2.0, "a_min": 1.0, "a_max": 3.0, "b": 2.0, "b_min": 2.0, "b_max": 2.0}
        self.assertEqual([arguments.ranged(row, name) for name in "ab"], ["2.00 (1.00 to 3.00)", "2.00"])
        self.assertEqual([arguments.digits_of(value) for value in (1234, 99.5, 1.5, -0.0123, 0)], [1, 1, 2, 4, 1])


@unittest.skipUnless(importlib.util.find_spec("matplotlib"), "needs matplotlib (scripts/bootstrap.sh --plots)")
class DrawnTest(unittest.TestCase):
    def setUp(self):
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
        self.pyplot = pyplot
        self.addCleanup(pyplot.close, "all")

    def axes_of(self, *panels):
        drawing = plots.drawn({"title": "t", "note": "n = 1", "x": "batch", "panels": panels}, self.pyplot)
        drawing.draw_without_rendering()
        return drawing.axes

    def test_a_ladder_of_batches(self):
        upper, lower = self.axes_of(BATCHES, BATCHES)
        self.assertEqual(upper.get_ylim()[0], 0)
        self.assertGreater(upper.get_ylim()[1], 14)
        self.assertEqual([tick.get_text() for tick in lower.get_xticklabels()], ["64", "128", "256", "512"])
        self.assertEqual([text.get_text() for text in upper.get_legend().get_texts()], ["ddp", "pipe", "out of memory"])
        self.assertIsNone(lower.get_legend(), "the panel above says the same")
        crosses = [tuple(line.get_xydata()[0]) for line in upper.lines if line.get_marker() == "x" and len(line.get_xydata())]
        self.assertEqual([x for x, _ in crosses], [512, 64, 512])
        self.assertEqual(len(set(crosses)), 3, "two series that fail at one batch are both seen")
        self.assertEqual(len(upper.collections), 1, "the error bars of the one series that has some")
        self.assertEqual(upper.get_title(), "n = 1")

    def test_counts_have_whole_ticks(self):
        for series in ([[0, 1, 2], [3, 5, 4]], [[0, 1, 2], [3.5, 5, 4]]):
            [axis] = self.axes_of({"y": "a", "kind": "line", "series": {"one": series}})
            self.assertTrue(all(float(tick).is_integer() for tick in axis.get_xticks()), axis.get_xticks())
            self.assertEqual(all(float(tick).is_integer() for tick in axis.get_yticks()), series[1][0] == 3, axis.get_yticks())

    def test_a_line_a_run_and_one_entry_for_all(self):
        runs = {"fmb": [[[0, 1.5], [1, 2]], [[0, 1.6], [1, 3]]], "amb": [[[0, 1], [2, 2]]]}
        for kind in ("curve", "step"):
            [axis] = self.axes_of({"y": "a", "kind": kind, "series": runs})
            self.assertEqual(len(axis.lines), 3)
            self.assertEqual([text.get_text() for text in axis.get_legend().get_texts()], ["fmb", "amb"])

    def test_bars_and_histograms_begin_at_zero(self):
        [axis] = self.axes_of({"y": "s", "kind": "bar", "series": {"": [["one", "two"], [50, 60], [49, 55], [51, 65]]}, "published": {"theirs": [["two"], [90]]}})
        self.assertEqual((axis.get_ylim()[0], axis.get_ylim()[1] > 90), (0, True))
        [axis] = self.axes_of({"y": "%", "kind": "histogram", "series": {"a": [[0, 1, 2], [40, 60], [30, 50], [50, 70]]}})
        self.assertEqual((axis.get_ylim()[0], len(axis.collections)), (0, 1))
        [axis] = self.axes_of({"y": "%", "kind": "histogram", "series": {"staleness": [[-0.5, 0.5], [100], [100], [100]]}})
        self.assertEqual([tick for tick in axis.get_xticks() if abs(tick) <= 0.5], [0])

    def test_each_figure_is_a_picture_and_a_page(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        figure = {"file": "a", "title": "t", "x": "x", "panels": [{"y": "y", "kind": "line", "series": {"b": [[1, 2], [3, 4]]}}]}
        self.assertEqual(plots.draw([figure], folder, "/nowhere"), "")
        self.assertEqual(sorted(path.name for path in folder.iterdir()), ["a.pdf", "a.png"])
        page = (folder / "a.pdf").read_bytes()
        self.assertEqual((b"/FontFile2" in page, b"/Type3" in page), (True, False), "fonts are TrueType and embedded")


class LatexTest(unittest.TestCase):
    TEXT = """# two_nodes

resnet8, 50 % of it; 3 seeds.

| | s of training: median | **x** | `top_1` |
| --- | --- | --- | --- |
| one & all | 8.0 (7.1 to 9.0) | 1.00x | -2.5 ± 0.1 |
| same_global | 5.0 | 2.00x ≈ |  |

≈ marks it.

## Published

Theirs:

| a | b | c | d | e | f | g |
| --- | --- | --- | --- | --- | --- | --- |
| 1 | 2 | 3 | 4 | 5 | 6 | seven |
"""

    def test_a_table_has_its_caption_and_its_notes(self):
        text = latex.of_markdown(self.TEXT, "two_nodes")
        self.assertIn(r"""\caption{two\_nodes. resnet8, 50 \% of it; 3 seeds.}
\label{tab:two_nodes-1}""", text)
        self.assertIn(r"""\begin{tabular}{lrrr}
\toprule
 & \shortstack[r]{s of training: \\ median} & \textbf{x} & \texttt{top\_1} \\
\midrule
one \& all & 8.0 (7.1 to 9.0) & 1.00x & $-$2.5 $\pm$ 0.1 \\
same\_global & 5.0 & 2.00x $\approx$ &  \\
\bottomrule
\end{tabular}}
\par\smallskip\footnotesize $\approx$ marks it.
\end{table}
""", text)
        self.assertIn(r"\caption{Published. Theirs.}", text)
        self.assertEqual((text.count(r"\begin{table}"), text.count(r"\begin{table*}")), (1, 1), "much goes over both columns")

    def test_what_no_table_follows_is_a_comment(self):
        self.assertEqual(latex.of_markdown("# a\n\nb_c:\n\n- d", "a").splitlines()[1:], ["% a.", "% b\\_c:", "% - d"])


if __name__ == "__main__":
    unittest.main()
