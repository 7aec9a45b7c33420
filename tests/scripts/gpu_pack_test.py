#!/usr/bin/env python3
"""scripts/gpu_pack.sh with stand-ins for the programs and the loader: what is packed, what is tried, what is refused."""

import pathlib
import subprocess
import tarfile
import tempfile
import unittest

from gpu_check_test import TESTS
from script_copy import ScriptCopy

# As the loader does: a library is taken from the first folder of LD_LIBRARY_PATH that has it, otherwise from the system.
LDD = r"""IFS=: read -r -a folders <<<"$LD_LIBRARY_PATH"
for program in "$@"; do
  echo "$program:"
  for name in $FAKE_NEEDED; do
    found=
    for folder in "${folders[@]}" $FAKE_SYSTEM; do
      [[ -n $found || ! -e $folder/$name ]] || found=$folder/$name
    done
    [[ -n $found ]] && echo "	$name => $found (0x1)" || echo "	$name => not found"
  done
  echo "	/lib64/ld-linux-x86-64.so.2 (0x1)"
done
"""
# strip -o TO FROM
STRIP = """cp "$3" "$2" && echo '# stripped' >>"$2"
"""
SLUICE = """[[ $1 == devices && -e build/release/lib/libzmq.so.5 && ! -e .venv ]] || exit 9
"""
A_TEST = """[[ $1 == --gtest_list_tests ]] || exit 9
"""


class GpuPackTest(unittest.TestCase):
    def setUp(self):
        self.copy = self.enterContext(ScriptCopy())
        self.system = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="system")))
        torch = self.system / "site-packages/torch/lib"
        torch.mkdir(parents=True)
        for library in (torch / "libtorch.so", self.system / "libzmq.so.5", self.system / "libc.so.6"):
            library.write_text(library.name)
        self.copy.stand_in(".venv/bin/python", f"echo {torch}\n")
        for name, script in (("ldd", LDD), ("strip", STRIP)):
            self.copy.stand_in(self.copy.bin / name, script)
        self.copy.stand_in("build/release/sluice", SLUICE)
        for test in TESTS:
            self.copy.stand_in(f"build/release/tests/{test}", A_TEST)

    def pack(self, *arguments, **variables):
        known = {"FAKE_NEEDED": "libtorch.so libzmq.so.5 libc.so.6", "FAKE_SYSTEM": str(self.system)}
        return self.copy.run("gpu_pack.sh", *arguments, **{**known, **variables})

    def test_programs_and_the_libraries_that_the_other_machine_lacks(self):
        done = self.pack()
        self.assertEqual(done.returncode, 0, done.stderr)
        with tarfile.open(self.copy.root / ".gpu" / "build.tar.xz") as packed:
            files = {member.name for member in packed.getmembers() if member.isfile()}
            self.assertIn(b"# stripped", packed.extractfile("build/release/sluice").read())
        self.assertEqual(files, {"build/release/sluice", "build/release/lib/libzmq.so.5", *(f"build/release/tests/{test}" for test in TESTS)})
        self.assertRegex(done.stderr, f"1 MiB, {len(TESTS) + 1} programs, 1 libraries\n.*tried in an empty folder: sluice devices")

    def test_too_much_is_refused_and_nothing_is_left(self):
        (self.copy.root / "build/release/sluice").write_bytes(subprocess.run(["head", "-c", "3000000", "/dev/urandom"], capture_output=True, check=True).stdout)
        done = self.pack("out/build.tar.xz", SLUICE_GPU_PACK_MIB="2")
        self.assertEqual((done.returncode, "take 3 MiB packed, more than 2 MiB" in done.stderr), (70, True), done.stderr)
        self.assertEqual(list((self.copy.root / "out").iterdir()), [])

    def test_what_does_not_run_there_is_a_failure(self):
        self.copy.stand_in("build/release/sluice", "exit 127\n")
        done = self.pack()
        self.assertEqual((done.returncode, "the packed sluice does not run" in done.stderr), (70, True), done.stderr)

    def test_what_cannot_be_begun(self):
        for words, said in ((("--fast",), "'--fast'"), (("a", "b"), "'b'")):
            done = self.pack(*words)
            self.assertEqual((done.returncode, said in done.stderr), (2, True), done.stderr)
        done = self.pack(FAKE_NEEDED="libgone.so.1")
        self.assertEqual((done.returncode, "library libgone.so.1 of the programs was not found" in done.stderr), (2, True), done.stderr)
        (self.copy.root / "build/release/tests" / TESTS[0]).unlink()
        done = self.pack()
        self.assertEqual((done.returncode, f"{TESTS[0]} is missing" in done.stderr), (2, True), done.stderr)


if __name__ == "__main__":
    unittest.main()
