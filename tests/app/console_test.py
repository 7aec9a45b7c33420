#!/usr/bin/env python3
"""What a person sees of a run: into a pipe, on terminals of several widths, and with --quiet.

    console_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import tempfile
import termios
import unittest

import sluice_cli as cli

STEPS = 12
CLEAR = "\r\x1b[K"  # before the progress line is drawn anew, and before a line that takes its place
STEP = r"step {}/12  loss \d+\.\d{{4}}  lr 0\.05  \d+(\.\d)? samples/s  ETA \d+:\d\d"
EPOCH = (r"epoch {} of 3: train loss \d+\.\d{{4}}, top-1 \d+\.\d\d %; validation loss \d+\.\d{{4}}, top-1 \d+\.\d\d %, "
         r"top-5 \d+\.\d\d %; \d+\.\d s")
NUMBER = r"\d+\.\d{6}"
FULL_LINES = [
    rf"data loading time cost \(ms\) by device event {NUMBER}",
    rf"forward time cost \(ms\) by device event {NUMBER}",
    rf"backwards time cost: \(ms\) by device event {NUMBER}",
    rf"all-reduce time cost \(ms\) by device event {NUMBER}, exposed {NUMBER}, of it waiting for the slowest {NUMBER}",
    r"sample_num_throughput \(images/second\): \d+",
    r"communication frequency \(cross machine sync/second\): 0\.000000",
    r"size_params_ddp_sum: [1-9]\d*\.000000",
    r"network bandwidth \(bytes/second\): (\d+|not known yet)",
]


def on_terminal(columns, *arguments, **variables):
    """Runs sluice with standard error on a terminal so wide; returns its exit code and what it wrote there."""
    try:
        ours, theirs = pty.openpty()
    except OSError as error:
        raise unittest.SkipTest(f"there is no terminal to be had here: {error}") from error
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    environment = {name: value for name, value in cli.environment_without_launchers().items() if name not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen([cli.BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=theirs, env={**environment, "TERM": "xterm", **variables})
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        written += part
    os.close(ours)
    return process.wait(cli.PATIENCE_S), written.decode()


class ConsoleTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.run_dir = self.folder / "run"
        self.config = cli.write_config(
            self.folder / "small.toml", device={"list": "cpu"}, model={"name": "mlp", "image_size": 8},
            data={"name": "shapes", "samples": 64},
            train={"epochs": 3, "global_batch": 16, "lr": 0.05}, replicas={"local": 2}, log={"every": 5})

    def log(self):
        return (self.run_dir / "log.txt").read_text().splitlines()

    def texts(self, lines):
        """Lines without date, time and level; tables have none."""
        return [re.sub(r"^\d{4}-\d\d-\d\d [\d:.]+ info    ", "", line) for line in lines]

    def assert_line(self, lines, pattern):
        self.assertTrue(any(re.fullmatch(pattern, line) for line in lines), f"{pattern} is not in\n" + "\n".join(lines))

    def test_a_pipe_gets_a_line_an_interval_and_a_summary_an_epoch_and_no_escape_sequence(self):
        done = cli.must_run("train", self.config, "--run-dir", self.run_dir)
        self.assertNotRegex(done.stderr, r"[\r\x1b]")
        lines = done.stderr.splitlines()
        self.assertEqual(lines[-len(self.log()):], self.log(), "log.txt is what was shown")
        texts = self.texts(lines)
        for step in (5, 10, STEPS):
            self.assert_line(texts, STEP.format(step) + r"(  \w+ \d+ %)+")
        self.assertEqual(sum(text.startswith("step ") for text in texts), 3)
        for epoch in (1, 2, 3):
            self.assert_line(texts, EPOCH.format(epoch))
        self.assertNotIn("sample_num_throughput", done.stderr)
        for heading in (r"stage +layers +parameters +bytes  devices", r" +load  forward .* step +busy"):
            self.assert_line(lines, heading)  # no time before a table
        self.assertRegex(texts[-1], rf"^done after step {STEPS}/{STEPS}: train loss .*; {self.run_dir}$")
        self.assert_epochs()

    def assert_epochs(self):
        """The summaries against the step lines added up here."""
        epochs = cli.events(self.run_dir, "epoch")
        self.assertEqual([epoch["epoch"] for epoch in epochs], [0, 1, 2])
        for epoch in epochs:
            steps = [step for step in cli.events(self.run_dir, "step") if step["epoch"] == epoch["epoch"]]
            samples = sum(step["samples"] for step in steps)
            self.assertEqual((epoch["steps"], epoch["samples"], samples), (4, 64, 64))
            self.assertAlmostEqual(epoch["loss"], sum(step["loss"] * step["samples"] for step in steps) / samples, places=12)
            self.assertAlmostEqual(epoch["top1"] * samples / 100, round(epoch["top1"] * samples / 100), places=9)

    def test_quiet_shows_the_last_line_alone_and_the_log_has_the_nine_lines(self):
        done = cli.must_run("train", self.config, "--quiet", "--run-dir", self.run_dir, "--set", "log.lines=full")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(f" done after step {STEPS}/{STEPS}: ", done.stderr)
        texts = self.texts(self.log())
        self.assertEqual(texts[-1], self.texts(done.stderr.splitlines())[-1])
        first = next(i for i, text in enumerate(texts) if text.startswith("data loading"))
        for text, pattern in zip(texts[first:], [*FULL_LINES, r"epoch = 1, batch index = 0/4", STEP.format(5) + ".*"]):
            self.assertRegex(text, f"^{pattern}$")
        self.assertEqual(sum(text.startswith("epoch = ") for text in texts), 3)

    def test_a_terminal_has_a_progress_line_that_never_wraps(self):
        code, written = on_terminal(50, "train", self.config, "--run-dir", self.run_dir)
        self.assertEqual(code, 0, written)
        rows = [row.split(CLEAR) for row in written.split("\r\n")]
        drawn = [text for row in rows for text in row if text.startswith("step ")]
        self.assertTrue(drawn, written)
        for line in drawn:
            self.assertLess(len(line), 50)
            self.assertRegex(line, r"^step \d+/12  loss \d+\.\d{4}  ETA (\d+:\d\d|\?)")
        plain = "\n".join(row[-1] for row in rows)  # what is left to be seen
        told = [line for line in plain.splitlines() if " step " in line and " loss " in line and " after " not in line]
        self.assertEqual(len(told), 3, plain)
        for line in told:
            self.assertLess(len(line), 50, "log.txt has the fields that did not fit")
        self.assertNotIn("\nstep ", plain, "progress that stays behind")
        self.assertNotIn("\x1b", plain, "nothing to colour in a run that goes well")
        self.assertRegex(plain, r"(?m)^\d\d:\d\d:\d\d epoch 3 of 3: train loss ")
        self.assertTrue(all(re.match(r"\d{4}-\d\d-\d\d ", line) for line in self.log() if " epoch " in line))
        self.assertNotIn("\x1b", "".join(self.log()))

    def test_colours_are_for_terminals_that_take_them(self):
        missing = self.folder / "missing.toml"
        for variables, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)):
            with self.subTest(variables=variables):
                code, written = on_terminal(80, "train", missing, **variables)
                self.assertEqual(code, 2)
                self.assertEqual("\x1b[31merror:\x1b[0m " in written, coloured, written)
                self.assertIn("error:", written)
        self.assertNotIn("\x1b", cli.run("train", missing).stderr)

    def test_quiet_and_verbose_together_are_bad_usage(self):
        done = cli.run("train", self.config, "--quiet", "--verbose", "--run-dir", self.run_dir)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(cli.error_of(done), "--(quiet excludes --verbose|verbose excludes --quiet)")
        self.assertFalse(self.run_dir.exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
