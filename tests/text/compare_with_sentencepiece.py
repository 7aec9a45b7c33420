"""Our reader of SentencePiece's .model files beside PyPI's `sentencepiece`: the same ids, offsets and decoded texts.

    compare_with_sentencepiece.py --program tokenize_main [unittest arguments]

The models are trained here. In CI 3,000 random texts a model, as NAME_long 1,000,000. Exit code 77: no sentencepiece.
"""

import itertools
import pathlib
import sys
import tempfile
import unittest

import compare_with_tokenizers as tokenizers
from random_texts import random_texts, real_texts, training_texts

try:
    import sentencepiece
except ImportError:
    print("the package sentencepiece is missing")
    sys.exit(77)

long_tests = tokenizers.long_tests


class EqualToSentencePiece(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def train(self, **options):
        lines = self.folder / "lines"
        texts = [text.replace("\0", "") for text in training_texts()[::8 if long_tests.RUN else 24]]
        lines.write_text("\n".join(line[:4000] for text in texts for line in text.splitlines() if line.strip()), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            **{"input": str(lines), "model_prefix": str(self.folder / "m"), "vocab_size": 800, "minloglevel": 2, "num_threads": 1,
               "character_coverage": 0.98, "hard_vocab_limit": False, **options})
        return str(self.folder / "m.model")

    def compare(self, file, texts):
        processor = sentencepiece.SentencePieceProcessor(model_file=file)
        for first in range(0, len(texts), tokenizers.BATCH):
            batch = texts[first:first + tokenizers.BATCH]
            for text, answer in zip(batch, tokenizers.ours(file, [(text.encode(),) for text in batch], "--decode")):
                expected = processor.encode(text, return_type="proto")
                ids = [piece.id for piece in expected.pieces]
                character = list(itertools.accumulate((byte & 0xC0 != 0x80 for byte in text.encode()), initial=0))
                offsets = [[character[piece.begin], character[piece.end]] for piece in expected.pieces]
                found = (answer[0]["ids"], answer[0]["offsets"], bytes.fromhex(answer[0]["text"]).decode())
                self.assertEqual(found, (ids, offsets, processor.decode(ids)), repr(text))

    def compare_all(self, file, seed):
        count = 1_000_000 if long_tests.RUN else 3_000
        for first in range(0, count, 20_000):
            self.compare(file, random_texts(min(20_000, count - first), [seed, first]))
        self.compare(file, real_texts()[::1 if long_tests.RUN else 8])

    def test_unigram(self):
        self.compare_all(self.train(model_type="unigram"), 21)

    def test_bpe_with_bytes(self):
        self.compare_all(self.train(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, split_digits=True,
                                    normalization_rule_name="identity"), 22)

    def test_options(self):
        for kind, (rule, options) in itertools.product(("unigram", "bpe"), (
                ("nmt_nfkc_cf", {"user_defined_symbols": ["hello", "[MASK]", "3.14", " "], "control_symbols": ["[CLS]"]}),
                ("nfkc", {"byte_fallback": True, "treat_whitespace_as_suffix": True}),
                ("nmt_nfkc", {"add_dummy_prefix": False, "unk_surface": "?"}),
                ("identity", {"remove_extra_whitespaces": False, "user_defined_symbols": ["é", "123"], "byte_fallback": True}))):
            with self.subTest(kind, rule=rule):
                self.compare(self.train(model_type=kind, normalization_rule_name=rule, **options),
                             random_texts(1000 if long_tests.RUN else 300, 23))


if __name__ == "__main__":
    index = sys.argv.index("--program")
    tokenizers.PROGRAM = sys.argv[index + 1]
    del sys.argv[index:index + 2]
    unittest.main()
