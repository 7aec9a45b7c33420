#!/usr/bin/env python3
"""Does the predicted step move as the real one does? A link that is half as fast, and a loader with far more work.

    planted.py [--rates 200mbit 100mbit] [--steps S]

Link: two hosts (network namespaces), a process of one thread on each: `sluice profile` measures layers, links and some
steps, and predicts these (their compute is calibrated by the same steps: it is the link that is predicted). Loader: a run
on one device, without and with many changes of each image; the layers' costs are those without.
Prints predicted and measured steps and how far each has moved. SLUICE_BINARY names the binary; root, ip and tc for the hosts.
A layer that is 30 % slower is planted in tests/train/planted_prediction_test.cpp.
"""

import argparse
import json
import pathlib
import sys
import tempfile

from plan_runs import add_arguments, cli, run_plan, sluice
import hosts  # plan_runs says where it is

NETWORK = {"model": {"name": "resnet18"}, "train": {"global_batch": 32}}
CHANGES = {"rand_augment": 16, "hue": 0.3, "saturation": 0.5}
LOADER = {"model": {"name": "mlp", "image_size": 64}, "train": {"global_batch": 32}}  # whose steps wait for the batch


def configuration(folder, name, tables, steps, **data):
    tables = json.loads(json.dumps(tables))
    tables["data"] = {"name": "shapes", "workers": 1, **data}
    tables["train"] |= {"steps": steps, "eval_every_steps": 10**9, "eval_limit": 1, "lr": 1e-4}
    tables |= {"device": {"list": "cpu", "threads": 1}, "profile": {"steps": steps}, "pipeline": {"cost_cache": "off"}}
    return cli.write_config(folder / f"{name}.toml", **tables)


def on_two_hosts(folder, rate, steps):
    config = configuration(folder, rate, NETWORK, steps)
    with hosts.Hosts(rate) as pair:
        ranks = [pair.start(i, "--quiet", "profile", config, "--out", folder / f"{rate}.json", "--json", cwd=folder) for i in (0, 1)]
        outputs = [rank.communicate(timeout=600) for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(outputs[0][1] + outputs[1][1])
    step = json.loads(outputs[0][0])["step"]
    return step["predicted_s"], step["median_without_load_s"]


def with_a_loader(folder, changes, steps):
    """The layers are those of the profile without changes of images: only the loader's seconds are measured again."""
    profiles = []
    for name, data in (("plain", {}), ("own", changes)):
        config = configuration(folder, name, LOADER, steps, **data)
        profiles.append(folder / f"{name}.json")
        sluice("profile", config, "--out", profiles[-1])
    plain, own = (json.loads(file.read_text(encoding="utf-8")) for file in profiles)
    plain |= {"load": own["load"], "load_of": own["load_of"]}
    (folder / "swapped.json").write_text(json.dumps(plain), encoding="utf-8")
    predicted = json.loads(sluice("simulate", config, "--profile", folder / "swapped.json", "--json"))["step_s"]
    return predicted, run_plan(folder, config, []).seconds


def tell(what, before, after):
    for name, (predicted, measured) in (("before", before), ("planted", after)):
        print(f"{what}, {name}: predicted {predicted * 1e3:.1f} ms, measured {measured * 1e3:.1f} ms ({predicted / measured - 1:+.1%})")
    print(f"{what}: predicted to take {after[0] / before[0]:.3f} times as long, takes {after[1] / before[1]:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", nargs=2, default=["200mbit", "100mbit"])
    add_arguments(parser)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        tell("loader", *(with_a_loader(folder, changes, asked.steps) for changes in ({}, CHANGES)))
        if why := hosts.missing():
            print(f"link: not tried: {why}")
        else:
            tell("link", *(on_two_hosts(folder, rate, asked.steps) for rate in asked.rates))
    return 0


if __name__ == "__main__":
    sys.exit(main())
