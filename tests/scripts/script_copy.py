"""A temporary copy of the repository's scripts, with stand-ins for the commands they call."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "scripts"))
from experiments.ranks import LAUNCHER_VARIABLES  # noqa: E402

# What a launcher or a user may have set around these tests.
FORGOTTEN = re.compile(f"SLUICE_|NCCL_|GLOO_|GOMP_SPINCOUNT$|{LAUNCHER_VARIABLES}")


class ScriptCopy:
    """A context: folder `root` holds scripts/ and what they read; folder `bin` comes first in PATH."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="sluice copy ")  # a blank in the path, as people have them
        self.root = pathlib.Path(self._folder.name) / "project"
        self.bin = pathlib.Path(self._folder.name) / "bin"
        self.bin.mkdir()
        shutil.copytree(REPOSITORY / "scripts", self.root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(REPOSITORY / ".ci", self.root / ".ci")
        for name in (".clang-format", ".clang-tidy", ".codespellrc", "CMakePresets.json"):
            shutil.copy(REPOSITORY / name, self.root / name)
        return self

    def __exit__(self, *_):
        self._folder.cleanup()

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def stand_in(self, path, script):
        """Makes an executable bash script; `path` is absolute or relative to the copy."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/bash\n" + script, encoding="utf-8")
        file.chmod(0o755)

    def environment(self, **variables):
        kept = {name: value for name, value in os.environ.items() if not FORGOTTEN.match(name)}
        ours = {
            "PATH": f"{self.bin}:/usr/bin:/bin:/usr/sbin:/sbin",
            "TMPDIR": str(self.bin.parent),
            "SLUICE_STATE_DIR": str(self.bin.parent / "started"),
        }
        return {**kept, **ours, **variables}

    def words(self, *command):
        """scripts/COMMAND[0] with its arguments."""
        return [str(self.root / "scripts" / command[0]), *map(str, command[1:])]

    def run(self, *command, cwd=None, **variables):
        """Runs scripts/COMMAND[0]; returns the finished process, its outputs as text."""
        return self.run_by(*self.words(*command), cwd=cwd or self.root, **variables)

    def run_by(self, *words, cwd, **variables):
        """Runs a command, such as a shell with a script, as run() does."""
        return subprocess.run(
            list(map(str, words)), cwd=cwd, env=self.environment(**variables), capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=250, check=False)

    def start(self, *command, **variables):
        """Starts scripts/COMMAND[0] in a session of its own; returns the process, its standard error as a pipe of text."""
        return subprocess.Popen(
            self.words(*command), cwd=self.root, env=self.environment(**variables), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
