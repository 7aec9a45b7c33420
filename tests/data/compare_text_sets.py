#!/usr/bin/env python3
"""Compares samples of SQuAD and of CSV with what Hugging Face's examples make of them by PyPI's `tokenizers`.

usage: compare_text_sets.py --program text_dump [--data FOLDER]

The tokenizers (BERT's and RoBERTa's kind) are trained here. The windows and the tokens of the answers are transcribed
from prepare_train_features() of the question answering example. Questions: random ones, and XQuAD's if --data has them.
Exit status 77: `tokenizers` is missing.
"""

import argparse
import csv
import json
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import tokenizers
except ImportError:
    sys.exit(77)

WORDS = "the cat Sat ON a tree, über 3.14 naïve Köln's — “quotes” and 東京 tower (1958) e\u0301tude I'm x_y\u2003z".split(" ")


def bert(texts):
    tokenizer = tokenizers.BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(texts, vocab_size=1500, show_progress=False)
    tokenizer = tokenizer._tokenizer
    ends = [(token, tokenizer.token_to_id(token)) for token in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = tokenizers.processors.BertProcessing(*ends)
    return tokenizer


def roberta(texts):
    tokenizer = tokenizers.ByteLevelBPETokenizer(add_prefix_space=False)
    tokenizer.train_from_iterator(texts, vocab_size=900, show_progress=False,
                                  special_tokens=["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer = tokenizer._tokenizer
    tokenizer.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer


def sentence(rng, words):
    return rng.choice(["", " ", "  "]) + " ".join(rng.choice(WORDS) for _ in range(words))


def random_questions(rng, articles):
    paragraphs = []
    for number in range(articles):
        context = sentence(rng, rng.randrange(1, 120))
        questions = []
        for i in range(3):
            begin = rng.randrange(len(context))
            end = rng.randrange(begin + 1, min(len(context), begin + 40) + 1)
            answers = [{"text": context[begin:end], "answer_start": begin}]
            questions.append({"id": f"{number}-{i}", "question": sentence(rng, rng.randrange(1, 12)),
                              "answers": [] if i == 2 else answers, "is_impossible": i == 2})
        paragraphs.append({"context": context, "qas": questions})
    return {"version": "2.0", "data": [{"title": "random", "paragraphs": paragraphs}]}


def answer_tokens(encoding, question):
    """Of prepare_train_features(); the first token stands for no answer.

    Theirs moves the start of an answer in the context's last token on to [SEP]; here it stays in the context.
    """
    if not question["answers"]:
        return 0, 0
    answer = question["answers"][0]
    begin, end = answer["answer_start"], answer["answer_start"] + len(answer["text"])
    first = encoding.sequence_ids.index(1) if 1 in encoding.sequence_ids else 0
    last = len(encoding.sequence_ids) - 1 - encoding.sequence_ids[::-1].index(1) if 1 in encoding.sequence_ids else 0
    if encoding.offsets[first][0] > begin or encoding.offsets[last][1] < end:
        return 0, 0
    end_of_context = last + 1
    while first < end_of_context and encoding.offsets[first][0] <= begin:
        first += 1
    while encoding.offsets[last][1] >= end:
        last -= 1
    return first - 1, last + 1


def squad_samples(tokenizer, root, max_length, stride):
    tokenizer.enable_truncation(max_length, stride=stride, strategy="only_second")
    for article in root["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                encoding = tokenizer.encode(question["question"].lstrip(), paragraph["context"])
                for window in [encoding, *encoding.overflowing]:
                    start, end = answer_tokens(window, question)
                    first = window.sequence_ids.index(1) if 1 in window.sequence_ids else len(window.ids)
                    offsets = [list(o) for o, s in zip(window.offsets, window.sequence_ids) if s == 1]
                    yield {"inputs": window.ids, "types": window.type_ids, "starts": [start], "ends": [end],
                           "id": question["id"], "first": first, "offsets": offsets}


def csv_samples(tokenizer, rows, max_length, names):
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    for row in rows:
        encoding = tokenizer.encode(row["a"], row["b"])
        yield {"inputs": encoding.ids, "types": encoding.type_ids, "targets": [names.index(row["label"])]}


def word_samples(tokenizer, rows, max_length, names):
    """The first token of a word has its label, as in Hugging Face's example for token classification."""
    tokenizer.enable_truncation(max_length)
    for row in rows:
        encoding = tokenizer.encode(row["words"], is_pretokenized=True)
        targets, before = [], None
        for word in encoding.word_ids:
            targets.append(names.index(row["labels"][word]) if word is not None and word != before else -100)
            before = word
        yield {"inputs": encoding.ids, "types": encoding.type_ids, "targets": targets}


def compare(program, arguments, wanted):
    text = subprocess.run([program, *map(str, arguments)], stdout=subprocess.PIPE, check=True).stdout.decode()
    ours = [json.loads(line) for line in text.splitlines()]
    wanted = list(wanted)
    if len(ours) != len(wanted):
        sys.exit(f"{arguments}: {len(ours)} samples, but {len(wanted)} wanted")
    has_types = any(any(sample["types"]) for sample in wanted)
    for number, (one, other) in enumerate(zip(ours, wanted)):
        if not has_types:
            del other["types"]
        if not other.get("offsets", True):
            del other["offsets"]
        if one != other:
            sys.exit(f"{arguments}, sample {number}\nours:   {one}\nwanted: {other}")
    return len(ours), sum(sample["starts"][0] > 0 for sample in ours if "starts" in sample)


def compare_words(program, rng, folder, tokenizer, name):
    if name == "roberta":  # Hugging Face's example demands this for words
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
        tokenizer.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.no_truncation()
    file = folder / f"{name}-words.json"
    tokenizer.save(str(file))
    lists = [[rng.choice(WORDS) for _ in range(rng.randrange(1, 40))] for _ in range(400)]
    rows = [{"words": words, "labels": [rng.choice(["B-X", "I-X", "O"]) for _ in words]} for words in lists]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for max_length in (12, 128):
        count, _ = compare(program, ["jsonl", folder, "train", file, max_length, 0, "words", "", "labels", "words"],
                           word_samples(tokenizer, rows, max_length, ["B-X", "I-X", "O"]))
        print(f"{name}, words, {max_length} tokens: {count} rows equal")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--data", default="../shared/data/xquad")
    options = parser.parse_args()
    rng = random.Random(47)
    sets = {"random": (random_questions(rng, 150), random_questions(rng, 40))}
    real = [pathlib.Path(options.data) / name for name in ("train.json", "dev.json")]
    if all(file.is_file() for file in real):
        sets["xquad"] = tuple(json.loads(file.read_text(encoding="utf-8")) for file in real)
    rows = [{"a": sentence(rng, rng.randrange(1, 20)), "b": sentence(rng, rng.randrange(1, 20)) + rng.choice(["", '"', "\n,"]),
             "label": rng.choice("xyz")} for _ in range(400)]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for make in (bert, roberta):
            tokenizer = make([question["question"] for splits in sets.values() for split in splits for article in split["data"]
                              for paragraph in article["paragraphs"] for question in paragraph["qas"]] + WORDS)
            file = folder / f"{make.__name__}.json"
            tokenizer.save(str(file))
            for name, splits in sets.items():
                for split, root in zip(("train", "dev"), splits):
                    (folder / f"{split}.json").write_text(json.dumps(root), encoding="utf-8")
                    for max_length, stride in ((128, 16), (384, 128)) if name == "xquad" else ((60, 0), (70, 11)):
                        count, answers = compare(options.program, ["squad", folder, split, file, max_length, stride, "", "", ""],
                                                 squad_samples(tokenizer, root, max_length, stride))
                        print(f"{make.__name__}, {name} {split}, {max_length} tokens: {count} windows equal, {answers} with answers")
                        if answers < count // 10:
                            sys.exit("too few windows hold their answer")
            with open(folder / "train.csv", "w", encoding="utf-8", newline="") as out:
                writer = csv.DictWriter(out, ["label", "a", "b"])
                writer.writeheader()
                writer.writerows(rows)
            for max_length in (12, 64):
                count, _ = compare(options.program, ["csv", folder, "train", file, max_length, 0, "a", "b", "label"],
                                   csv_samples(tokenizer, rows, max_length, "xyz"))
                print(f"{make.__name__}, csv, {max_length} tokens: {count} rows equal")
            compare_words(options.program, rng, folder, tokenizer, make.__name__)


if __name__ == "__main__":
    main()
