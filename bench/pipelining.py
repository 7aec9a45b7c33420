"""Ours beside torch.distributed.pipelining: schedule efficiency, samples/s, and what an action costs.

    bench/pipelining.py [--models resnet18 vit] [--schedules 1f1b gpipe] [--chunks 4 8 16] [--rounds 5] [--steps 2]
                        [--batch 64] [--partition 5,5] [--trial-chunks 8] [--no-compile] [--no-overhead] [--patience 600]
                        [--json FILE]

Two stages of one thread each: ours as two threads of one process, the peer (bench/peer_pipelining.py) as two processes
over Gloo. Images of 32x32, --batch samples a step. All sides of a configuration take turns; medians over the rounds,
ratios are medians of the rounds' ratios. With --patience, measurements in which other programs used more than a tenth
of a core are repeated at a quieter moment, for so many seconds in all; "others" is what they used, in cores, in the
median measurement of what was kept.

Efficiency is bound / pass, both of the same steps of the same side: the pass is the time from the first action's start
to the last one's end, the bound is sum(T) + (m - 1) max(T), where T is the mean time that a stage computes for one of
the m micro-batches, forward (with the loss) and backward. It depends on the schedule's order too: two stages of unequal
times can be better than the bound (while the first one waits for its first gradient, it has other forwards to do), and
gpipe is worse where one stage is the slower one forward and the other backward. So "execution" stands beside it: the
pass that `sluice schedule` computes from the same mean times, over the pass; what is missing to 1 is handing over,
waking, beginning, and times that vary.

The peer runs eager and with its stages through torch.compile, each contiguous and in channels_last; it has our malloc
settings. Cuts: `same` is ours and the peer's, --partition or the one that Sluice measures for itself; `even` is the peer's
by number of layers, as one cuts without measuring; `best` is the fastest of these and of those one layer to either side,
found for each model, schedule and memory format by a trial of the eager peer with --trial-chunks. "x same" compares
samples/s with the eager peer's faster format at `same`; "x default" with `even`, eager and contiguous; "x best" with the
fastest of all, compiled ones included.

An action is one forward or one backward of a stage. Its cost is measured on an mlp whose layers are next to nothing
(48 inputs, one sample a micro-batch, 64 chunks), in microseconds:

  pass      pass / (2 m): all that an action costs, with the few products and autograd's own work
  compute   max(T) / 2: the part of it in the slower stage's layers, loss and autograd
  between   (pass - bound) / (2 m): the rest, to hand over, to wake the other stage and to begin
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import sides

STAGES = 2
LAYOUTS = ("contiguous", "channels_last")
TRIAL_ROUNDS = 3
TINY = {"model": "mlp", "chunks": 64, "batch": 64, "words": ["--image-size", 4], "cut": [2, 1]}


def stage_ms(result):
    """T of each stage."""
    return [forward + backward for forward, backward in zip(result["forward_ms"], result["backward_ms"])]


def bound_ms(result):
    return sum(stage_ms(result)) + (result["chunks"] - 1) * max(stage_ms(result))


def efficiencies(side):
    return [bound_ms(result) / result["pass_ms"] for result in side.results]


def execution(side):
    """The pass that the order of the schedule itself would take with this side's median times, over the median pass."""
    def times(kind):
        return ",".join(str(statistics.median(of_stage)) for of_stage in zip(*side.values(kind)))

    result = side.results[0]
    simulated = subprocess.run(
        [sides.SLUICE, "schedule", result["schedule"], "--stages", str(STAGES), "--chunks", str(result["chunks"]),
         "--forward", times("forward_ms"), "--backward", times("backward_ms"), "--json"],
        check=True, capture_output=True, text=True)
    return json.loads(simulated.stdout)["makespan"] / side.median("pass_ms")


def even_cut(layers):
    return [layers // STAGES + (stage < layers % STAGES) for stage in range(STAGES)]


def text_of(cut):
    return ",".join(map(str, cut))


def ours(words, cut):
    """cut: None = measured."""
    where = ["--measured-cut"] if cut is None else ["--partition", text_of(cut)]
    return [sides.OURS, *words, "--stages", STAGES, "--threads", STAGES, *where]


def peer(words, cut, layout, compiled=False):
    return [sys.executable, sides.PIPELINING_PEER, *words, "--partition", text_of(cut), "--layout", layout,
            *(["--compile"] if compiled else [])]


def median_ratio(side, other, key="samples_per_s"):
    return statistics.median(a / b for a, b in zip(side.values(key), other.values(key)))


def best(opened, names):
    return sides.fastest({name: opened[name] for name in names})


def others_median(all_sides):
    return statistics.median(cores for side in all_sides for cores in side.values("others"))


def words_of(model, schedule, chunks, batch, steps):
    return [model, "--size", "tiny", "--schedule", schedule, "--chunks", chunks, "--batch", batch, "--steps", steps]


def with_neighbours(cuts):
    """Each cut and those one layer to either side, once."""
    moved = [(first + by, second - by) for first, second in cuts for by in (-1, 0, 1)]
    return sorted({cut for cut in moved if min(cut) > 0})


def best_cuts(model, schedule, args):
    """{layout: the eager peer's fastest cut} with --trial-chunks."""
    words = words_of(model, schedule, args.trial_chunks, args.batch, args.steps)
    with sides.Side(ours(words, args.partition)) as own:
        cut = own.measure()["partition"]
    tried = with_neighbours([cut, even_cut(sum(cut))])
    found = {}
    for layout in LAYOUTS:
        commands = {one: peer(words, one, layout) for one in tried}
        with sides.open_all(commands, dict.fromkeys(commands, STAGES)) as opened:
            sides.warm_up(opened.values())
            sides.take_turns(opened.values(), TRIAL_ROUNDS, args.until)
        found[layout] = list(sides.fastest(opened))
        rates = ", ".join(f"{text_of(one)}: {side.median('samples_per_s'):.1f}" for one, side in opened.items())
        print(f"\n{model} {schedule}, trial of the peer's cuts, {layout}: {rates} samples/s", flush=True)
    return found


def peers_of(words, cut, even, found, args):
    """{cut and form: command}; `even` and `best` only where they differ from `same`."""
    peers = {f"same {layout}": peer(words, cut, layout) for layout in LAYOUTS}
    if even != cut:
        peers["even contiguous"] = peer(words, even, "contiguous")
    peers |= {f"best {layout}": peer(words, found[layout], layout) for layout in LAYOUTS if found[layout] != cut}
    if args.compile:
        peers |= {f"best compiled {layout}": peer(words, found[layout], layout, compiled=True) for layout in LAYOUTS}
    return peers


def compare(model, schedule, chunks, found, args):
    words = words_of(model, schedule, chunks, args.batch, args.steps)
    with sides.Side(ours(words, args.partition)) as own:
        cut = own.measure()["partition"]
        own.results.clear()  # it was the first
        even = even_cut(sum(cut))
        peers = peers_of(words, cut, even, found, args)
        with sides.open_all(peers, dict.fromkeys(peers, STAGES)) as opened:
            sides.warm_up(opened.values())
            sides.take_turns([own, *opened.values()], args.rounds, args.until)
    default = opened.get("even contiguous", opened["same contiguous"])
    fast_same = best(opened, [name for name in opened if name.startswith("same ")])
    fastest = best(opened, opened)
    return {
        "model": model,
        "schedule": schedule,
        "chunks": chunks,
        "same": cut,
        "even": even,
        "peer_best_cuts": found,
        "efficiency": statistics.median(efficiencies(own)),
        "execution": execution(own),
        "peer_efficiency": {name: statistics.median(efficiencies(side)) for name, side in opened.items()},
        "peer_execution": {name: execution(side) for name, side in opened.items()},
        "samples_per_s": own.median("samples_per_s"),
        "peer_samples_per_s": {name: side.median("samples_per_s") for name, side in opened.items()},
        "x_same": median_ratio(own, opened[fast_same]),
        "x_default": median_ratio(own, default),
        "x_best": median_ratio(own, opened[fastest]),
        "best": fastest,
        "others": others_median([own, *opened.values()]),
        "results": {"ours": own.results} | {name: side.results for name, side in opened.items()},
    }


def overhead(schedule, args):
    words = words_of(TINY["model"], schedule, TINY["chunks"], TINY["batch"], 10 * args.steps) + TINY["words"]
    commands = {"ours": ours(words, TINY["cut"]), "torch": peer(words, TINY["cut"], "contiguous")}
    with sides.open_all(commands, {"torch": STAGES}) as opened:
        sides.warm_up(opened.values())
        sides.take_turns(opened.values(), args.rounds, args.until)
    return [{"schedule": schedule, "side": name, "others": others_median([side])} | action_us(side.results)
            for name, side in opened.items()]


def action_us(results):
    def median(of_result):
        return statistics.median(1e3 * of_result(result) for result in results)

    return {
        "pass_us": median(lambda result: result["pass_ms"] / (2 * result["chunks"])),
        "compute_us": median(lambda result: max(stage_ms(result)) / 2),
        "between_us": median(lambda result: (result["pass_ms"] - bound_ms(result)) / (2 * result["chunks"])),
    }


def print_compared(row):
    cut = text_of(row["same"])
    print(f"\n{row['model']} {row['schedule']} {row['chunks']} chunks, cut {cut}: x same {row['x_same']:.2f}, "
          f"x default {row['x_default']:.2f}, x best {row['x_best']:.2f} ({row['best']}); others {row['others']:.2f} cores")
    print(f"  {'':26} {'efficiency':>10} {'execution':>10} {'samples/s':>10}")
    print(f"  {'ours':26} {row['efficiency']:10.3f} {row['execution']:10.3f} {row['samples_per_s']:10.1f}")
    for name, rate in row["peer_samples_per_s"].items():
        print(f"  {name:26} {row['peer_efficiency'][name]:10.3f} {row['peer_execution'][name]:10.3f} {rate:10.1f}")
    sys.stdout.flush()


def print_overhead(rows):
    print(f"\n{'us an action':14} {'side':6} {'pass':>8} {'compute':>8} {'between':>8} {'others':>8}")
    for row in rows:
        print(f"{row['schedule']:14} {row['side']:6} {row['pass_us']:8.1f} {row['compute_us']:8.1f} "
              f"{row['between_us']:8.1f} {row['others']:8.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["resnet18", "vit"], choices=["resnet8", "resnet18", "vit"])
    parser.add_argument("--schedules", nargs="+", default=["1f1b", "gpipe"], choices=["1f1b", "gpipe"])
    parser.add_argument("--chunks", nargs="+", type=int, default=[4, 8, 16])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--partition", type=lambda text: [int(word) for word in text.split(",")],
                        help="layers of each stage; default: measured")
    parser.add_argument("--trial-chunks", type=int, default=8, help="chunks of the trial that finds the peer's best cuts")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--no-overhead", action="store_true")
    parser.add_argument("--patience", type=float, default=0, help="seconds to wait for a quiet machine, in all")
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows, with every measurement, here")
    args = parser.parse_args()
    sides.prepare()
    sides.prepare(sides.SLUICE)
    args.until = time.monotonic() + args.patience
    if args.compile and (missing := sides.compiler_is_missing()):
        print(f"torch.compile is left out: {missing}")
        args.compile = False
    compared = []
    for model in args.models:
        for schedule in args.schedules:
            found = best_cuts(model, schedule, args)
            for chunks in args.chunks:
                compared.append(compare(model, schedule, chunks, found, args))
                print_compared(compared[-1])
    actions = [] if args.no_overhead else [row for schedule in args.schedules for row in overhead(schedule, args)]
    if actions:
        print_overhead(actions)
    if args.json:
        args.json.write_text(json.dumps({"compared": compared, "overhead": actions}, indent=2) + "\n")


if __name__ == "__main__":
    main()
