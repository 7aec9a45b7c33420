#!/usr/bin/env python3
"""Prints docs/reference/cli.md, the page of all commands and options, from the output of `sluice --help`.

usage: scripts/cli_page.py BINARY > docs/reference/cli.md

An option with the same description in several commands is listed once, in a table at the top of the page.
Exit codes: 0 done, 2 bad usage, 70 the binary failed.
"""

import collections
import itertools
import re
import subprocess
import sys

HEAD = """# Command line

`sluice [OPTIONS] COMMAND` runs one command. This page is generated:
`scripts/cli_page.py build/release/sluice > docs/reference/cli.md`.

- `--help` prints the options of Sluice or of a command, with examples. `--version` prints the version.
- `--verbose` logs debug messages too. `--quiet` shows warnings, errors and the final summary only; `log.txt` has all.
- Each command also takes the options of [the second table](#options-of-several-commands). Those in bold are required.
- [exit_codes.md](exit_codes.md) lists the exit codes.
"""
SHARED = "\n## Options of several commands\n"
NAME_ALONE = re.compile(r" +\S+( [^\s(]+)*( \([^()]*\))+")  # a long name has a line to itself
PLAIN_SECTIONS = ("Options", "Positionals", "Example", "Examples")

Command = collections.namedtuple("Command", "name meaning rows")
Row = collections.namedtuple("Row", "section name meaning")


def help_of(binary, *command):
    words = [binary, *command, "--help"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError) as why:
        print(f"cli_page.py: {' '.join(words)}: {why}", file=sys.stderr)
        sys.exit(70)


def sections_of(lines):
    """{section: [[name, meaning]]} of the indented lines below each line that ends with a colon."""
    column = next(line.index("Print this help") for line in lines if "Print this help" in line)  # where meanings begin
    sections, entries = {}, None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if re.fullmatch(r" {0,2}\S+( \S+)*:", line):
            entries = sections.setdefault(line.strip()[:-1], [])
        elif not line.strip() or entries is None or (indent < column and line.lstrip().startswith("[")):
            continue
        elif indent >= column:
            entries[-1][1] = f"{entries[-1][1]} {line.strip()}".strip()
        elif indent >= 2:
            meaning_at = column + indent - 2  # a group within a command is indented by two more
            if NAME_ALONE.fullmatch(line) or not line[:meaning_at].endswith(" "):
                meaning_at = len(line)
            entries.append([line[:meaning_at].strip(), line[meaning_at:].strip()])
    return sections


def text_of(meaning):
    return re.sub(r"([|<*])", r"\\\1", meaning).rstrip(".")


def row_of(section, name, meaning):
    """Moves parentheses after the name ("required", a range, other options) behind the meaning."""
    notes = [part for note in re.findall(r" \(([^()]*)\)", name) for part in note.split("; ")]
    word = re.sub(r" \([^()]*\)", "", name).replace("|", "\\|")
    shown = f"**`{word}`**" if "required" in notes else f"`{word}`"
    notes = [note for note in notes if note != "required"]
    meaning = text_of(meaning)
    return Row("" if section in PLAIN_SECTIONS else section, shown, f"{meaning} ({'; '.join(notes)})" if notes else meaning)


def table(heads, rows):
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for section, group in itertools.groupby(rows, key=lambda row: row[0]):
        lines += [f"| *{section}:* |" + " |" * (len(heads) - 1)] if section else []
        lines += [f"| {' | '.join(row[1:])} |" for row in group]
    return "\n".join(lines) + "\n"


def command_of(binary, name, meaning):
    rows = (row_of(section, *entry) for section, entries in sections_of(help_of(binary, name)).items()
            if not section.startswith("Example") for entry in entries if not entry[0].startswith("-h,"))
    return Command(name, text_of(meaning), tuple(rows))


def page_of(binary):
    commands = [command_of(binary, *entry) for section, entries in sections_of(help_of(binary)).items()
                if section not in PLAIN_SECTIONS for entry in entries]
    times = collections.Counter(row for command in commands for row in command.rows)
    shared = [row for row, count in times.items() if count > 1]
    own = {command.name: [row for row in command.rows if row not in shared] for command in commands}
    named = [("", f"[`{command.name}`](#{command.name})" if own[command.name] else f"`{command.name}`", command.meaning)
             for command in commands]
    used = [(*row, ", ".join(f"`{command.name}`" for command in commands if row in command.rows)) for row in shared]
    page = f"{HEAD}\n{table(('command', 'what it does'), named)}{SHARED}\n{table(('option', 'meaning', 'commands'), used)}"
    return page + "".join(f"\n## {name}\n\n{table(('option', 'meaning'), rows)}" for name, rows in own.items() if rows)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        is_help = sys.argv[1:] in (["-h"], ["--help"])
        print(__doc__.strip(), file=sys.stdout if is_help else sys.stderr)
        return 0 if is_help else 2
    print(page_of(sys.argv[1]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
