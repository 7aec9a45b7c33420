"""Short runs of single plans on two CPU devices, for the benchmarks of predictions."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
import sluice_cli as cli  # noqa: E402

WARM_UP = 3  # steps
MODELS = {
    "resnet18": {"model": {"name": "resnet18"}, "train": {"global_batch": 32}},
    "vgg16": {"model": {"name": "vgg16", "image_size": 32}, "train": {"global_batch": 16}},
    "vit": {"model": {"name": "vit", "size": "tiny", "image_size": 32, "patch_size": 4}, "train": {"global_batch": 32}},
    "gpt2": {"model": {"name": "gpt2", "size": "tiny", "vocabulary": 256, "context": 128},
             "data": {"name": "text"}, "train": {"global_batch": 16}},
}
PARTS = {"compute": ("forward_ms", "backward_ms"), "all-reduce": ("allreduce_exposed_ms",), "optimizer": ("optimizer_ms",),
         "load": ("load_ms",)}


def add_arguments(parser):
    parser.add_argument("--steps", type=int, default=8, help=f"timed steps of a run, after {WARM_UP} others")
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def add_model_arguments(parser):
    """Of those that configuration() makes."""
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--text", type=pathlib.Path, help="the file that gpt2 reads")


def text_file(asked):
    found = (asked.text or pathlib.Path(__file__).resolve().parent.parent.parent / "shared/data/tinyshakespeare").resolve()
    return max(found.iterdir(), key=lambda file: file.stat().st_size) if found.is_dir() else found


def sets(values):
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def sets_of(plan, partition=None):
    """Of stages, replicas, chunks and schedule. partition: the cut; else the run chooses one."""
    stages, replicas, chunks, schedule = plan
    values = {"pipeline.stages": stages, "replicas.local": replicas, "pipeline.chunks": chunks, "pipeline.schedule": schedule}
    if partition:
        values["pipeline.partition"] = partition
    return sets(values)


def two_stage_plans(chunks, schedules=("gpipe", "1f1b", "zb-h1", "interleaved")):
    """Of those that there are: some schedules need several micro-batches."""
    return [(2, 1, count, schedule) for count in chunks for schedule in schedules
            if not (schedule == "interleaved" and count % 2) and not (schedule == "zb-h1" and count < 2)]


def partition_of(prediction):
    return prediction["plan"]["partition"]


def configuration(folder, model, asked):
    tables = json.loads(json.dumps(MODELS[model]))
    tables.setdefault("data", {"name": "shapes"})
    tables["data"] |= {"workers": 1, **({"path": str(text_file(asked))} if tables["data"]["name"] == "text" else {})}
    tables["train"] |= {"steps": asked.steps + WARM_UP, "eval_every_steps": 10**9, "eval_limit": 1, "optimizer": "momentum",
                        "lr": 1e-4, "precision": asked.precision}
    tables["device"] = {"list": "cpu", "threads": 1}
    tables["checkpoint"] = {"keep": 1}
    tables["log"] = {"tensorboard": False}
    return cli.write_config(folder / f"{model}.toml", **tables)


def sluice(*words):
    done = subprocess.run([cli.BINARY, "--quiet", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"sluice {' '.join(map(str, words))}\n{done.stderr}")
    return done.stdout


class Run:
    """Seconds: medians over the timed steps; bytes: of the device that held most."""

    def __init__(self, records):
        steps = [record for record in records if record["event"] == "step"][WARM_UP:]
        (summary,) = [record for record in records if record["event"] == "summary"]
        self.seconds = statistics.median(step["step_ms"] for step in steps) / 1e3
        self.parts = {part: statistics.median(sum(step[key] for key in keys) for step in steps) / 1e3
                      for part, keys in PARTS.items()}
        self.stages_error = summary["predicted"].get("stages_error")  # of the steps, by what the stages really took
        self.peak = max(size for name, size in summary["peak_memory_bytes"].items() if ":" in name)


def run_plan(folder, config, sets):
    with tempfile.TemporaryDirectory(dir=folder) as run_dir:
        sluice("train", config, "--run-dir", pathlib.Path(run_dir) / "run", *sets)
        lines = (pathlib.Path(run_dir) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return Run([json.loads(line) for line in lines])
