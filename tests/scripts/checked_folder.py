"""Runs one of the repository's source checks over a folder made for a test."""

import pathlib
import subprocess
import sys
import tempfile

from script_copy import REPOSITORY


def check(script, files, *options):
    """Exit code and lines of scripts/SCRIPT over a folder with just these files: {path: text}."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        command = [sys.executable, str(REPOSITORY / "scripts" / script), *options, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()
