"""The folder of an experiment: what it was asked for, and a row of results.csv for every run that is done.

  experiment.json   the options; a call with others is refused
  results.csv       a row a run, durable before the next run begins; a row that is there is not measured again
  NAME/             a run's logs and run directory
  table.md, table.tex, *.png, *.pdf   made from the rows at the end
"""

import csv
import fcntl
import hashlib
import io
import json
import os
import shutil

FIRST_COLUMNS = ["run", "settings", "program", "outcome", "wall_s"]


class Refused(Exception):
    """The folder does not fit the request, or the input of the experiment is missing."""

    def __init__(self, sentence, code=2):
        super().__init__(sentence)
        self.code = code


class Record:
    """Finished rows and their folder, which stays locked for the lifetime of the object."""

    def __init__(self, folder, asked, columns):
        self.folder = folder
        self.columns = FIRST_COLUMNS + columns
        self.rows = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            there = set(os.listdir(folder))
        except OSError as error:
            raise Refused(f"--out {folder}: {error.strerror}: give a folder that can be written") from None
        if there - {".lock", "experiment.json.new"} and "experiment.json" not in there:
            raise Refused(f"--out {folder} exists and is not the folder of an experiment: give another folder")
        self._lock()
        self._compare(json.loads(json.dumps(asked, default=str)))
        self._read()

    def _lock(self):
        self.lock = open(self.folder / ".lock", "w", encoding="utf-8")  # closed with the process
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"--out {self.folder} is in use by another experiment.py: wait for it, or give another folder") from None

    def _compare(self, asked):
        path = self.folder / "experiment.json"
        if not path.exists():
            write_whole(path, json.dumps(asked, indent=2) + "\n")
            return
        there = json.loads(path.read_text(encoding="utf-8"))
        for name in {**there, **asked}:
            if there.get(name) != asked.get(name):
                raise Refused(f"--out {self.folder} exists already, of an experiment with {name} = {json.dumps(there.get(name))} and not "
                              f"{json.dumps(asked.get(name))}: give another folder, or the same settings to go on")

    def _read(self):
        self.path = self.folder / "results.csv"
        if not self.path.exists():
            write_whole(self.path, csv_line(self.columns))
        text = self.path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if len(whole) < len(text):  # its writer was killed
            write_whole(self.path, whole)
        reader = csv.DictReader(io.StringIO(whole))
        self.rows = [{name: number_or_text(value) for name, value in row.items()} for row in reader]
        if reader.fieldnames != self.columns:
            raise Refused(f"{self.path} has other columns than this version of experiment.py writes: give another folder")

    def row_of(self, planned):
        digest = settings_digest(planned)
        return next((row for row in self.rows if row["run"] == planned.name and row["settings"] == digest), None)

    def fresh_folder(self, planned):
        """An empty folder for a run; removes the remains of a killed one."""
        folder = self.folder / planned.name
        if folder.exists():
            shutil.rmtree(folder)
        return folder

    def add(self, planned, row):
        row = {"run": planned.name, "settings": settings_digest(planned), **planned.columns, **row}
        unknown = set(row) - set(self.columns)
        assert not unknown, unknown
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(csv_line([text_of(row.get(name)) for name in self.columns]))
            file.flush()
            os.fsync(file.fileno())
        self.rows.append({name: number_or_text(text_of(row.get(name))) for name in self.columns})


def settings_digest(planned):
    told = [planned.config, planned.processes, planned.sets]
    told += [more for more in (planned.program, planned.network) if more]
    text = json.dumps(told, sort_keys=True, default=str)
    return "s" + hashlib.sha256(text.encode()).hexdigest()[:12]  # with a letter no spreadsheet takes it for a number


def write_whole(path, text):
    """Writes the file atomically."""
    new = path.with_name(path.name + ".new")
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def csv_line(values):
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()


def text_of(value):
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else " ".join(str(value).split("\n"))


def number_or_text(text):
    """The inverse of text_of(); None for an empty cell."""
    if text in ("", None):
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
