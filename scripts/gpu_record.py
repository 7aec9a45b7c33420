#!/usr/bin/env python3
"""Records results of scripts/gpu_check.sh in docs/how-to/gpu_check.md.

usage: scripts/gpu_record.py PAGE FILE

FILE has the rows of one run (gpu_results.md). They are added to the table under `## Results`, each once; the table of
checks shows the last result of each check.
Exit codes: 0 recorded, 2 a file cannot be read or has another form.
"""

import pathlib
import re
import sys

HEADING = "## Results"
COLUMNS = "| date | GPU | driver | part | check | result |\n|---|---|---|---|---|---|\n"
ROW = re.compile(r"\| (\d{4}-\d\d-\d\d) \| ([^|]+) \| ([^|]*) \| ([^|]+) \| `([a-z0-9_]+)` \| ([^|]+) \|")

LAST_RESULT = re.compile(r"\| (\d{4}-\d\d-\d\d), [^|]*\|$")


class RecordError(Exception):
    """A file that cannot be recorded: one sentence."""


def rows_of(text, name):
    """The rows of a file of results, as (whole line, match)."""
    rows = [(line, ROW.fullmatch(line)) for line in text.splitlines() if line.strip()]
    for line, match in rows:
        if match is None:
            raise RecordError(f"{name} has a line that is not a result: {line[:80]}; give the gpu_results.md of a run")
    if not rows:
        raise RecordError(f"{name} has no results; give the gpu_results.md of a run")
    return rows


def with_last_results(page, rows):
    """The rows of the table of checks, whose first cell is the check's name, end with the last result."""
    def is_older(match, line):
        known = LAST_RESULT.search(line)
        return known is not None and match[1] < known[1]

    def renewed(line):
        for _, match in reversed(rows):
            # Without a time the check was not run: what an earlier run showed is still the last result.
            not_run = match[6].startswith("not run") and "not run yet" not in line
            if line.startswith(f"| `{match[5]}` |") and not not_run and not is_older(match, line):
                return f"{line.rsplit('|', 2)[0]}| {match[1]}, {match[2]}: {match[6]} |"
        return line

    return "\n".join(renewed(line) for line in page.split("\n"))


def with_rows(page, rows):
    """The table of results with the new rows."""
    if HEADING not in page:
        page = f"{page.rstrip()}\n\n{HEADING}\n\n{COLUMNS}"
    new = [line for line, _ in rows if line not in page.split("\n")]
    head, results = page.split(HEADING, 1)
    if COLUMNS not in results:
        results = f"{results.rstrip()}\n\n{COLUMNS}"
    before, table = results.split(COLUMNS, 1)
    lines = table.split("\n")
    end = next((i for i, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return head + HEADING + before + COLUMNS + "\n".join(lines[:end] + new + lines[end:])


def recorded(page, text, name="the file"):
    rows = rows_of(text, name)
    head, heading, results = with_rows(page, rows).partition(HEADING)
    return with_last_results(head, rows) + heading + results


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    page, file = map(pathlib.Path, sys.argv[1:])
    try:
        text = recorded(page.read_text(encoding="utf-8"), file.read_text(encoding="utf-8"), file)
        page.write_text(text, encoding="utf-8")
    except (OSError, UnicodeDecodeError, RecordError) as error:
        print(f"gpu_record.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
