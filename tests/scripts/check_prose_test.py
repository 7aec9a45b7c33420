#!/usr/bin/env python3
"""scripts/check_prose.py: planted violations are named, good prose is not."""

import unittest

import checked_folder

TREE = {
    "src/config/schema.cpp": '    {"train.lr", train<&C::lr>(), above(0), "", "learning rate"},\n',
    "src/app/commands/train.cpp": 'app.add_subcommand("train", "Train");\n',
    "src/core/error.h": "// error: what can go wrong (core/error.h, error.h).\nint x;  // of the plan, written out\n",
    "scripts/run.sh": "",
    "README.md": "# Sluice\n\nStart it with `sluice train`, as `scripts/run.sh` does; set `train.lr`, not `model.safetensors`.\n",
    "docs/index.md": "Short.\n\n```\n" + "word " * 60 + "\n```\n\n| " + "one two three. " * 20 + " | x |\n",
}
LONG = " ".join(["word"] * 36)
BAD = {
    "docs/a.md": [
        (f"It has {LONG}.", "a sentence of 38 words, more than 35"),
        (f"- an item\n- {LONG}", "a sentence of 36 words"),
        ("The server heeds it.", "'heeds': apply, or use"),
        ("Likewise for rank 1.", "'Likewise'"),
        ("Nobody waits.", "'Nobody': name the component"),
        ("A batch of 0 is none.", "'is none'"),
        ("See `scripts/gone.sh`.", "there is no scripts/gone.sh"),
        ("See docs/gone.md.", "there is no docs/gone.md"),
        ("Start `sluice trane`.", "there is no command `sluice trane`"),
        ("Set `train.rate = 1`.", "there is no key train.rate"),
    ],
    "src/core/a.h": [
        ("// Of the plan.", "a comment that begins with 'Of': name its subject"),
        ("int x;  // As above.", "a comment that begins with 'As above'"),
        ("// whoever reads it", "'whoever'"),
        ("// Made by gone.cpp.", "there is no gone.cpp"),
        ("// As src/core/gone.h says.", "there is no src/core/gone.h"),
    ],
}


def check(files):
    return checked_folder.check("check_prose.py", files)


class CheckProseTest(unittest.TestCase):
    def test_good_prose_passes(self):
        self.assertEqual(check(TREE), (0, []))

    def test_each_planted_violation_is_named(self):
        for path, violations in BAD.items():
            for text, expected in violations:
                with self.subTest(path=path, text=text):
                    code, lines = check(TREE | {path: text + "\n"})
                    self.assertEqual((code, len(lines)), (70, 1), lines)
                    self.assertTrue(lines[0].startswith(path + ":"), lines[0])
                    self.assertIn(expected, lines[0])


if __name__ == "__main__":
    unittest.main()
