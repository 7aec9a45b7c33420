"""Runs on a parameter server, small ones: their configuration, their processes, and what they leave. Whoever imports
this without safetensors exits 77."""

import contextlib
import json
import pathlib
import tempfile
import unittest

import sluice_cli as cli

try:
    import numpy
    from safetensors.numpy import load_file
except ModuleNotFoundError as missing:
    print(f"skipped: {missing}")
    raise SystemExit(77) from None

WORKERS = 4  # in virtual time
BATCH, SAMPLES = 8, 96  # a whole number of batches of 1, 2, 3 and 4 workers an epoch
VIT = {"name": "vit", "size": "nano", "image_size": 16, "dropout": 0.1}
SLOW = {"induce": "exponential", "induce_shift_s": 0.03, "induce_mean_s": 0.02}  # so that there is time to do something
STALL = {"induce": "ec2", "sample_s": 0.05}
SHORT = {"hang_timeout_s": 6}  # where a test waits until somebody is missed; on a busy machine one who lives may seem gone


def write(folder, ps, replicas, tables):
    return cli.write_config(
        folder / f"run{len(list(folder.glob('*.toml')))}.toml",
        device={"list": "cpu"},
        model=tables.get("model", VIT),
        data={"name": "shapes", "samples": SAMPLES, "crop_padding": 2, "flip": True, **tables.get("data", {})},
        train={"steps": 9, "lr": 0.003, "optimizer": "adamw", "weight_decay": 1e-3, "lr_schedule": "cosine",
               "clip_norm": 0.5, "seed": 3, "precision": "fp64", "deterministic": True, **tables.get("train", {})},
        pipeline={"stages": 2, "chunks": 2, **tables.get("pipeline", {})},
        checkpoint=tables.get("checkpoint", {}),
        replicas={"sync": "ps", **replicas, **tables.get("replicas", {})},
        **({"ps": ps} if ps is not None else {}))


def configuration(folder, ps, **tables):
    """Of processes; ps=None: without a server."""
    ps = {"worker_batch": BATCH, **ps} if ps is not None else None
    return write(folder, ps, {"hang_timeout_s": 60, "connect_timeout_s": 60}, tables)


def virtual_configuration(folder, ps, **tables):
    """In virtual time, with WORKERS; ps=None: without a server."""
    ps = {"clock": "virtual", "workers": WORKERS, **ps} if ps is not None else None
    tables["train"] = {"global_batch": WORKERS * BATCH, **tables.get("train", {})}
    return write(folder, ps, {}, tables)


class ServerRuns(unittest.TestCase):
    """Starts servers and workers, and looks at what they leave."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.started = []
        self.addCleanup(self.kill_all)
        self.port = cli.free_port()

    def kill_all(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def start(self, config, rank, size, *arguments, run_dir="run", environment=None, log=None, **popen):
        """log: a file for all that it prints, else its output goes to pipes."""
        with contextlib.ExitStack() as files:
            if log is not None:
                popen["stdout"] = popen["stderr"] = files.enter_context(open(log, "wb"))
            self.started.append(cli.start("train", config, "--run-dir", self.folder / run_dir, *arguments,
                                          env=cli.rank_environment(rank, size, self.port) | (environment or {}), **popen))
        return self.started[-1]

    def start_all(self, config, size, *arguments, run_dir="run"):
        return [self.start(config, rank, size, *arguments, run_dir=run_dir) for rank in range(size)]

    def finish_well(self, processes):
        done = cli.finish_all(processes)
        for process in done:
            self.assertEqual(process.returncode, 0, process.stderr)
        return done

    def wait_for_step(self, step, server, run_dir="run"):
        cli.wait_until(lambda: len(cli.events(self.folder / run_dir, "step")) >= step, server)

    def assert_learnt_alike(self, run_dir, plain):
        """What this run has learnt is what the other has, which had one device."""
        for name in ("loss", "samples", "lr", "gradient_norm", "top1"):
            for ours, theirs in zip(cli.column(run_dir, name), cli.column(plain, name), strict=True):
                self.assertLessEqual(abs(ours - theirs), 1e-9 * max(abs(theirs), 1e-9), name)
        for name in ("step", "epoch", "loss"):
            for ours, theirs in zip(cli.column(run_dir, name, "eval"), cli.column(plain, name, "eval"), strict=True):
                self.assertLessEqual(abs(ours - theirs), 1e-9 * max(abs(theirs), 1), name)
        last = cli.column(plain, "step")[-1]
        for file in ("model.safetensors", "optimizer.safetensors"):
            ours, theirs = (load_file(cli.checkpoints(run)[last] / file) for run in (run_dir, plain))
            self.assertEqual(sorted(ours), sorted(theirs))
            for name in ours:
                difference = numpy.abs(numpy.asarray(ours[name], float) - numpy.asarray(theirs[name], float)).max()
                self.assertLessEqual(difference, 1e-8 * max(1e-3, numpy.abs(theirs[name]).max()), name)

    def assert_same_bits(self, run_dir, whole):
        """Records, weights and optimizer."""
        for name in ("step", "loss", "samples", "lr", "gradient_norm", "top1"):
            self.assertEqual(cli.column(run_dir, name), cli.column(whole, name), name)
        last = cli.column(whole, "step")[-1]
        for file in ("model.safetensors", "optimizer.safetensors"):
            ours, theirs = (load_file(cli.checkpoints(run)[last] / file) for run in (run_dir, whole))
            self.assertEqual(sorted(ours), sorted(theirs))
            for name, tensor in ours.items():
                self.assertTrue(numpy.array_equal(tensor, theirs[name]), name)

    def assert_records_add_up(self, run_dir):
        """Every update has its pushes, and each push counts once."""
        pushes = {}
        for push in cli.events(run_dir, "push"):
            pushes.setdefault(push["step"], []).append(push)
        steps = cli.events(run_dir, "step")
        self.assertEqual(sorted(pushes), [step["step"] for step in steps])
        for step in steps:
            self.assertEqual(step["samples"], sum(push["examples"] for push in pushes[step["step"]]))
        keys = [(push["worker"], push["life"], push["sequence"]) for of in pushes.values() for push in of]
        self.assertEqual(len(keys), len(set(keys)))
        # Of the epochs that are over each sample is in the weights once: the last checkpoint's own account.
        saved = json.loads((max(cli.checkpoints(run_dir).items())[1] / "state.json").read_text())["server"]
        pushed = sum(epoch["pushed"] for epoch in saved["data"]["epochs"])
        self.assertEqual(saved["data"]["first_epoch"] * SAMPLES + pushed, saved["examples"])
        self.assertEqual(saved["examples"], sum(step["samples"] for step in steps))
