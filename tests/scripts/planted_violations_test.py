#!/usr/bin/env python3
"""scripts/check.sh on a temporary copy: clean sources pass, and each planted violation makes its check fire."""

import json
import shutil
import sys
import unittest

import long_tests
from script_copy import REPOSITORY, ScriptCopy

TOOLS = ("clang-format-14", "clang-tidy-19", "codespell", "shellcheck")

CLEAN = """\
#include "core/counter.h"

namespace sluice {

constexpr int kFirst = 1;

int Counter::next() { return value_ += kFirst; }

}  // namespace sluice
"""
CLEAN_HEADER = """\
#pragma once

namespace sluice {

enum class Colour { kRed };

class Counter {
 public:
  int next();

 private:
  int value_ = 0;
};

}  // namespace sluice
"""
LONG_FUNCTION = "int sum(int x) {\n" + "  x += 1;\n" * 61 + "  return x;\n}\n"
BRANCHES = "int pick(int x) {\n" + "".join(f"  if (x == {i}) return {i + 1};\n" for i in range(13)) + "  return x;\n}\n"

# name of the planting: (check, file, its text, what the check must say)
PLANTED = {
    "format": ("format", "src/core/bad.cpp", "int   f( ){return 1;}\n", "clang-format-violations"),
    "function name": ("tidy", "src/core/counter.cpp", CLEAN + "int BadName() { return 1; }\n", "invalid case style for function 'BadName'"),
    "constant name": ("tidy", "src/core/counter.cpp", CLEAN.replace("kFirst", "first"), "'first' [readability-identifier-naming"),
    "member name": ("tidy", "src/core/counter.h", CLEAN_HEADER.replace("value_", "value"), "'value' [readability-identifier-naming"),
    "enumerator name": ("tidy", "src/core/counter.h", CLEAN_HEADER.replace("kRed", "RED"), "invalid case style for enum constant 'RED'"),
    "type name": ("tidy", "src/core/counter.h", CLEAN_HEADER + "struct bad_type {};\n", "invalid case style for struct 'bad_type'"),
    "null pointer": ("tidy", "src/core/counter.cpp", CLEAN + "int* none() { return 0; }\n", "modernize-use-nullptr"),
    "long function": ("limits", "src/core/bad.cpp", LONG_FUNCTION, "sum has 64 NLOC"),
    "complex function": ("limits", "src/core/bad.cpp", BRANCHES, "14 CCN"),
    "long file": ("limits", "src/core/bad.cpp", "\n" * 401, "401 lines, at most 400"),
    "bad include": ("includes", "src/core/bad.cpp", '#include "device/stream.h"\n', "'core' may not include 'device'"),
    "CUDA": ("includes", "src/core/bad.cpp", "#ifdef SLUICE_WITH_CUDA\n#endif\n", "CUDA is asked for outside"),
    "spelling": ("spelling", "src/core/bad.cpp", "// to rec" + "ieve\n", "receive"),
    "spelling in a module called data": ("spelling", "src/data/bad.cpp", "// to rec" + "ieve\n", "receive"),
    "prose": ("prose", "src/core/bad.h", "int x;  // As above.\n", "a comment that begins with 'As above'"),
    "shell": ("shell", "scripts/bad.sh", "#!/bin/bash\nrm $1\n", "SC2086"),
}


class PlantedViolationsTest(unittest.TestCase):
    def setUp(self):
        self.copy = self.enterContext(ScriptCopy())
        (self.copy.root / ".venv").symlink_to(REPOSITORY / ".venv")
        self.copy.write("src/core/counter.cpp", CLEAN)
        self.copy.write("src/core/counter.h", CLEAN_HEADER)
        # As GCC leaves it: a forced include whose compiled form clang cannot read.
        header = self.copy.root / "build/release/cmake_pch.hxx"
        self.copy.write("build/release/cmake_pch.hxx", "#error not for clang\n")
        self.copy.write("build/release/cmake_pch.hxx.gch", "gcc's own")
        source = self.copy.root / "src/core/counter.cpp"
        command = ["c++", "-std=c++20", f"-I{self.copy.root}/src", "-fpch-preprocess", "-Winvalid-pch", "-include", str(header)]
        command = " ".join(f"'{word}'" for word in [*command, "-o", "counter.o", "-c", str(source)])
        commands = [{"directory": str(self.copy.root / "build/release"), "command": command, "file": str(source)}]
        self.copy.write("build/release/compile_commands.json", json.dumps(commands))

    @long_tests.only("20 s; scripts_check_fast checks them, too")
    def test_clean_sources_pass_every_check(self):
        done = self.copy.run("check.sh")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for name in ("format", "includes", "prose", "units", "limits", "spelling", "shell", "tidy"):
            self.assertIn(f"check.sh: {name}: ok", done.stderr)

    def test_each_planted_violation_fires(self):
        for name, (check, path, text, expected) in PLANTED.items():
            with self.subTest(planting=name):
                file = self.copy.root / path
                before = file.read_text(encoding="utf-8") if file.exists() else None
                self.copy.write(path, text)
                done = self.copy.run("check.sh", check)
                self.assertEqual(done.returncode, 70, done.stdout + done.stderr)
                self.assertIn(expected, done.stdout + done.stderr)
                if before is None:
                    file.unlink()
                else:
                    self.copy.write(path, before)


if __name__ == "__main__":
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent or not (REPOSITORY / ".venv/bin/lizard").exists():
        print(f"skipped: {', '.join(absent) or 'lizard'} missing; scripts/bootstrap.sh --check-tools installs it")
        sys.exit(77)
    unittest.main()
