"""Data and rules of text_recipes.py: MiniLM's files, SQuAD's questions and scores, WordNet's definitions. No torch here."""

import collections
import json
import pathlib
import random
import re
import string
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
from experiments import record, text_task  # noqa: E402

WORDNET_FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
WORDNET_CLASSES = 45  # lexicographer files
GET_WORDNET = "get it: apt-get download wordnet-base; dpkg-deb -x wordnet-base_*.deb X; and give X/usr/share/wordnet"


def unpack_minilm(folder):
    """The folder of config.json, tokenizer.json and model.safetensors."""
    try:
        text_task.prepare(types.SimpleNamespace(out=folder))
    except record.Refused as refused:
        sys.exit(str(refused))
    return folder / "minilm"


def read_squad(file):
    """[{id, question, context, answers}]"""
    articles = json.loads(file.read_text(encoding="utf-8"))["data"]
    return [{"id": asked["id"], "question": asked["question"], "context": paragraph["context"], "answers": asked["answers"]}
            for article in articles for paragraph in article["paragraphs"] for asked in paragraph["qas"]]


def write_squad(source, folder, limit, evaluated):
    """train.json and dev.json with at most so many questions of those of `source`, always the same; 0: all."""
    for name, most in (("train.json", limit), ("dev.json", evaluated)):
        questions = read_squad(source / name)
        kept = sorted(random.Random(0).sample(range(len(questions)), min(most or len(questions), len(questions))))
        paragraphs = [{"context": questions[i]["context"], "qas": [questions[i]]} for i in kept]
        text = json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]})
        (folder / name).write_text(text, encoding="utf-8")


def normal_words(text):
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(?:a|an|the)\b", " ", kept).split()


def word_f1(found, wanted):
    shared = sum((collections.Counter(found) & collections.Counter(wanted)).values())
    return 2 * shared / (len(found) + len(wanted)) if shared else 0.0


def squad_scores(questions, predictions):
    """f1 and exact_match in percent by the rules of SQuAD 1.1; a question without a prediction counts 0."""
    f1 = exact = 0.0
    for question in (one for one in questions if one["id"] in predictions):
        found = normal_words(predictions[question["id"]])
        wanted = [normal_words(answer["text"]) for answer in question["answers"]]
        f1 += max(word_f1(found, one) for one in wanted)
        exact += found in wanted
    return {"f1": 100 * f1 / len(questions), "exact_match": 100 * exact / len(questions)}


def read_wordnet(folder):
    """[(definition, number of the lexicographer file)] without examples of use and without repetitions."""
    labels = {}
    for name in WORDNET_FILES:
        if not (folder / name).is_file():
            sys.exit(f"{folder} has no {name}; {GET_WORDNET}")
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            numbers, _, gloss = line.partition(" | ")
            definition = gloss.split('; "')[0].strip()
            # Lines of the licence begin with a space.
            if definition and not line.startswith(" "):
                labels.setdefault(definition, int(numbers.split()[1]))
    return list(labels.items())


def write_wordnet(source, folder, limit, evaluated):
    """train.jsonl, which has each class, and test.jsonl of other definitions; classes are about as frequent as in all."""
    rows = read_wordnet(source)
    random.Random(0).shuffle(rows)
    one_of_each = list({label: (text, label) for text, label in reversed(rows)}.values())
    if len(one_of_each) != WORDNET_CLASSES:
        sys.exit(f"{source} has definitions of {len(one_of_each)} classes, not {WORDNET_CLASSES}; {GET_WORDNET}")
    if limit < WORDNET_CLASSES:
        sys.exit(f"--limit {limit} is less than the {WORDNET_CLASSES} classes; give more")
    if len(rows) < limit + evaluated:
        sys.exit(f"{source} has {len(rows)} definitions, too few for --limit {limit} and --eval {evaluated}; give less")
    rows = one_of_each + [row for row in rows if row not in one_of_each]
    for name, part in (("train", rows[:limit]), ("test", rows[limit:limit + evaluated])):
        lines = [json.dumps({"text": text, "label": label}) + "\n" for text, label in part]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
