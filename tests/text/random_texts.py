"""Random Unicode texts for the comparisons of tokenizers: all planes, combining marks, CJK, control characters, emoji,
words of real languages, runs of spaces and punctuation."""

import functools
import json
import pathlib

import numpy as np

RANGES = [
    (0x20, 0x7F), (0x20, 0x7F), (0x41, 0x7B), (0x00, 0x20), (0x7F, 0x100), (0x100, 0x250), (0x300, 0x370), (0x370, 0x530),
    (0x590, 0x700), (0x900, 0x0DF5), (0x0E00, 0x1000), (0x1100, 0x1200), (0x1680, 0x1810), (0x1A00, 0x1B00), (0x1DC0, 0x2000),
    (0x2000, 0x2070), (0x2070, 0x2C00), (0x3000, 0x3400), (0x4E00, 0x5000), (0xAC00, 0xAD00), (0xF900, 0xFB50), (0xFE00, 0x10000),
    (0x10000, 0x20000), (0x1D100, 0x1D250), (0x1F300, 0x1FB00), (0x20000, 0x20100), (0x2F800, 0x2FA20), (0xE0000, 0xE0200),
    (0x0, 0xD800), (0xE000, 0x110000)]
PIECES = [" ", " ", "  ", "\n", "\r\n", "\t", " \n\n ", "   \t", "'s", "'ll", "'T", "n't", "...", "!?", "[MASK]", "[CLS]", "<|end|>",
          " [MASK] ", "<0x41>", "▁", "▁▁", "é", "é", "ậ", "ệ̣", "İ", "ß", "ſ", "ﬁ", "Σ", "ǅ", "한국어", "中文字", "カナ", "123", "3.14",
          "1234567", "½", "٣", "don't", "Don'T", "you're", "hello", "Hello", "WORLD", "tokenization", "unaffable", "‍", "👩‍👩‍👧",
          "🏳️‍🌈", "a\u0301\u0323", "\u0323\u0301", "q\u0307\u0323", "\u302e\u0301", "\u1d165\u1d16d", "\ufffd", "\u200b", "\u2028",
          "\u00a0", "\u3000", "\u180e", "\ufeff", "\x00", "\x85", "\u0344\u0323", "http://a.b/c?d=e", "x" * 120, "の" * 110]
SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"


def random_texts(count, seed):
    draw = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(draw.integers(1, 6)):
            kind = draw.integers(0, 3)
            if kind == 0:
                parts += [PIECES[i] for i in draw.integers(0, len(PIECES), draw.integers(1, 6))]
                continue
            first, last = RANGES[draw.integers(0, len(RANGES))]
            points = draw.integers(first, last, draw.integers(1, 13))
            parts.append("".join(map(chr, points)))
            if kind == 2:
                parts.append(" ")
        texts.append("".join(parts))
    return texts


@functools.cache
def real_texts():
    """Texts of ../shared/data; empty where that is missing."""
    texts = []
    for file in sorted(SHARED.glob("xquad/*.json")):
        for article in json.loads(file.read_text(encoding="utf-8"))["data"]:
            for paragraph in article["paragraphs"]:
                texts.append(paragraph["context"])
                texts += [question["question"] for question in paragraph["qas"]]
    for file in SHARED.glob("tinyshakespeare/input.txt"):
        text = file.read_text(encoding="utf-8")
        texts += text.split("\n\n")
        texts.append(text[:100_000])
    return texts


@functools.cache
def training_texts():
    words = "the cat sat on a mat and the dogs' house wasn't red ; tokenization of unaffable words, 3.14 or 2024 ! naïve café"
    return (real_texts() or [words] * 50) + random_texts(1500, 7)
