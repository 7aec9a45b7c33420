#!/usr/bin/env python3
"""scripts/clang_commands.py removes flags of GCC, and gives each file of a unit its own command."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from script_copy import REPOSITORY


class ClangCommandsTest(unittest.TestCase):
    def convert(self, entries):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")
        script = REPOSITORY / "scripts/clang_commands.py"
        subprocess.run([sys.executable, script, folder / "compile_commands.json", folder / "out"], check=True)
        return json.loads((folder / "out/compile_commands.json").read_text(encoding="utf-8"))

    def test_the_precompiled_header_goes_and_other_flags_stay(self):
        command = "c++ -O3 --param=ggc-min-heapsize=1048576 -fpch-preprocess -Winvalid-pch -include build/cmake_pch.hxx -o a.o -c src/a.cpp"
        converted = self.convert([{"directory": "build", "file": "src/a.cpp", "command": command}])
        self.assertEqual([entry["command"] for entry in converted], ["c++ -O3 -o a.o -c src/a.cpp"])

    def test_what_nvcc_compiles_is_left_out(self):
        self.assertEqual(self.convert([{"directory": "build", "file": "src/a.cu", "command": "nvcc -c src/a.cu"}]), [])

    def test_each_file_of_a_unit_has_its_command(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "a.dir/Unity"
        folder.mkdir(parents=True)
        unit = folder / "unity_0_cxx.cxx"
        unit.write_text('/* made */\n#include "/src/a.cpp"\n\n#include "/src/b.cpp"\n', encoding="utf-8")
        converted = self.convert([{"directory": "build", "file": str(unit), "command": f"c++ -O3 -c {unit}"}])
        self.assertEqual([entry["file"] for entry in converted], ["/src/a.cpp", "/src/b.cpp"])
        self.assertEqual([entry["command"] for entry in converted], ["c++ -O3 -c /src/a.cpp", "c++ -O3 -c /src/b.cpp"])


if __name__ == "__main__":
    unittest.main()
