"""pipe_vs_ddp --task squad: the ladders of pipe_vs_ddp for BERT that answers questions."""

import functools

from . import pipe_report, pipe_vs_ddp, text_task

SMALL = {
    "device": "cpu", "nodes": 1, "steps": 3, "warmup": 1, "rounds": 2, "size": "minilm", "length": 128, "limit": "768MiB",
    "ladders": [((2, "ddp", 1), [8, 16, 24]), ((2, "pipe", 4), [32, 64, 96]), ((2, "pipe", 8), [64, 128, 192])],
}
FULL = {
    "device": "cuda", "nodes": 2, "steps": 100, "warmup": 20, "rounds": 3, "size": "large", "length": 384, "limit": "16GiB",
    "ladders": [
        ((4, "ddp", 1), [4, 8, 16, 32]),
        ((4, "pipe", 8), [16, 32, 64, 128, 256, 512]),
    ],
}
SCALES = {"small": SMALL, "full": FULL}
OF_IMAGES = ("image_size", "patch_size")


def check(options):
    return text_task.check(options, OF_IMAGES) or check_batches(options)


def check_batches(options):
    """The largest global batch must not exceed the training questions, or the run would take a smaller one."""
    most = options.nodes * max(batch * (devices if way == "ddp" else 1) for (devices, way, _), batches in options.ladders for batch in batches)
    questions = text_task.count_questions(options.data)
    if questions is None or questions >= most:
        return ""
    return f"--data {options.data} has {questions} training questions, too few for a batch of {most}: give more, or a --ladder with smaller batches"


def sets(_, options):
    """Random weights and windows of one length: so all steps take the same memory and time."""
    sizes = {"model.size": options.size, "model.vocabulary": text_task.VOCABULARY}
    if options.size == "minilm":
        sizes = {"model.config": "{out}/minilm/config.json"}
    return text_task.data_sets("{out}/minilm", options) | sizes | {
        "data.pad": "max", "train.optimizer": "adamw", "train.lr": 3e-5, "train.eval_limit": 16}


def title(options):
    return f"BERT {options.size}, questions in windows of {options.length} tokens"


# SQuAD 1.1 has 87,599 training questions, and a question has a window or more.
QUESTIONS = pipe_report.Work(unit="window", sets=sets, title=title, epochs=3, samples=87_599, published={})
COLUMNS = [QUESTIONS.rate if name == pipe_vs_ddp.IMAGES.rate else name for name in pipe_vs_ddp.COLUMNS]
GROWS = pipe_vs_ddp.GROWS
prepare = text_task.prepare
wanted = pipe_vs_ddp.wanted
plan, measure, summarise, markdown, figures = (
    functools.partial(function, work=QUESTIONS)
    for function in (pipe_vs_ddp.plan, pipe_vs_ddp.measure, pipe_report.summarise, pipe_report.markdown, pipe_report.figures))
