#!/usr/bin/env python3
"""`sluice tokenize` beside PyPI's `tokenizers`: the tokens of lines, token files of every kind of text, what happens when
it is killed, and what is refused. Exits 77 without tokenizers.

    tokenize_test.py [unittest options]        SLUICE_BINARY names the binary
"""

import csv
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import long_tests
import sluice_cli as cli

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "text"))
import compare_with_tokenizers as peers  # noqa: E402  (exits 77)
from random_texts import random_texts  # noqa: E402

TEXTS = [text.replace("\0", "") for text in random_texts(400, 31)]
END = "<|endoftext|>"


def bpe():
    return peers.trained_bpe(pre_tokenizer=peers.pre_tokenizers.ByteLevel(add_prefix_space=False), special=[END], size=600)


class TokenizeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bert, cls.bpe = peers.wordpiece(True), bpe()

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "out"

    def tokenizer_file(self, tokenizer):
        file = self.folder / "tokenizer.json"
        tokenizer.save(str(file))
        return file

    def write(self, name, content):
        file = self.folder / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def words(self, *files, tokenizer=None, out=None):
        return ("tokenize", *files, "--tokenizer", self.tokenizer_file(tokenizer or self.bpe), "--out", out or self.out)

    def documents_of(self, file):
        """The documents of a token file, read as docs/reference/tokenizers.md describes it."""
        content = (self.out / file).read_bytes()
        self.assertEqual(content[:8], b"SLUICETK")
        width = int(np.frombuffer(content, "<u4", 1, 12)[0])
        tokens, documents = map(int, np.frombuffer(content, "<u8", 2, 16))
        ids = np.frombuffer(content, f"<u{width}", tokens, 136)
        ends = np.frombuffer(content, "<u8", documents, len(content) - 8 * documents)
        return [ids[begin:end].tolist() for begin, end in zip([0, *ends], ends)]

    def expected(self, texts, end=END, tokenizer=None, special=False):
        tokenizer = tokenizer or self.bpe
        tail = [tokenizer.token_to_id(end)] if end else []
        return [encoding.ids + tail for encoding in tokenizer.encode_batch(texts, add_special_tokens=special)]

    def assert_refused(self, done, code, *parts):
        self.assertEqual(done.returncode, code, done.stderr)
        for part in parts:
            self.assertIn(str(part), cli.error_of(done))

    # Of lines of standard input.

    def lines(self, content, *options, tokenizer=None):
        words = [cli.BINARY, "tokenize", "--tokenizer", self.tokenizer_file(tokenizer or self.bert), "--json", *options]
        return subprocess.run(words, input=content, capture_output=True, check=False)

    def assert_lines(self, encodings, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(found, [{"ids": one.ids, "offsets": [list(pair) for pair in one.offsets]} for one in encodings])

    def test_lines_have_the_tokens_and_offsets_of_tokenizers(self):
        texts = [text.replace("\n", " ") for text in TEXTS] + ["", " ", "caf\u00e9 \U0001f600 a\u0301b", "last"]
        for tokenizer in (self.bert, self.bpe):
            done = self.lines("\n".join(texts).encode(), tokenizer=tokenizer)
            self.assert_lines(tokenizer.encode_batch(texts), done)
        self.assert_lines([], self.lines(b""))
        self.assert_lines(self.bert.encode_batch(["a", ""]), self.lines(b"a\n\n"))

    def test_pairs(self):
        texts = [text.replace("\n", " ").replace("\t", " ") for text in TEXTS]
        pairs = list(zip(texts, reversed(texts)))
        done = self.lines("\n".join("\t".join(pair) for pair in pairs).encode(), "--pair")
        self.assert_lines(self.bert.encode_batch(pairs), done)
        done = self.lines(b"a\tb\na b\n", "--pair")
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"standard input: line 2 is not two texts with a tab between them", done.stderr)

    def test_invalid_utf8_of_lines(self):
        texts = [b"a\xffb", b"\xe2\x82", b"\xf0\x9f\x98 x"]
        self.assert_lines(self.bert.encode_batch([text.decode(errors="replace") for text in texts]), self.lines(b"\n".join(texts)))

    def test_a_line_is_answered_at_once(self):
        words = ["tokenize", "--tokenizer", self.tokenizer_file(self.bert), "--json"]
        process = cli.start(*words, stdin=subprocess.PIPE)
        process.stdin.write("hello\n")
        process.stdin.flush()
        self.assertEqual(json.loads(process.stdout.readline())["ids"], self.bert.encode("hello").ids)
        cli.finish(process)

    # Of token files.

    def test_plain_text(self):
        paragraphs = ["one\ntwo", "three  \n four", "five"]
        content = "\n\n".join(paragraphs) + "\n"
        file = self.write("a.txt", content)
        for rule, texts in (("file", [content]), ("line", [line for line in content.split("\n") if line]), ("blank", paragraphs)):
            self.out = self.folder / rule
            cli.must_run(*self.words(file), "--documents", rule)
            self.assertEqual(self.documents_of("a.tokens"), self.expected(texts), rule)

    def test_tables_and_json_lines_on_any_number_of_threads(self):
        rows = [{"id": i, "body": text} for i, text in enumerate(TEXTS * 10)]
        self.write("a.jsonl", "".join(json.dumps(row, ensure_ascii=i % 2 == 0) + "\n" for i, row in enumerate(rows)))
        with open(self.folder / "b.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["id", "body"])
            writer.writeheader()
            writer.writerows(rows)
        plain = [text for text in TEXTS if not set(text) & set("\t\r\n")] * 10 + ['"quotes" and one "']
        self.write("c.tsv", "id\tbody\n" + "".join(f"{i}\t{text}\n" for i, text in enumerate(plain)))
        files = [self.folder / name for name in ("a.jsonl", "b.csv", "c.tsv")]
        wanted = [[text for text in of_file if text] for of_file in (TEXTS * 10, TEXTS * 10, plain)]
        for threads in (1, 3):
            self.out = self.folder / f"threads{threads}"
            done = cli.must_run(*self.words(*files), "--column", "body", "--threads", threads, "--json")
            for name, texts, result in zip("abc", wanted, json.loads(done.stdout)["files"], strict=True):
                documents = self.documents_of(f"{name}.tokens")
                self.assertEqual(documents, self.expected(texts), name)
                self.assertEqual((result["documents"], result["tokens"]), (len(texts), sum(map(len, documents))))

    def test_ends_and_special_tokens(self):
        file = self.write("a.txt", "hello\nworld\n")
        for options, expected in (
                ((), self.expected(["hello", "world"], None, self.bert)),  # BERT has no end of text
                (("--end-token", "[SEP]"), self.expected(["hello", "world"], "[SEP]", self.bert)),
                (("--special-tokens",), self.expected(["hello", "world"], None, self.bert, special=True))):
            self.out = self.folder / "-".join(("bert", *options))
            cli.must_run(*self.words(file, tokenizer=self.bert), "--documents", "line", *options)
            self.assertEqual(self.documents_of("a.tokens"), expected, options)
        self.out = self.folder / "none"
        cli.must_run(*self.words(file), "--documents", "line", "--end-token", "none")
        self.assertEqual(self.documents_of("a.tokens"), self.expected(["hello", "world"], None))
        self.assert_refused(cli.run(*self.words(file), "--end-token", "</s>"), 2, 'no token "</s>"')

    def test_invalid_utf8_is_a_warning(self):
        file = self.write("a.txt", b"caf\xe9\nfine\n")
        done = cli.must_run(*self.words(file), "--documents", "line")
        self.assertIn("1 document had invalid UTF-8, read as U+FFFD", done.stderr)
        self.assertEqual(self.documents_of("a.tokens"), self.expected(["caf\ufffd", "fine"]))

    # Of interruptions.

    def long_text(self, name="a.txt"):
        return self.write(name, "".join(line + "\n" for text in TEXTS for line in text.split("\n")) * 100)

    def test_killed_at_any_point_it_goes_on_to_the_same_bytes(self):
        files = [self.long_text(), self.write("b.txt", "short\n")]
        cli.must_run(*self.words(*files, out=self.folder / "whole"), "--documents", "line")
        few = (("tokenize-batch:2", True), ("tokenize-renamed:1", False), ("tokenize-finish:2", True))
        more = (("tokenize-batch:1", False), ("tokenize-save:1", True), ("tokenize-save:2", True), ("tokenize-finish:1", True))
        for point, goes_on in long_tests.some(few, few + more, "two starts each"):
            with self.subTest(point=point):
                self.out = self.folder / point
                words = (*self.words(*files), "--documents", "line")
                died = cli.run(*words, env=dict(os.environ, SLUICE_KILL_AT=point))
                self.assertEqual(died.returncode, -signal.SIGKILL, died.stderr)
                done = cli.must_run(*words, "--json")
                self.assertEqual("going on with" in done.stderr, goes_on, done.stderr)
                finished = [file["was_finished"] for file in json.loads(done.stdout)["files"]]
                self.assertEqual(finished, [point in ("tokenize-renamed:1", "tokenize-finish:2"), False])
                self.assertEqual(sorted(os.listdir(self.out)), [".lock", "a.tokens", "b.tokens"])
                for name in ("a.tokens", "b.tokens"):
                    self.assertEqual((self.out / name).read_bytes(), (self.folder / "whole" / name).read_bytes())

    def test_what_is_finished_is_not_done_again(self):
        file = self.write("a.txt", "hello\n")
        cli.must_run(*self.words(file))
        before = (self.out / "a.tokens").stat()
        self.assertIn("was finished", cli.must_run(*self.words(file)).stdout)
        after = (self.out / "a.tokens").stat()
        self.assertEqual((before.st_ino, before.st_mtime_ns), (after.st_ino, after.st_mtime_ns))

    def test_other_options_or_text_do_not_replace_a_token_file(self):
        file = self.write("a.txt", "hello\n")
        cli.must_run(*self.words(file))
        for words in long_tests.some((self.words(file, tokenizer=self.bert),),
                                     ((*self.words(file), "--end-token", "none"), self.words(file, tokenizer=self.bert)), "one start each"):
            self.assert_refused(cli.run(*words), 2, "a.tokens was made from another text, or with another tokenizer", "another --out")
        (self.out / "a.tokens").write_bytes((self.out / "a.tokens").read_bytes()[:-1])
        self.assert_refused(cli.run(*self.words(file)), 2, "a.tokens: is cut short", "remove it")
        (self.out / "a.tokens").unlink()
        cli.must_run(*self.words(file))
        file.write_text("hullo\n")
        self.assert_refused(cli.run(*self.words(file)), 2, "was made from another text")

    # Of errors.

    def test_a_full_disk(self):
        file = self.long_text()

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, resource.RLIM_INFINITY))
        done = cli.run(*self.words(file), "--documents", "line", preexec_fn=limit)
        self.assert_refused(done, 8, "cannot write", "a.tokens.part", "ulimit -f")
        self.assertIn("going on with", cli.must_run(*self.words(file), "--documents", "line").stderr)
        cli.must_run(*self.words(file, out=self.folder / "whole"), "--documents", "line")
        self.assertEqual((self.out / "a.tokens").read_bytes(), (self.folder / "whole/a.tokens").read_bytes())

    def test_a_line_of_10_gigabytes_takes_no_memory(self):
        file = self.write("a.txt", "short\n")
        os.truncate(file, 10 << 30)  # sparse
        process = cli.start(*self.words(file), "--documents", "line")
        done = cli.finish(process)
        self.assert_refused(done, 3, "a.txt: line 2 has more than 64.0 MiB, too much for one document; split it")
        # In KiB: ASan keeps freed memory, 1.3 GiB in all.
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 2 << 20)

    def test_bad_inputs(self):
        os.mkfifo(self.folder / "fifo")
        table = self.write("b.csv", "id,body\n1,x\n")
        plain = self.write("a.txt", "x\n")
        (self.folder / "other").mkdir()
        few = (([self.write("empty.txt", "")], 3, "empty.txt: is empty; leave it out"),
               ([self.folder / "fifo"], 3, "fifo: is not a regular file"),
               ([table], 3, 'b.csv: has no column "text", but "id", "body"; choose one with --column'),
               ([plain, self.write("other/a.md", "y")], 2, "would both become"))
        more = (([self.write("blank.csv", "text\n\n")], 3, "blank.csv: has no text; leave it out"),
                ([self.folder / "missing.txt"], 3, "missing.txt: cannot be read: No such file"),
                ([self.write("c.jsonl", '{"text": "a"}\n{"text"\n')], 3, "c.jsonl: line 2 is not a JSON object"))
        for files, code, part in long_tests.some(few, few + more, "one start each"):
            self.assert_refused(cli.run(*self.words(*files)), code, part)
        self.assert_refused(cli.run("tokenize", plain, "--tokenizer", self.folder / "no.json", "--out", self.out), 3, "no.json: cannot be read")
        self.assert_refused(cli.run("tokenize", plain, "--tokenizer", plain), 2, "needs --out DIR")
        self.assert_refused(cli.run("tokenize", "--tokenizer", plain), 2, "needs FILES and --out, or --json")
        self.assert_refused(cli.run(*self.words(plain), "--pair"), 2, "--pair is for the lines of standard input")
        self.assert_refused(cli.run(*self.words(plain, out=plain)), 8, "a.txt")


if __name__ == "__main__":
    unittest.main()
