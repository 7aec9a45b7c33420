#!/usr/bin/env python3
"""Checks documentation and comments: long sentences, banned words, and names of things that do not exist.

usage: scripts/check_prose.py [ROOT]

In README.md and docs/: sentences of at most 35 words; no banned words; files, commands (`sluice NAME`) and configuration
keys (`table.key`) exist. In comments of src/ and models/: no banned words; files exist.
Code blocks and docs/reference/configuration.md (generated) are not measured.
Exit codes: 0 nothing found, 70 findings (one line each).
"""

import pathlib
import re
import sys

MOST_WORDS = 35
GENERATED = {"docs/reference/configuration.md", "docs/reference/cli.md"}
BANNED = {
    r"\bheed(s|ed)?\b": "apply, or use",
    r"\blikewise\b": "name what is the same",
    r"\bwhere it cannot be\b": "if",
    r"\bnobody\b": "name the component",
    r"\bsomebody\b": "name the component",
    r"\bwhoever\b": "name the component",
    r"\bis none\b": "name what it is not",
}
STARTS = re.compile(r"^(Of|Those|As above)\b")  # of a comment: the half of a sentence that needs the other half

COMMENT = re.compile(r"(?:^|[\s;{}),])//+ ?(.*)$")
FILE = re.compile(r"(?<![\w/.<])((?:[\w.-]+/)*[\w-]+\.(?:h|cpp|cuh?|py|sh|md))\b(?![\w/*{]|\.\w)")
ROOTED = ("src/", "docs/", "scripts/", "tests/", "bench/", "models/", "cmake/", "examples/")
COMMAND = re.compile(r"`sluice ([a-z][a-z-]*)")
KEY = re.compile(r"`([a-z]+)\.(?!(?:txt|json|jsonl|toml|csv|bin|log|safetensors)\b)([a-z][a-z0-9_]*)(?: *=[^`]*)?`")
ROW = re.compile(r'^\s*\{"([a-z]+)\.([a-z0-9_]+)",', re.MULTILINE)
SUBCOMMAND = re.compile(r'add_subcommand\(\s*"([a-z-]+)"|listing\(app, "([a-z-]+)"')
WORD = re.compile(r"\w[\w'%-]*")


class Tree:
    """Names of the files, commands and keys in the repository."""

    def __init__(self, root):
        self.root = root
        self.files = [path.relative_to(root).as_posix() for path in root.rglob("*")
                      if path.is_file() and not path.relative_to(root).parts[0] in {".git", ".venv", "build", "shared"}]
        self.names = {path.rsplit("/", 1)[-1] for path in self.files}
        self.endings = {"/".join(path.split("/")[i:]) for path in self.files for i in range(path.count("/") + 1)}
        self.keys, self.commands = {}, set()
        for path in sorted((root / "src" / "config").glob("*.cpp")):
            for table, key in ROW.findall(path.read_text(encoding="utf-8")):
                self.keys.setdefault(table, set()).add(key)
        for path in sorted((root / "src" / "app").rglob("*.cpp")):
            self.commands |= {name for pair in SUBCOMMAND.findall(path.read_text(encoding="utf-8")) for name in pair if name}

    def lacks_file(self, name, beside):
        if name.startswith(ROOTED):
            return name not in self.files
        return name not in self.endings and not (beside / name).exists()


def sentences_of(text):
    """Yields (line, sentence) outside of code blocks; list items, table cells and headings end a sentence."""
    blocks, block, begin, in_code = [], [], 1, False

    def close():
        if block:
            blocks.append((begin, " ".join(block)))
            block.clear()

    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
            close()
        elif in_code:
            continue
        elif line.lstrip().startswith("|"):
            close()
            blocks += [(number, cell) for cell in line.strip(" |").split("|")]
        else:
            if not line.strip() or re.match(r"\s*([-*#>]|\d+\.)\s", line) or line.startswith("#"):
                close()
            if line.strip():
                if not block:
                    begin = number
                block.append(line.strip())
    close()
    for number, words in blocks:
        plain = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "x", words))
        for sentence in re.split(r"(?<=[.!?:;])\s+", plain):
            yield number, sentence


def text_defects(text):
    for pattern, instead in BANNED.items():
        if found := re.search(pattern, text, re.IGNORECASE):
            yield f"'{found.group()}': {instead}"


def page_defects(tree, path, relative):
    text = path.read_text(encoding="utf-8")
    if relative not in GENERATED:
        for number, sentence in sentences_of(text):
            if (length := len(WORD.findall(sentence))) > MOST_WORDS:
                yield number, f"a sentence of {length} words, more than {MOST_WORDS}: {sentence[:60]}..."
            for what in text_defects(sentence):
                yield number, what
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        in_code ^= line.lstrip().startswith("```")
        for name in FILE.findall(line) if not in_code else ():
            if name.startswith(ROOTED) and tree.lacks_file(name, path.parent):
                yield number, f"there is no {name}"
        for name in COMMAND.findall(line):
            if name not in tree.commands:
                yield number, f"there is no command `sluice {name}`"
        for table, key in KEY.findall(line):
            if table in tree.keys and key not in tree.keys[table]:
                yield number, f"there is no key {table}.{key}"


def comment_defects(tree, path):
    before = -1  # number of the last line with a comment
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        found = COMMENT.search(line)
        if not found or re.search(r'"[^"]*//[^"]*"', line):
            continue
        comment = found.group(1)
        goes_on = before == number - 1 and line.lstrip().startswith("//")
        if not goes_on and (start := STARTS.match(comment)):
            yield number, f"a comment that begins with '{start.group()}': name its subject"
        before = number
        for what in text_defects(comment):
            yield number, what
        for name in FILE.findall(comment):
            if tree.lacks_file(name, path.parent):
                yield number, f"there is no {name}"


def defects_of(root):
    tree = Tree(root)
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        if path.is_file():
            relative = path.relative_to(root).as_posix()
            for number, what in page_defects(tree, path, relative):
                yield relative, number, what
    for folder in ("src", "models"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".h", ".cpp", ".cu", ".cuh"}:
                for number, what in comment_defects(tree, path):
                    yield path.relative_to(root).as_posix(), number, what


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    found = [f"{path}:{number}: error: {what}" for path, number, what in defects_of(root)]
    for line in found:
        print(line)
    return 70 if found else 0


if __name__ == "__main__":
    sys.exit(main())
