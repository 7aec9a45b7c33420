"""The price of a setting: steps with and without train.reproducible = "layout", or replicas.elastic, in turns.

    bench/price.py [--setting reproducible|elastic] [--models resnet18 vit gpt2] [--layouts pipeline processes2 processes4 hosts]
                   [--rounds 5] [--steps 12] [--json FILE]

Both sides are `sluice train` with the same configuration, micro-batches and threads; they alternate, and each row is the
median of the runs' median step times, without each run's first three steps. `hosts`: two network namespaces with 1 Gbit/s
between them, which need root, ip and tc. Worst rows first.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import sides

sys.path.insert(0, str(sides.ROOT / "tests" / "support"))
import hosts  # noqa: E402

MODELS = {  # tables; samples of a step and of a micro-batch
    "resnet18": ({"model": {"name": "resnet18"}, "data": {"name": "shapes", "samples": 2000}}, 64, 8),
    "vit": ({"model": {"name": "vit", "size": "tiny", "patch_size": 4}, "data": {"name": "shapes", "samples": 2000}}, 64, 8),
    "gpt2": ({"model": {"name": "gpt2"}, "data": {"name": "text"}}, 16, 2),
}
GPT2 = {"model_type": "gpt2", "n_layer": 6, "n_embd": 384, "n_head": 6, "n_positions": 128, "vocab_size": 8192}  # 14 million parameters
LAYOUTS = {  # processes, stages, replicas, hosts
    "pipeline": (1, 2, 2, False),
    "processes2": (2, 1, 1, False),
    "processes4": (4, 1, 1, False),
    "hosts": (2, 1, 1, True),
}
SETTINGS = {"reproducible": ("train", "reproducible", "off", "layout"), "elastic": ("replicas", "elastic", False, True)}
WARM_UP = 3


def words_of(model, layout, setting, value, steps, folder):
    tables, batch, micro_batch = MODELS[model]
    _, stages, replicas, _ = LAYOUTS[layout]
    tables = {name: dict(table) for name, table in tables.items()}
    if model == "gpt2":
        tables["data"]["path"] = str(folder / "text.txt")
        tables["model"]["config"] = str(folder / "gpt2.json")
    tables |= {"train": {"steps": steps, "global_batch": batch, "micro_batch": micro_batch,
                         "optimizer": "adamw", "eval_limit": 16},
               "pipeline": {"stages": stages}, "replicas": {"local": replicas}, "device": {"list": "cpu", "threads": 1},
               "log": {"tensorboard": False, "digest_every": 0}, "checkpoint": {"at_end": False}}
    table, key, *_ = SETTINGS[setting]
    tables[table][key] = value
    return [word for name, table in tables.items() for key, value in table.items() for word in ("--set", f"{name}.{key}={json.dumps(value)}")]


def run(model, layout, value, args, folder, network):
    processes = LAYOUTS[layout][0]
    config = folder / "empty.toml"
    config.write_text("", encoding="utf-8")
    where = pathlib.Path(tempfile.mkdtemp(dir=folder))
    started = []
    for rank, environment in enumerate(sides.environments(processes)):
        words = [sides.SLUICE, "train", config, *words_of(model, layout, args.setting, value, args.steps, folder), "--run-dir", where / f"rank{rank}", "--quiet"]
        if network:
            words, environment = network.command(rank, *words), network.environment(rank)
        started.append(subprocess.Popen([str(word) for word in words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    said = [process.communicate()[1] for process in started]
    if any(process.returncode for process in started):
        sides.fail(f"{model}, {layout}, {args.setting} = {value}: {said[0]}")
    lines = [json.loads(line) for line in (where / "rank0" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if line["event"] == "step"][WARM_UP:]
    return {name: statistics.median(line.get(name, 0) for line in steps)
            for name in ("step_ms", "forward_ms", "backward_ms", "allreduce_exposed_ms", "optimizer_ms", "idle_ms")}


def compare(model, layout, args, folder):
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(hosts.Hosts("1gbit")) if LAYOUTS[layout][3] else None
        taken = {"off": [], "on": []}
        for _ in range(args.rounds):
            for runs, value in zip(taken.values(), SETTINGS[args.setting][2:]):
                runs.append(run(model, layout, value, args, folder, network))
    medians = {mode: {name: statistics.median(one[name] for one in runs) for name in runs[0]} for mode, runs in taken.items()}
    ratios = [on["step_ms"] / off["step_ms"] for off, on in zip(taken["off"], taken["on"])]
    return {"model": model, "layout": layout, **medians, "ratio": medians["on"]["step_ms"] / medians["off"]["step_ms"], "ratios": [round(ratio, 3) for ratio in ratios]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", default="reproducible", choices=list(SETTINGS))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS), choices=list(LAYOUTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows here")
    args = parser.parse_args()
    sides.prepare(sides.SLUICE)
    if "hosts" in args.layouts and (why := hosts.missing()):
        sides.fail(why)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("To be, or not to be, that is the question. " * 4000, encoding="utf-8")
        (folder / "gpt2.json").write_text(json.dumps(GPT2), encoding="utf-8")
        for model in args.models:
            for layout in args.layouts:
                rows.append(compare(model, layout, args, folder))
                print(f"{model} {layout}: {rows[-1]['ratio']:.3f}", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: -row["ratio"])
    print(f"{'model':9} {'layout':11} {'off ms':>8} {'on ms':>8} {'on / off':>8}  {'backward':>9} {'exposed':>8} {'optimizer':>9}  of single rounds")
    for row in rows:
        more = [row["on"][name] - row["off"][name] for name in ("backward_ms", "allreduce_exposed_ms", "optimizer_ms")]
        print(f"{row['model']:9} {row['layout']:11} {row['off']['step_ms']:8.1f} {row['on']['step_ms']:8.1f} {row['ratio']:8.3f}  "
              f"{more[0]:+9.1f} {more[1]:+8.1f} {more[2]:+9.1f}  {row['ratios']}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
