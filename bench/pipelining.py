"""Ours beside torch.distributed.pipelining: schedule efficiency, samples/s, and what an action costs.

    bench/pipelining.py [--models resnet18 vit] [--schedules 1f1b gpipe] [--chunks 4 8 16] [--rounds 5] [--steps 2]
                        [--batch 64] [--partition 5,5] [--no-overhead] [--patience 600] [--json FILE]

Two stages of one thread each: ours as two threads of one process, the peer (bench/peer_pipelining.py) as two processes
over Gloo. Images of 32x32, --batch samples a step. All sides of a configuration take turns; medians over the rounds,
ratios are medians of the rounds' ratios. With --patience, measurements in which other programs used more than a tenth
of a core are repeated at a quieter moment, for so many seconds in all; "others" is what they used, in cores, in the
median measurement of what was kept.

Efficiency is bound / pass, both of the same steps of the same side: the pass is the time from the first action's start
to the last one's end, the bound is sum(T) + (m - 1) max(T), where T is the mean time that a stage computes for one of
the m micro-batches, forward (with the loss) and backward. Two stages of unequal times can be better than that: while
the first one waits for its first gradient, it has other forwards to do.

Cuts: `same` is ours and the peer's, --partition or the one that Sluice measures for itself; `even` is the peer's by
number of layers, as one cuts without measuring. "x same" compares samples/s with the peer's faster memory format at
`same`; "x default" with `even` in PyTorch's default format; "x best" with the fastest of all four.

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
import sys
import time

import sides

STAGES = 2
LAYOUTS = ("contiguous", "channels_last")
TINY = {"model": "mlp", "chunks": 64, "batch": 64, "words": ["--image-size", 4], "cut": [2, 1]}


def bound_ms(result):
    return sum(result["stage_ms"]) + (result["chunks"] - 1) * max(result["stage_ms"])


def efficiencies(side):
    return [bound_ms(result) / result["pass_ms"] for result in side.results]


def even_cut(layers):
    return [layers // STAGES + (stage < layers % STAGES) for stage in range(STAGES)]


def text_of(cut):
    return ",".join(map(str, cut))


def ours(words, cut):
    """cut: None = measured."""
    where = ["--measured-cut"] if cut is None else ["--partition", text_of(cut)]
    return [sides.OURS, *words, "--stages", STAGES, "--threads", STAGES, *where]


def peer(words, cut, layout):
    return [sys.executable, sides.PIPELINING_PEER, *words, "--partition", text_of(cut), "--layout", layout]


def median_ratio(side, other, key="samples_per_s"):
    return statistics.median(a / b for a, b in zip(side.values(key), other.values(key)))


def best(opened, names):
    return max(names, key=lambda name: opened[name].median("samples_per_s"))


def others_median(all_sides):
    return statistics.median(cores for side in all_sides for cores in side.values("others"))


def words_of(model, schedule, chunks, batch, steps):
    return [model, "--size", "tiny", "--schedule", schedule, "--chunks", chunks, "--batch", batch, "--steps", steps]


def compare(model, schedule, chunks, args):
    words = words_of(model, schedule, chunks, args.batch, args.steps)
    with sides.Side(ours(words, args.partition)) as own:
        cut = own.measure()["partition"]
        own.results.clear()  # it was the first
        even = even_cut(sum(cut))
        same_peers = {f"same {layout}": peer(words, cut, layout) for layout in LAYOUTS}
        even_peers = {f"even {layout}": peer(words, even, layout) for layout in LAYOUTS}
        peers = same_peers if cut == even else same_peers | even_peers
        with sides.open_all(peers, dict.fromkeys(peers, STAGES)) as opened:
            sides.warm_up(opened.values())
            sides.take_turns([own, *opened.values()], args.rounds, args.until)
    default = opened.get("even contiguous", opened["same contiguous"])
    fast_same = best(opened, same_peers)
    fastest = best(opened, opened)
    return {
        "model": model,
        "schedule": schedule,
        "chunks": chunks,
        "same": cut,
        "even": even,
        "efficiency": statistics.median(efficiencies(own)),
        "peer_efficiency": {name: statistics.median(efficiencies(side)) for name, side in opened.items()},
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
    commands = {"ours": ours(words, TINY["cut"]), "torch": peer(words, TINY["cut"], LAYOUTS[0])}
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
        "compute_us": median(lambda result: max(result["stage_ms"]) / 2),
        "between_us": median(lambda result: (result["pass_ms"] - bound_ms(result)) / (2 * result["chunks"])),
    }


COMPARED = ("{:9} {:6} {:>6} {:>6}   {:>6} {:>6} {:>6}   {:>7} {:>7} {:>7} {:>7} {:>7}   {:>6} {:>9} {:>6} {:>6}")


def print_head():
    print("{:31} {:22}   {:39}".format("", "efficiency", "samples/s"))
    print(COMPARED.format("model", "sched", "chunks", "cut", "ours", "same", "same", "ours", "same", "same", "even",
                          "even", "x same", "x default", "x best", "others"))
    print(COMPARED.format("", "", "", "", "", "contig", "chlast", "", "contig", "chlast", "contig", "chlast", "", "",
                          "", "cores"), flush=True)


def print_compared(row):
    rates, efficiency = row["peer_samples_per_s"], row["peer_efficiency"]
    of_even = [f"{rates[f'even {layout}']:.1f}" if f"even {layout}" in rates else "=" for layout in LAYOUTS]
    print(COMPARED.format(
        row["model"], row["schedule"], row["chunks"], text_of(row["same"]), f"{row['efficiency']:.3f}",
        *(f"{efficiency[f'same {layout}']:.3f}" for layout in LAYOUTS), f"{row['samples_per_s']:.1f}",
        *(f"{rates[f'same {layout}']:.1f}" for layout in LAYOUTS), *of_even, f"{row['x_same']:.2f}",
        f"{row['x_default']:.2f}", f"{row['x_best']:.2f}", f"{row['others']:.2f}"), flush=True)


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
    parser.add_argument("--no-overhead", action="store_true")
    parser.add_argument("--patience", type=float, default=0, help="seconds to wait for a quiet machine, in all")
    parser.add_argument("--json", type=pathlib.Path, help="also write the rows, with every measurement, here")
    args = parser.parse_args()
    sides.prepare()
    args.until = time.monotonic() + args.patience
    compared = []
    if args.models:
        print_head()
    for model in args.models:
        for schedule in args.schedules:
            for chunks in args.chunks:
                compared.append(compare(model, schedule, chunks, args))
                print_compared(compared[-1])
    actions = [] if args.no_overhead else [row for schedule in args.schedules for row in overhead(schedule, args)]
    if actions:
        print_overhead(actions)
    if args.json:
        args.json.write_text(json.dumps({"compared": compared, "overhead": actions}, indent=2) + "\n")


if __name__ == "__main__":
    main()
