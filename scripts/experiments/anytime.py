"""Anytime mini-batches against fixed ones on a parameter server whose workers are made to stall, in arms that take turns,
seed by seed:
  fmb   an update is made of a whole batch of every worker (--fmb-batch), so all wait for the slowest
  amb   workers stop after --time-limit seconds and push the slices that they had time for, of --amb-batch at most
  asp   as amb, and each push is an update by itself; has as many updates more as there are workers (not run by default)
By default the clock is virtual: ten workers as on the EC2 machines of the published runs, where 242 samples took 5.41 s
without a stall; a fixed batch takes that here, too, whatever its size. The limit and the stalls are theirs.
With --real the server and its workers are processes on this machine. A run without stalls says first what a batch takes in
slices; limit and stalls are then in the same proportion to it.
  --scale small   toy_cnn on the built-in shapes, 300 updates, batches a quarter of the published ones: about 5 minutes on two
                  cores (default)
  --scale full    toy_cnn on CIFAR-10 (--data DIR), the published batches, steps and thresholds, a GPU"""

import statistics

from . import anytime_report, arguments, runs, server_runs

summarise = anytime_report.summarise
markdown = anytime_report.markdown
figures = anytime_report.figures

PUBLISHED_BATCH_S = 5.41  # a fixed batch there: the slowest of ten took 9.44 s, of which the longest of ten stalls is 4.03 s
PUBLISHED_LIMIT_S = 6.2
SMALL = {
    "device": "cpu", "seeds": 3, "workers": 10, "steps": 300, "model": "toy_cnn", "fmb_batch": 64, "amb_batch": 96, "partitions": 16,
    "optimizer": "adam", "lr": 0.003, "thresholds": [50.0, 80.0, 90.0], "evaluations": 12,
}
FULL = {
    "device": "cuda", "seeds": 3, "workers": 10, "steps": 1712, "model": "toy_cnn", "fmb_batch": 242, "amb_batch": 352, "partitions": 16,
    "optimizer": "adam", "lr": 0.001, "thresholds": [50.0, 60.0, 65.0], "evaluations": 40,
}
SCALES = {"small": SMALL, "full": FULL}
REAL = {  # what differs with --real: a batch takes long beside messages
    "small": {"workers": 2, "steps": 200, "fmb_batch": 512, "amb_batch": 768, "thresholds": [50.0, 60.0, 70.0], "evaluations": 8},
    "full": {"workers": 4},
}
CALIBRATION_STEPS = 20
ARMS = ["fmb", "amb", "asp"]  # the first is what the others are compared with
COLUMNS = ["arm", "seed", "updates", "pushes", "total_s", "samples_mean", "samples_min", "samples_max", "compute_s", "staleness_mean", "staleness_max",
           "time_limit_s", "reached_s", "evaluated_s", "evaluated_top1", "top1", "loss"]
GROWS = ["seeds"]


def add_arguments(parser):
    parser.add_argument("--real", action="store_true", help="processes on this machine in place of virtual time")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["fmb", "amb"], help="default: fmb amb; the first is what others are compared with")
    parser.add_argument("--model", help="model.name; slices of few samples go ill with batch-norm")
    parser.add_argument("--optimizer", help="train.optimizer")
    parser.add_argument("--lr", type=float, help="train.lr")
    parser.add_argument("--decay-rate", type=arguments.share, default=1.0, metavar="X",
                        help="factor of the rate every --decay-steps updates, 0.93 in a published set (default: 1)")
    parser.add_argument("--decay-steps", type=arguments.positive, default=50, metavar="N", help="default: 50")
    parser.add_argument("--time-limit", type=arguments.not_negative, metavar="S", help="ps.time_limit_s of amb (default: 6.2; with --real in proportion)")
    parser.add_argument("--induce", choices=["ec2", "cedar", "exponential", "none"], default="ec2", help="ps.induce (default: ec2)")
    parser.add_argument("--induce-scale", type=arguments.not_negative, metavar="X", help="ps.induce_scale (default: 1; with --real in proportion)")
    parser.add_argument("--sample-s", type=arguments.not_negative, metavar="S", help="ps.sample_s (default: a fixed batch takes 5.41 s)")
    parser.add_argument("--step-s", type=arguments.not_negative, default=0.0, metavar="S", help="ps.step_s, of each slice (default: 0)")
    parser.add_argument("--thresholds", nargs="+", type=float, metavar="PERCENT", help="accuracies to reach: of training, mean of the last 50 updates")
    arguments.add_numbers(parser, workers="workers of the server", seeds="runs of each arm", steps="updates of a run", fmb_batch="a worker's fixed batch",
                          amb_batch="a worker's largest batch in amb", partitions="slices of it", evaluations="on the test set, over a run")


def defaults(options):
    return SCALES[options.scale] | (REAL[options.scale] if options.real else {})


def check(options):
    """Why these options cannot be combined; empty if they can."""
    if options.scale == "full" and not options.data:
        return "--scale full needs --data DIR (CIFAR-10)"
    if options.real and (options.sample_s is not None or options.step_s):
        return "--sample-s and --step-s are for virtual time: with --real a step takes what it takes"
    if options.partitions > options.amb_batch:
        return f"--partitions {options.partitions} is more than --amb-batch {options.amb_batch}: a slice has one sample at least"
    if options.time_limit == 0 or options.induce_scale == 0:
        return "--time-limit and --induce-scale are above 0; --induce none is without stalls"
    return ""


def plan(options):
    trained = [one_run(arm, seed, options) for seed in range(1, options.seeds + 1) for arm in arguments.turned(options.arms, seed)]
    return ([calibration(options)] if is_calibrated(options) else []) + trained


def is_calibrated(options):
    return options.real and (options.time_limit is None or options.induce_scale is None)


def common_sets(options):
    shown = {"model.image_size": 16, "data.samples": 20000} if not options.data else {"model.image_size": 0}
    if options.real:
        clock = {"ps.clock": "real", "ps.placement": "rank0"}
    else:
        sample_s = PUBLISHED_BATCH_S / options.fmb_batch if options.sample_s is None else options.sample_s
        clock = {"ps.clock": "virtual", "ps.sample_s": sample_s, "ps.step_s": options.step_s}
    return arguments.device_sets(options) | arguments.data_sets(options) | shown | clock | {
        "model.name": options.model,
        "train.optimizer": options.optimizer,
        "train.lr": options.lr,
        "ps.workers": options.workers,
        "checkpoint.every_minutes": 0,
        "log.tensorboard": False,
    }


def arm_sets(arm, options):
    if arm == "fmb":
        return {"ps.policy": "fmb", "ps.worker_batch": options.fmb_batch, "ps.partitions": 1, "ps.time_limit_s": 0}
    limit = options.time_limit or ("{time_limit_s}" if options.real else PUBLISHED_LIMIT_S)
    return {"ps.policy": arm, "ps.worker_batch": options.amb_batch, "ps.partitions": options.partitions, "ps.time_limit_s": limit}


def schedule_sets(arm, options):
    pushes = options.workers if arm == "asp" else 1  # an update there is a push
    steps = options.steps * pushes
    sets = {"train.steps": steps, "train.eval_every_steps": max(1, steps // options.evaluations), "train.lr_schedule": "constant"}
    if options.decay_rate < 1:
        every = options.decay_steps * pushes
        sets |= {"train.lr_schedule": "step", "train.lr_decay": options.decay_rate, "train.lr_decay_steps": list(range(every, steps, every))}
    return sets


def one_run(arm, seed, options):
    stalls = {"ps.induce": options.induce, "ps.induce_scale": options.induce_scale or ("{induce_scale}" if options.real else 1)}
    return runs.Planned(
        name=f"{arm}-seed{seed}", kind=arm, title=f"{arm}, seed {seed}", config=config_of(options), processes=processes_of(options),
        sets=common_sets(options) | stalls | arm_sets(arm, options) | schedule_sets(arm, options) | {"train.seed": seed},
        columns={"arm": arm, "seed": seed})


def calibration(options):
    sets = {"train.steps": CALIBRATION_STEPS, "train.eval_every_steps": arguments.ONLY_AT_THE_END, "train.seed": 1, "ps.induce": "none"}
    return runs.Planned(name="calibration", kind="calibration", title="what a batch takes without stalls", config=config_of(options),
                        sets=common_sets(options) | arm_sets("amb", options) | {"ps.policy": "fmb", "ps.time_limit_s": 0} | sets,
                        processes=processes_of(options), columns={"arm": "calibration", "seed": 1})


def config_of(options):
    return "parameter_server" if options.real else "anytime"


def processes_of(options):
    return options.workers + 1 if options.real else 1


def places(rows, options):
    """Limit and stalls of real processes, with the published proportion to the time of a batch."""
    calibrations = [row for row in rows if row["arm"] == "calibration"]
    if not calibrations:
        return {}
    factor = calibrations[-1]["compute_s"] / PUBLISHED_BATCH_S
    return {"time_limit_s": f"{PUBLISHED_LIMIT_S * factor:.6g}", "induce_scale": f"{factor:.6g}"}


def measure(planned, events, options):
    run = server_runs.ServerRun(events)
    runs.steps_after(planned, events, 0)
    if planned.kind == "calibration":
        warm = [push["compute_s"] / push["examples"] for push in run.pushes if push["step"] > CALIBRATION_STEPS // 2]
        return {"updates": len(run.steps), "pushes": len(run.pushes), "total_s": run.times[-1], "compute_s": options.fmb_batch * statistics.median(warm)}
    accuracy = server_runs.moving_mean(run.of_steps("top1"), anytime_report.width_of(planned.kind, options))
    examples, staleness = run.of_pushes("examples"), run.of_pushes("staleness")
    times, top1 = run.evaluated("top1")
    return {
        "updates": len(run.steps),
        "pushes": len(run.pushes),
        "total_s": run.times[-1],
        "samples_mean": statistics.fmean(examples),
        "samples_min": min(examples),
        "samples_max": max(examples),
        "compute_s": statistics.fmean(run.of_pushes("compute_s")),
        "staleness_mean": statistics.fmean(staleness),
        "staleness_max": max(staleness),
        "time_limit_s": runs.events_named(events, "ps")[0]["time_limit_s"],
        "reached_s": server_runs.to_cell(server_runs.time_to(run.times, accuracy, threshold) for threshold in options.thresholds),
        "evaluated_s": server_runs.to_cell(times),
        "evaluated_top1": server_runs.to_cell(top1),
        "top1": server_runs.tail_mean(times, top1),
        "loss": run.evaluations[-1]["loss"],
    }
