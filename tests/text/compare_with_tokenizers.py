"""Our tokenizers beside PyPI's `tokenizers`: the same ids, offsets, types, masks and decoded texts, without a difference.

    compare_with_tokenizers.py --program tokenize_main [unittest arguments]

In CI 4,000 random texts for BERT and 1,000 for the others, as NAME_long 1,000,000 for each. Exit code 77: a package is
missing.
"""

import itertools
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
from importlib import util

os.environ["RUST_BACKTRACE"] = "0"  # a panic of `tokenizers` is one line
try:
    from random_texts import random_texts, real_texts, training_texts
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers)
except ImportError as error:
    print(error)
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import long_tests  # noqa: E402

PROGRAM = None
BATCH = 4000
TRAINING_STEP = 1 if long_tests.RUN else 12
SPLIT_OF_LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                   r"|\s+(?!\S)|\s+")


def ours(file, requests, *options):
    """What our program says about each request, a tuple of one or two byte strings."""
    frames = b"".join(struct.pack("<I", len(text)) + text for request in requests for text in request)
    run = subprocess.run([PROGRAM, file, *options], input=frames, stdout=subprocess.PIPE, check=True)
    lines = run.stdout.splitlines()
    assert len(lines) == len(requests), (len(lines), len(requests))
    return map(json.loads, lines)


def window_of(encoding, tokenizer, decodes):
    window = {"ids": encoding.ids, "offsets": [list(pair) for pair in encoding.offsets], "types": encoding.type_ids,
              "special": encoding.special_tokens_mask,
              "sequences": [-1 if sequence is None else sequence for sequence in encoding.sequence_ids]}
    if decodes:
        window["text"] = tokenizer.decode(encoding.ids).encode().hex()
    return window


def trained_bpe(normalizer=None, pre_tokenizer=None, special=("<|end|>",), size=2000, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet() if "ByteLevel" in str(pre_tokenizer) else []
    affixes = {key: value for key, value in options.items() if key in ("continuing_subword_prefix", "end_of_word_suffix")}
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False,
                                  **affixes)  # which it gives to the model
    tokenizer.train_from_iterator(training_texts()[::TRAINING_STEP], trainer)
    return tokenizer


def template(bos, eos=None):
    end = f" {eos[0]}" if eos else ""
    tail = f" {eos[0]}:1" if eos else ""
    return processors.TemplateProcessing(single=f"{bos[0]} $A{end}", pair=f"{bos[0]} $A{end} {bos[0]}:1 $B:1{tail}",
                                         special_tokens=[bos] + ([eos] if eos else []))


def minilm():
    package = util.find_spec("all_minilm_l6_v2")
    if package is None:
        raise unittest.SkipTest("all_minilm_l6_v2 is missing; install PYTHON_MODEL_PACKAGES of scripts/dependencies.sh")
    with zipfile.ZipFile(pathlib.Path(package.submodule_search_locations[0]) / "model.zip") as archive:
        tokenizer = Tokenizer.from_str(archive.read("tokenizer.json").decode())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def wordpiece(lowercase):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(training_texts()[::TRAINING_STEP],
                                  trainers.WordPieceTrainer(vocab_size=2500, special_tokens=special, show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def gpt2():
    tokenizer = trained_bpe(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def roberta():
    tokenizer = trained_bpe(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True), special=["<s>", "</s>", "<mask>"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True), AddedToken("[MASK]", lstrip=True, rstrip=True)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return tokenizer


def llama3():
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT_OF_LLAMA3), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = trained_bpe(pre_tokenizer=split, special=["<|begin|>", "<|end|>"], ignore_merges=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template(("<|begin|>", 0))])
    return tokenizer


def llama2():
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer = trained_bpe(normalizer, special=special, byte_fallback=True, fuse_unk=True, unk_token="<unk>", size=900)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = template(("<s>", 1), ("</s>", 2))
    return tokenizer


def components():
    """Small tokenizers, one for each component that the others lack."""
    n, p = normalizers, pre_tokenizers
    for normalizer in (n.NFC(), n.NFD(), n.NFKC(), n.NFKD(), n.Lowercase(), n.Strip(), n.Strip(left=False), n.StripAccents(),
                       n.Sequence([n.NFD(), n.StripAccents(), n.Lowercase()]), n.Sequence([n.Strip(), n.NFKC(), n.Lowercase()]),
                       n.Replace(Regex(r"\s+"), " "), n.Replace(Regex("x*"), "-"), n.Replace("a", ""), n.Replace("e", "éé"),
                       n.Prepend("_x"),
                       n.BertNormalizer(strip_accents=False), n.BertNormalizer(clean_text=False, lowercase=False),
                       n.BertNormalizer(handle_chinese_chars=False, strip_accents=True, lowercase=False)):
        yield f"{type(normalizer).__name__} {normalizer}", normalizer, p.WhitespaceSplit()
    behaviors = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
    splits = [p.Split(Regex(pattern), behavior, invert) for pattern in (r"\s+", r"\p{L}+|\p{N}", r"(?=\p{Lu})|x*|$")
              for behavior in behaviors for invert in (False, True)]
    splits += [p.Split(" ", behavior) for behavior in behaviors] + [p.Punctuation(behavior) for behavior in behaviors]
    splits += [p.Whitespace(), p.WhitespaceSplit(), p.Digits(individual_digits=True), p.Digits(), p.BertPreTokenizer()]
    splits += [p.Metaspace(prepend_scheme=scheme, split=split) for scheme in ("always", "first", "never")
               for split in (True, False)]
    splits += [p.Split(Regex(pattern), "isolated") for pattern in (
        r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|\p{P}|\p{S}+|\p{Mn}|\p{Cf}|\p{Zs}", r"[^\p{P}\p{S}\s]++|\d",
        r"(?<!\p{L})\p{L}{2,3}|^.|$", "[a-fA-F0-9]+|[\u0300-\u036f]", "[一-鿿]+|\\p{L}", "[🌀-🫿]+",
        "[\u1800-\u18af]+", "[\u0980-\u09ff]", "(?i:hello|'LL|[a-k]|K)", r"\d|(?i)'[st]|(?:WORLD|x[y-z]?)|[^\s'a-w]+",
        r"\p{C}+|\p{Nd}|\p{Nl}|\p{No}|\p{Sm}|\p{So}|\p{Pd}|\p{Po}")]
    for split in splits:
        yield f"{split}", n.NFC(), split


class EqualToTokenizers(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def save(self, tokenizer):
        file = self.folder / "tokenizer.json"
        tokenizer.save(str(file))
        return str(file)

    def compare(self, tokenizer, texts, name="", pairs=False, options=(), special=True):
        file = self.save(tokenizer)
        decodes = "--decode" in options
        requests = list(zip(texts, reversed(texts))) if pairs else [(text,) for text in texts]
        options = [*options, *(["--pair"] if pairs else []), *([] if special else ["--no-special"])]
        for first in range(0, len(requests), BATCH):
            batch = requests[first:first + BATCH]
            answers = ours(file, [[text.encode() for text in request] for request in batch], *options)
            for request, answer in zip(batch, answers):
                try:
                    encoding = tokenizer.encode(*request, add_special_tokens=special)
                except BaseException as error:  # Rust's panics are no Exception
                    self.assertIsInstance(answer[0], str, f"{name} {request!r} {error}")
                    continue
                windows = [window_of(one, tokenizer, decodes) for one in (encoding, *encoding.overflowing)]
                if answer != windows:
                    self.assertEqual(answer, windows, f"{name}: {request!r}")

    def compare_all(self, tokenizer, seed):
        count = 1_000_000 if long_tests.RUN else 4_000 if seed == 1 else 1_000
        real = real_texts()[::1 if long_tests.RUN else 24]
        for first in range(0, count, 20_000):
            self.compare(tokenizer, random_texts(min(20_000, count - first), [seed, first]), options=["--decode"])
        self.compare(tokenizer, real, options=["--decode"])
        some = random_texts(300, [seed, 1]) + real[:100]
        some = some[::1 if long_tests.RUN else 3]
        self.compare(tokenizer, some, pairs=True)
        self.compare(tokenizer, some, special=False)
        self.compare(tokenizer, some, pairs=True, special=False)
        # Pairs have as many windows as the product of their lengths.
        cut = [text[:80] for text in some[:150 if long_tests.RUN else 50] + some[-20:]]
        for strategy, (length, stride), pairs in itertools.product(("longest_first", "only_first", "only_second"),
                                                                   ((12, 0), (16, 3), (40, 10)), (False, True)):
            if strategy == "only_second" and not pairs:
                continue
            tokenizer.enable_truncation(length, stride=stride, strategy=strategy)
            self.compare(tokenizer, cut, f"{strategy} {length} {stride}", pairs,
                         ["--max-length", str(length), "--stride", str(stride), "--strategy", strategy])
            tokenizer.no_truncation()

    def test_minilm(self):
        self.compare_all(minilm(), 1)

    def test_wordpiece(self):
        self.compare_all(wordpiece(True), 7)

    def test_wordpiece_cased(self):
        self.compare_all(wordpiece(False), 2)

    def test_gpt2(self):
        self.compare_all(gpt2(), 3)

    def test_roberta(self):
        self.compare_all(roberta(), 4)

    def test_llama3(self):
        self.compare_all(llama3(), 5)

    def test_llama2(self):
        self.compare_all(llama2(), 6)

    def test_components(self):
        texts = random_texts(20_000 if long_tests.RUN else 100, 8)
        texts += ["a🫨b", "a\u180eb", "\u2427", "a\u2427b", "axbb", "XyZ x", "K ſ"]
        tokenizer = trained_bpe(None, pre_tokenizers.WhitespaceSplit(), ["<unk>", "[MASK]"], 600, unk_token="<unk>",
                                end_of_word_suffix="</w>")  # so that ids show where words end
        for name, normalizer, pre_tokenizer in components():
            tokenizer.normalizer = normalizer
            tokenizer.pre_tokenizer = pre_tokenizer
            self.compare(tokenizer, texts, name)

    def test_decoders(self):
        texts = random_texts(20_000 if long_tests.RUN else 100, 13) + ["a\U0008ffffb", "\U0008ffff \U0008ffff<0x+4>a"]
        content = json.loads(trained_bpe(None, pre_tokenizers.Metaspace(), ["<unk>"], 600, unk_token="<unk>").to_str())
        vocabulary = content["model"]["vocab"]
        vocabulary.update({f"<0x{byte:02X}>": len(vocabulary) + i for i, byte in enumerate("\U0008ffff".encode()[:3])})
        content["model"]["byte_fallback"] = True
        tokenizer = Tokenizer.from_str(json.dumps(content))
        tokenizer.add_tokens(["<0x+4>"])
        d = decoders
        for decoder in (d.Metaspace(), d.Metaspace(prepend_scheme="never"), d.WordPiece(cleanup=False), d.WordPiece(prefix="▁"),
                        d.Strip("e", 1, 0), d.Strip("e", 0, 1), d.Sequence([d.Replace("▁", " "), d.Fuse(), d.Strip(" ", 1, 0)]),
                        d.ByteFallback(),
                        d.Replace(Regex(r"[aeiou]+|▁"), "-"), d.Replace(Regex("x*"), "-")):
            tokenizer.decoder = decoder
            self.compare(tokenizer, texts, f"{decoder}", options=["--decode"])

    def test_post_processors(self):
        texts = [text[:80] for text in random_texts(20_000 if long_tests.RUN else 50, 14)]
        tokenizer = trained_bpe(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True), special=["<s>", "</s>"],
                                size=600)
        p = processors
        several = {"id": "<both>", "ids": [0, 1], "tokens": ["<s>", "</s>"]}
        for processor in (p.Sequence([p.ByteLevel(trim_offsets=True), p.BertProcessing(("</s>", 1), ("<s>", 0))]),
                          p.Sequence([p.ByteLevel(trim_offsets=False), p.RobertaProcessing(("</s>", 1), ("<s>", 0))]),
                          p.Sequence([p.ByteLevel(trim_offsets=False),
                                      p.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=False, add_prefix_space=False)]),
                          p.TemplateProcessing("<both> $A:3 <both>:2", "$B:1 <both> $A", [several])):
            tokenizer.post_processor = processor
            for pairs in (False, True):
                self.compare(tokenizer, texts, f"{processor}", pairs)
                tokenizer.enable_truncation(16, stride=1)
                self.compare(tokenizer, texts, f"{processor} cut", pairs, ["--max-length", "16", "--stride", "1"])
                tokenizer.no_truncation()

    def test_models_without_type(self):
        for tokenizer in (gpt2(), wordpiece(True)):
            content = json.loads(tokenizer.to_str())
            del content["model"]["type"]
            (self.folder / "old.json").write_text(json.dumps(content), encoding="utf-8")
            texts = random_texts(500, 15)
            tokenizer = Tokenizer.from_file(str(self.folder / "old.json"))
            for text, answer in zip(texts, ours(str(self.folder / "old.json"), [(text.encode(),) for text in texts])):
                self.assertEqual(answer, [window_of(tokenizer.encode(text), tokenizer, False)], text)

    def test_bpe_options(self):
        texts = random_texts(500, 9)
        split = pre_tokenizers.WhitespaceSplit()
        for options in ({}, {"unk_token": "<unk>", "fuse_unk": True}, {"continuing_subword_prefix": "##", "unk_token": "<unk>"},
                        {"end_of_word_suffix": "</w>", "unk_token": "<unk>"}, {"unk_token": "<unk>", "ignore_merges": True}):
            self.compare(trained_bpe(None, split, ["<unk>"], 600, **options), texts, str(options))
        # A byte-level vocabulary that lacks bytes.
        vocabulary = {"Ġ": 0, "h": 1, "e": 2, "l": 3, "o": 4, "he": 5, "ll": 6, "Ã": 7, "©": 8, "Ã©": 9, "<unk>": 10}
        merges = [("h", "e"), ("l", "l"), ("Ã", "©")]
        for options in ({}, {"unk_token": "<unk>"}):
            tokenizer = Tokenizer(models.BPE(vocabulary, merges, **options))
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
            tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
            self.compare(tokenizer, texts, f"few bytes {options}")

    def test_added_tokens(self):
        tokenizer = wordpiece(True)
        tokenizer.add_tokens([AddedToken("Hello", normalized=True), AddedToken("token", single_word=True),
                              AddedToken("é", normalized=False, rstrip=True), AddedToken("123", lstrip=True, normalized=False),
                              AddedToken("1234", normalized=False), AddedToken("don't", single_word=True, lstrip=True, rstrip=True)])
        tokenizer.add_special_tokens(["<|end|>", AddedToken("WORLD", normalized=True, special=True)])
        self.compare(tokenizer, random_texts(2_000, 10), options=["--decode"])
        for normalized in (False, True):
            tokenizer = trained_bpe(None, pre_tokenizers.WhitespaceSplit(), ["<unk>"], 600, unk_token="<unk>")
            tokenizer.add_tokens([AddedToken("a", rstrip=True, normalized=normalized), AddedToken(" ", normalized=normalized),
                                  AddedToken("   ", normalized=normalized), AddedToken("\t", rstrip=True, normalized=normalized)])
            self.compare(tokenizer, ["xa  b", "a \t \t a   b ", "  a", "a "] + random_texts(500, 16), options=["--decode"])

    def test_invalid_utf8(self):
        tokenizer = wordpiece(True)
        file = self.save(tokenizer)
        requests = []
        for i, text in enumerate(random_texts(1_000, 11)):
            content = bytearray(text.encode())
            for k in range(i % 4 + 1):
                content[hash((i, k)) % len(content)] = (i * 131 + k * 77) % 256
            requests.append(bytes(content[i % 3:]))
        for content, answer in zip(requests, ours(file, [(content,) for content in requests])):
            encoding = tokenizer.encode(content.decode(errors="replace"))
            self.assertEqual(answer, [window_of(encoding, tokenizer, False)], content)

    def test_vocab_txt(self):
        for lowercase in (True, False):
            tokenizer = wordpiece(lowercase)
            vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
            (self.folder / "vocab.txt").write_text("".join(f"{token}\n" for token, _ in vocabulary), encoding="utf-8")
            texts = random_texts(1_000, 12)
            answers = ours(str(self.folder / "vocab.txt"), [(text.encode(),) for text in texts], "--decode")
            for text, answer in zip(texts, answers):
                self.assertEqual(answer, [window_of(tokenizer.encode(text), tokenizer, True)], text)


if __name__ == "__main__":
    index = sys.argv.index("--program")
    PROGRAM = sys.argv[index + 1]
    del sys.argv[index:index + 2]
    unittest.main()
