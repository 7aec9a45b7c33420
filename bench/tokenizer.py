#!/usr/bin/env python3
"""Our tokenizers beside PyPI's `tokenizers` on one core: megabytes of text a second, the best of several passes.

usage: bench/tokenizer.py [--program build/release/bench/bench_tokenizer] [--seconds 3]

The texts are those of ../shared/data (questions and contexts of XQuAD, Shakespeare by paragraph) or, if that is missing,
made up; the tokenizers are those of tests/text/compare_with_tokenizers.py. `tokenizers` encodes in batches without
threads (encode_batch), which is its fastest way that gives offsets.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "text"))
import compare_with_tokenizers as cases  # noqa: E402
from random_texts import training_texts  # noqa: E402


def theirs(tokenizer, lines, seconds):
    size = sum(len(line.encode()) for line in lines)
    best, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        encodings = tokenizer.encode_batch(lines)
        best = max(best, size / (time.perf_counter() - start) / 1e6)
    return best, sum(len(encoding.ids) for encoding in encodings)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build" / "release" / "bench" / "bench_tokenizer")
    parser.add_argument("--seconds", default="3")
    arguments = parser.parse_args()
    lines = [line for text in cases.real_texts() or training_texts() for line in text.split("\n") if line]
    print("| tokenizer | Sluice, MB/s | tokenizers, MB/s | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        texts = pathlib.Path(folder) / "texts"
        texts.write_text("\n".join(lines) + "\n", encoding="utf-8")
        for name, make in (("BERT uncased (MiniLM)", lambda: cases.minilm() or cases.wordpiece(True)), ("GPT-2", cases.gpt2),
                           ("Llama 3", cases.llama3), ("Llama 2", cases.llama2)):
            tokenizer = make()
            file = pathlib.Path(folder) / "tokenizer.json"
            tokenizer.save(str(file))
            run = subprocess.run([arguments.program, file, texts, arguments.seconds], stdout=subprocess.PIPE, check=True)
            ours = json.loads(run.stdout)
            speed, tokens = theirs(tokenizer, lines, float(arguments.seconds))
            assert tokens == ours["tokens"], (tokens, ours)
            print(f"| {name} | {ours['mb_per_s']:.1f} | {speed:.1f} | {ours['mb_per_s'] / speed:.1f} |", flush=True)


if __name__ == "__main__":
    main()
