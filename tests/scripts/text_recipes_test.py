#!/usr/bin/env python3
"""bench/text_recipes.py: its data, SQuAD's rules, and what it makes of the scores. Nothing is trained. Exits 77 without transformers."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

try:
    import peer_recipe
    import text_data
    import text_recipes
    import torch
except ModuleNotFoundError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

QUESTIONS = [{"id": "a", "question": "?", "context": "In Rome it rained.", "answers": [{"text": "Rome", "answer_start": 3}]},
             {"id": "b", "question": "?", "context": "In Rome it rained.", "answers": [{"text": "it rained", "answer_start": 8},
                                                                                      {"text": "rained", "answer_start": 11}]}]
OFFSETS = {2: (0, 2), 3: (3, 7), 4: (8, 10), 5: (11, 17), 6: (17, 18)}  # of the context's tokens


class TextRecipesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_the_rules_of_squad(self):
        for prediction, f1, exact in (("the  ROME!", 100, 100), ("in Rome", 200 / 3, 0), ("Paris", 0, 0), ("", 0, 0)):
            scores = text_data.squad_scores(QUESTIONS[:1], {"a": prediction})
            self.assertAlmostEqual(scores["f1"], f1)
            self.assertEqual(scores["exact_match"], exact)
        self.assertEqual(text_data.squad_scores(QUESTIONS, {"b": "Rained"}), {"f1": 50, "exact_match": 50})

    def test_the_tokens_of_an_answer(self):
        self.assertEqual(peer_recipe.answer_tokens(QUESTIONS[1], OFFSETS), {"start_positions": 4, "end_positions": 5})
        for part in ({2: (0, 2), 3: (3, 7), 4: (8, 10)}, {5: (11, 17), 6: (17, 18)}, {}):
            self.assertEqual(set(peer_recipe.answer_tokens(QUESTIONS[1], part).values()), {0})

    def test_the_best_answer_is_in_the_context_and_in_order(self):
        starts, ends = torch.tensor([9.0, 9, 1, 2, 5, 0, 0]), torch.tensor([9.0, 9, 0, 4, 1, 2, 0])
        self.assertEqual(peer_recipe.best_answer(starts, ends, OFFSETS), (7, 8, 17))
        self.assertIsNone(peer_recipe.best_answer(starts, ends, {}))
        many = {i: (i, i + 1) for i in range(40)}
        first, last = torch.zeros(40), torch.zeros(40)
        first[0], last[30], last[29] = 5, 5, 3
        self.assertEqual(peer_recipe.best_answer(first, last, many), (8, 0, 30))

    def test_definitions_are_in_one_part_and_training_has_each_class(self):
        lines = [f'{i:08} {i % 45:02} n 01 word 0 000 | definition {i // 2}; "an example"  \n' for i in range(400)]
        for name in text_data.WORDNET_FILES:
            (self.folder / name).write_text("  1 licence | text\n" + "".join(lines), encoding="utf-8")
        text_data.write_wordnet(self.folder, self.folder, 60, 100)
        train, test = ([json.loads(line) for line in (self.folder / name).read_text(encoding="utf-8").splitlines()]
                       for name in ("train.jsonl", "test.jsonl"))
        self.assertEqual((len(train), len(test), len({row["label"] for row in train})), (60, 100, 45))
        texts = [row["text"] for row in train + test]
        self.assertEqual(len(set(texts)), 160)
        self.assertFalse([text for text in texts if '"' in text or ";" in text or "licence" in text])

    def compare(self, ours, others):
        """(exit code, output) with these scores of the seeds."""
        sides = {side: unittest.mock.Mock(side_effect=[{"top1": score} for score in scores])
                 for side, scores in (("ours", ours), ("transformers", others))}
        said = io.StringIO()
        with unittest.mock.patch.multiple(text_recipes, SIDES=sides), \
                unittest.mock.patch.multiple(text_data, write_wordnet=unittest.mock.DEFAULT, unpack_minilm=unittest.mock.DEFAULT), \
                unittest.mock.patch.object(sys, "argv", ["text_recipes.py", "wordnet", "folder", "--json", str(self.folder / "out.json")]), \
                contextlib.redirect_stdout(said):
            return text_recipes.main(), said.getvalue()

    def test_worse_than_the_paired_interval_is_a_failure(self):
        code, said = self.compare([50, 61, 72], [52, 62, 75])
        self.assertEqual(code, 0)
        self.assertIn("paired difference -2.00 ± 2.48, within noise", said)  # 4.303 / 3^1/2
        self.assertEqual(self.compare([50, 61, 72], [54, 64, 77])[0], 1)
        self.assertEqual(self.compare([54, 64, 77], [50, 61, 72])[0], 0)
        self.assertEqual(len(json.loads((self.folder / "out.json").read_text(encoding="utf-8"))["runs"]), 6)

    def test_printed_scores_that_are_not_those_of_the_predictions(self):
        data = self.folder / "data"
        data.mkdir()
        text = json.dumps({"data": [{"paragraphs": [{"context": "In Rome it rained.", "qas": QUESTIONS}]}]})
        (data / "dev.json").write_text(text, encoding="utf-8")
        asked = types.SimpleNamespace(task="squad", epochs=1, batch=1, lr=1, length=9, stride=1, weight_decay=0, clip_norm=1, threads=1)

        def evaluate(*words):
            words[4].parent.mkdir()
            words[4].write_text(json.dumps({"a": "Rome", "b": "snow"}), encoding="utf-8")
            return types.SimpleNamespace(stdout='{"f1": 50, "exact_match": 50}')

        with unittest.mock.patch.object(text_recipes.cli, "must_run", evaluate):
            for f1 in (50, 50.1):
                with unittest.mock.patch.object(text_recipes, "train_ours", return_value={"f1": f1, "exact_match": 50}):
                    if f1 == 50:
                        self.assertEqual(text_recipes.ours(asked, 1, self.folder, data), {"f1": 50, "exact_match": 50})
                    else:
                        with self.assertRaisesRegex(SystemExit, "sluice train prints f1 50.1"):
                            text_recipes.ours(asked, 1, self.folder, data)


if __name__ == "__main__":
    unittest.main()
