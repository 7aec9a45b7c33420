"""Ours beside PyTorch: samples/s of a training step, both sides alternating in one run; medians and a ratio.

    bench/compare.py [--rounds 9] [--steps 20] [--threads 2] [--batch N] [--models resnet8 vit]
                     [--cases single stages replicas processes] [--precision fp32|bf16]
                     [--winograd 2x2|4x4|none] [--schedule 1f1b] [--chunks 4] [--tokens 128] [--padded] [--json FILE]
                     [--pt2 FILE [--adamw]]

Models: resnet8, vit and, when named, resnet18 (about 1.5 s a step), bert and llama. Cases, --threads threads in all,
--batch samples in all: `single` = one device with all threads, `stages` = 2 stages in the cut that `sluice train` would
choose, with --schedule and --chunks, `replicas` = 2 local replicas, `processes` = 2 processes of one device. The peer
is PyTorch of the same version with as many threads, in one process, for `processes` as DistributedDataParallel over
Gloo: eager and through torch.compile; with --precision bf16 under torch.autocast. The fastest counts. All have a fused
optimizer, our malloc settings, and each the GOMP_SPINCOUNT that a trial found best for it (the column `spin`;
--no-spin-trial: ours for all).

Images are 64 of 32x32; the peers also run in channels_last. All sides do the same work (vit's last block computes the
class token alone). --winograd is ours alone (`train.winograd`): 4x4 rounds more coarsely than what the peer does
(docs/results/performance.md).

Texts are 16 of --tokens tokens (peer_text.py has the models; the peer is transformers' with SDPA); --padded: with 1/4
of the tokens or more. All sides start from the same weights, and their first losses are compared before the timings.
Ours computes the logits of tokens with a target (bert: 15 %), transformers those of all.

--pt2: a model of scripts/export_model.py (16 samples), beside the module that it was made of.

Needs build/release with the benchmarks (scripts/test.sh) and the project's .venv; for torch.compile also g++ and
Python's headers. On a busy machine look at the ratio of processor time too.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import sides

CASES = {
    "single": ["--stages", "1", "--replicas", "1", "--chunks", "1"],
    "stages": ["--stages", "2", "--replicas", "1", "--measured-cut"],
    "replicas": ["--stages", "1", "--replicas", "2", "--chunks", "1"],
    "processes": ["--stages", "1", "--replicas", "1", "--chunks", "1"],
}
PEERS = {"torch": []}
IMAGE_PEERS = {"torch channels_last": ["--layout", "channels_last"]}
RANKS = 2  # of the case `processes`
TEXTS = ("bert", "llama")
SAME_LOSS = {"fp32": 1e-5, "bf16": 2e-3}  # relative difference of the first losses


def commands(model, cases, args, ranks, start):
    of_model = ["--start", start] if has_start(model, args) else ["--size", "tiny"]
    if args.pt2:
        of_model += ["--file", args.pt2, *(["--adamw"] if args.adamw else [])]
    common = [model, *of_model, "--batch", batch_of(model, args), "--threads", max(args.threads // ranks, 1), "--steps",
              args.steps, "--precision", args.precision]
    name = "{}" if ranks == 1 else "DDP {}"
    of_peer = PEERS if model in TEXTS or args.adamw else PEERS | IMAGE_PEERS
    if args.compile:
        of_peer = of_peer | {form.replace("torch", "compile"): ["--compile", *words] for form, words in of_peer.items()}
    peers = {name.format(form): [sys.executable, sides.PEER, *common, "--optimizer", "fused", *extra]
             for form, extra in of_peer.items()}
    ours = [sides.OURS, *common, "--winograd", args.winograd]
    of_stages = ["--chunks", args.chunks, "--schedule", args.schedule]
    return peers, {case: [*ours, *CASES[case], *(of_stages if case == "stages" else [])] for case in cases}


def batch_of(model, args):
    return args.batch or (16 if has_start(model, args) else 64)


def has_start(model, args):
    return model in TEXTS or args.pt2


def write_start(model, args, folder):
    """Weights and batch of a text model, for all sides."""
    words = [folder, args.pt2 or model, "--batch", batch_of(model, args), "--tokens", args.tokens, *["--padded"] * args.padded]
    program = "peer_pt2.py" if args.pt2 else "peer_text.py"
    subprocess.run([sys.executable, sides.BENCH / program, *map(str, words)], check=True)


def check_losses(answers, precision, count):
    """All sides have the same first `count` losses."""
    losses = {name: answer["first_losses"][:count] for name, answer in answers.items()}
    peer, *others = losses
    for name, own in losses.items():
        print(f"first losses of {name}: {' '.join(f'{loss:.5f}' for loss in own)}", flush=True)
    for name in others:
        pairs = zip(losses[peer], losses[name], strict=True)
        if not all(math.isclose(*pair, rel_tol=SAME_LOSS[precision]) for pair in pairs):
            sides.fail(f"{name} does not compute what {peer} does: their first losses differ")


def compare(model, cases, args, ranks, start):
    peers, ours = commands(model, cases, args, ranks, start)
    has_teams = args.threads // ranks > 1
    spins = {name: sides.best_spin(command) for name, command in peers.items()} if has_teams and args.spin_trial else {}
    with sides.open_all(peers | ours, dict.fromkeys(peers | ours, ranks), spins) as opened:
        answers = sides.warm_up(opened.values())
        if has_start(model, args):
            # Few samples in batch norms make later losses of the same model differ by rounding.
            count = 1 if args.pt2 and not args.adamw else 3
            by_side = dict(zip(opened, answers, strict=True))
            if count == 1:
                by_side.pop("stages", None)  # batch norms normalise its micro-batches
            check_losses(by_side, args.precision, count)
        sides.take_turns(opened.values(), args.rounds, args.until)
    return rows_of(model, opened, peers, spins, args)


def rows_of(model, opened, peers, spins, args):
    best_peer = sides.fastest({name: opened[name] for name in peers})
    rows = []
    for name, side in opened.items():
        rates = side.values("samples_per_s")
        rows.append(
            {
                "model": model,
                "threads": args.threads,
                "precision": args.precision,
                "side": name,
                "spin": spins.get(name, sides.OUR_SPIN),
                "samples_per_s": statistics.median(rates),
                "min": min(rates),
                "max": max(rates),
                "cpu_ms": side.median("cpu_ms"),
                "ratio": statistics.median(rates) / opened[best_peer].median("samples_per_s"),
                "cpu_ratio": opened[best_peer].median("cpu_ms") / side.median("cpu_ms"),
                "best_peer": best_peer,
                "others": side.median("others"),
            }
        )
    return rows


def print_rows(rows):
    for row in rows:
        print(
            f"{row['model']:8} {row['side']:25} {row['spin']:>8} {row['samples_per_s']:10.1f} {row['min']:9.1f} "
            f"{row['max']:9.1f} {row['ratio']:8.2f} {row['cpu_ms']:8.2f} {row['cpu_ratio']:8.2f} {row['others']:7.2f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, help="default: 64 images or 16 texts")
    parser.add_argument("--models", nargs="+", default=["resnet8", "vit"], choices=["resnet8", "resnet18", "vit", *TEXTS])
    parser.add_argument("--pt2", type=pathlib.Path, metavar="FILE", help="an exported model beside its module, in place of --models")
    parser.add_argument("--adamw", action="store_true", help="train it with AdamW; without channels_last")
    parser.add_argument("--tokens", type=int, default=128, help="of a text")
    parser.add_argument("--padded", action="store_true", help="texts of different lengths")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--winograd", choices=["2x2", "4x4", "none"], default="2x2")
    parser.add_argument("--schedule", default="1f1b", help="of the case stages")
    parser.add_argument("--chunks", type=int, default=4, help="of the case stages")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--no-spin-trial", dest="spin_trial", action="store_false")
    parser.add_argument("--patience", type=float, default=0, help="seconds to wait for a quiet machine, in all")
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows here")
    args = parser.parse_args()
    if args.padded and not set(args.models) <= set(TEXTS):
        parser.error("--padded is for --models bert llama")
    if args.adamw and not args.pt2:
        parser.error("--adamw is for --pt2")
    sides.prepare()
    if args.pt2:
        args.models = ["pt2"]
    args.until = time.monotonic() + args.patience
    missing = sides.compiler_is_missing()
    if args.compile and missing:
        print(f"torch.compile is left out: {missing}")
        args.compile = False
    rows = []
    print(f"{'model':8} {'side':25} {'spin':>8} {'samples/s':>10} {'min':>9} {'max':>9} {'x torch':>8} {'cpu ms':>8} "
          f"{'x torch':>8} {'others':>7}", flush=True)
    local = [case for case in args.cases if case != "processes"]
    distributed = [case for case in args.cases if case == "processes"]
    for model in args.models:
        with tempfile.TemporaryDirectory() as start:
            if has_start(model, args):
                write_start(model, args, start)
            for cases, ranks in ((local, 1), (distributed, RANKS)):
                of_model = compare(model, cases, args, ranks, start) if cases else []
                print_rows(of_model)
                rows += of_model
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
