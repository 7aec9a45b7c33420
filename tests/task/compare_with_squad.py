#!/usr/bin/env python3
"""Compares answers and their scores with SQuAD's published scripts and with Hugging Face's run_qa.py.

usage: compare_with_squad.py --program squad_main [--data FOLDER] [--cases N]

The scores are transcribed below from the definitions of evaluate-v1.1.py and evaluate-v2.0.py, the search from
postprocess_qa_predictions(). Texts: random ones, and the answers of XQuAD if --data has them.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import string
import subprocess
import sys
import unicodedata


def normalized(text):
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(answer, gold, version):
    answer, gold = normalized(answer).split(), normalized(gold).split()
    if version == 2 and (not answer or not gold):
        return float(answer == gold)
    same = sum((collections.Counter(answer) & collections.Counter(gold)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(answer), same / len(gold)
    return 2 * precision * recall / (precision + recall)


def score(answer, gold, version):
    if version == 2:
        gold = [text for text in gold if normalized(text)] or [""]
    return {
        "normal": normalized(answer),
        "exact": max(float(normalized(answer) == normalized(text)) for text in gold),
        "f1": max(f1(answer, text, version) for text in gold),
    }


def search(asked):
    """Without ties, so that no order among equal scores matters."""
    found, none = [], None
    for window in asked["windows"]:
        starts, ends, first = window["starts"], window["ends"], window["first"]
        none = starts[0] + ends[0] if none is None else min(none, starts[0] + ends[0])
        offsets = [None] * first + window["offsets"]
        offsets += [None] * (len(starts) - len(offsets))
        best = [sorted(range(len(values)), key=lambda i, v=values: -v[i])[:asked["most"]] for values in (starts, ends)]
        for start in best[0]:
            for end in best[1]:
                if offsets[start] is None or offsets[end] is None or end < start:
                    continue
                if end - start + 1 > asked["most_tokens"]:
                    continue
                found.append((offsets[start][0], offsets[end][1], starts[start] + ends[end]))
    found = sorted(found, key=lambda answer: -answer[2])[:asked["most"]]
    filled = [answer for answer in found if answer[1] > answer[0]]
    odds = none - filled[0][2] if filled else None
    text = asked["context"][filled[0][0]:filled[0][1]] if filled else ""
    if asked["none"] and odds is not None and odds > asked["threshold"]:
        text = ""
    return {"text": text, "best": [list(answer) for answer in found], "odds": odds}


def character(rng):
    kind = rng.random()
    if kind < 0.45:
        return rng.choice("aAnNtThHeE  .,-'\"$%_0129")
    if kind < 0.55:
        return rng.choice("ΑΣςσİıßÉǅﬁ\u0301\u00a0\u2003\u2028\u001f\u0085\u200b\u3000²½Ⅷ٣中\u00b7")
    while True:
        point = rng.randrange(0x110000) if rng.random() < 0.3 else rng.randrange(0x2100)
        if unicodedata.category(chr(point)) not in ("Cn", "Cs") and chr(point) not in "\n":
            return chr(point)


def text_of(rng):
    words = ["the", "a", "an", "The", "ANY", "theta", "Σ", "ΟΔΟΣ", "x"]
    parts = [rng.choice(words) if rng.random() < 0.3 else character(rng) for _ in range(rng.randrange(14))]
    return (" " if rng.random() < 0.3 else "").join(parts)


def near(rng, text):
    """A text that shares words with another one."""
    words = text.split()
    rng.shuffle(words)
    return " ".join(words[:rng.randrange(len(words) + 1)] + [text_of(rng)] * rng.randrange(2))


def random_window(rng, context):
    tokens, first = rng.randrange(4, 40), rng.randrange(1, 4)
    context_tokens = rng.randrange(0, tokens - first + 1)
    cuts = sorted(rng.randrange(len(context) + 1) for _ in range(2 * context_tokens))
    offsets = [list(cuts[2 * i:2 * i + 2]) for i in range(context_tokens)]
    numbers = [rng.gauss(0, 3) for _ in range(2 * tokens)]
    return {"starts": numbers[:tokens], "ends": numbers[tokens:], "first": first, "offsets": offsets}


def cases(rng, count, data):
    answers = []
    for file in sorted(pathlib.Path(data).glob("*.json")) if data else []:
        for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                answers += [answer["text"] for question in paragraph["qas"] for answer in question["answers"]]
    for answer in answers:
        for other in (answer, near(rng, answer), rng.choice(answers)):
            yield {"answer": other, "gold": [answer], "version": rng.choice([1, 2])}
    for _ in range(count):
        gold = [text_of(rng) for _ in range(rng.randrange(1, 4))]
        answer = near(rng, rng.choice(gold)) if rng.random() < 0.8 else text_of(rng)
        yield {"answer": answer, "gold": gold, "version": rng.choice([1, 2])}
        context = "".join(character(rng) for _ in range(rng.randrange(60)))
        yield {"context": context, "windows": [random_window(rng, context) for _ in range(rng.randrange(1, 4))],
               "most": rng.choice([1, 3, 20]), "most_tokens": rng.choice([1, 5, 30]), "none": rng.random() < 0.5,
               "threshold": rng.choice([0.0, 2.0])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--data", default="../shared/data/xquad")
    parser.add_argument("--cases", type=int, default=6000)
    options = parser.parse_args()
    asked = list(cases(random.Random(20261129), options.cases, options.data))
    text = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in asked)
    answered = subprocess.run([options.program], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
    lines = answered.decode().split("\n")[:-1]
    assert len(lines) == len(asked), (len(lines), len(asked))
    seen = collections.Counter()
    for case, line in zip(asked, lines):
        ours, theirs = json.loads(line), (score(**case) if "gold" in case else search(case))
        same = all(abs(ours[key] - value) < 1e-12 if isinstance(value, float) and key in ("exact", "f1") else ours[key] == value
                   for key, value in theirs.items() if not (key == "odds" and value is None))
        if not same:
            sys.exit(f"{json.dumps(case)}\nours:   {ours}\ntheirs: {theirs}")
        seen["score" if "gold" in case else "search"] += 1
        seen["exact"] += theirs.get("exact") == 1.0
        seen["part"] += 0 < theirs.get("f1", 0) < 1
        seen["empty"] += theirs.get("text") == ""
    print(f"{len(asked)} cases equal: {dict(seen)}")
    if min(seen[key] for key in ("exact", "part", "empty")) < 100:
        sys.exit("too few cases of a kind")


if __name__ == "__main__":
    main()
