#!/usr/bin/env python3
"""scripts/bootstrap.sh with stand-ins for apt, dpkg, Python, pip, CMake and Ninja: what it calls, and what it says."""

import subprocess
import unittest

from script_copy import ScriptCopy

# Each stand-in writes its name and arguments to calls.txt; packages.txt holds what "is installed".
CALLED = 'echo "${0##*/} $*" >>"$STATE/calls.txt"\n'
DPKG_QUERY = 'touch "$STATE/packages.txt"; sed "s/^/installed /" "$STATE/packages.txt"\n'
APT_GET = CALLED + """
for word in "$@"; do [[ $word != install ]] || install=1; done
[[ -n ${install:-} ]] || exit 0
sleep "${APT_SECONDS:-0}"
[[ -z ${APT_ERROR:-} ]] || { echo "$APT_ERROR"; exit 100; }
for word in "$@"; do [[ $word == -* || $word == *=* ]] || echo "$word" >>"$STATE/packages.txt"; done
"""
# python3 -m venv makes a .venv whose python does what pip and the verification would.
PYTHON3 = CALLED + """
[[ $* == *"-m venv"* ]] || exit 0
rm -rf .venv; mkdir -p .venv/bin; cp "$STATE/venv_python" .venv/bin/python
"""
VENV_PYTHON = CALLED + """
case $* in
  *"pip install"*)
    site=.venv/lib/python3.11/site-packages
    mkdir -p "$site/torch/lib"; touch "$site/torch/lib/libtorch_cpu.so"
    [[ -z ${PIP_ERROR:-} ]] || { echo "$PIP_ERROR"; touch .venv/half; exit 1; }
    for word in "$@"; do [[ $word != *==* ]] || mkdir -p "$site/${word/==/-}.dist-info"; done
    for tool in cmake ninja; do cp "$STATE/tool" ".venv/bin/$tool"; done ;;
  *verify_venv.py*) [[ ! -e .venv/half ]] ;;
esac
"""
TOOL = CALLED + 'mkdir -p build/release; touch build/release/build.ninja; echo "${WORK:-no work to do}"\n'


class BootstrapTest(unittest.TestCase):
    def setUp(self):
        self.copy = self.enterContext(ScriptCopy())
        self.state = self.copy.bin.parent
        for name, script in {"dpkg-query": DPKG_QUERY, "apt-get": APT_GET, "dpkg": CALLED, "python3": PYTHON3}.items():
            self.copy.stand_in(self.copy.bin / name, script)
        self.copy.stand_in(self.copy.bin / "id", "echo ${USER_ID:-0}\n")
        self.copy.stand_in(self.copy.bin / "sudo", "exit 1\n")
        self.copy.stand_in(self.copy.bin / "df", 'echo Avail; echo "${FREE_KIB:-99999999}"\n')
        self.copy.stand_in(self.state / "venv_python", VENV_PYTHON)
        self.copy.stand_in(self.state / "tool", TOOL)

    def bootstrap(self, *arguments, **variables):
        return self.copy.run("bootstrap.sh", *arguments, STATE=str(self.state), **variables)

    def calls(self, beginning):
        file = self.state / "calls.txt"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [line for line in lines if line.startswith(beginning)]

    def test_a_second_run_installs_and_builds_nothing(self):
        first = self.bootstrap()
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(len(self.calls("python -m pip install")), 1)
        (self.state / "calls.txt").unlink()
        second = self.bootstrap()
        self.assertEqual((second.returncode, second.stdout, second.stderr), (0, "", ""))
        for command in ("apt-get", "python -m pip", "cmake --preset", "cmake --build"):
            self.assertEqual(self.calls(command), [])

    def test_check_tools_are_installed_on_demand_only(self):
        self.bootstrap("--no-build")
        self.assertNotIn("clang-tidy", (self.state / "packages.txt").read_text(encoding="utf-8"))
        self.bootstrap("--no-build", "--check-tools")
        self.assertIn("clang-tidy", (self.state / "packages.txt").read_text(encoding="utf-8"))

    def test_plots_are_installed_on_demand_only(self):
        self.bootstrap("--no-build")
        self.assertFalse([call for call in self.calls("python -m pip install") if "matplotlib" in call])
        for _ in range(2):
            self.bootstrap("--no-build", "--plots")
            self.assertEqual(len([call for call in self.calls("python -m pip install") if "matplotlib" in call]), 1)

    def test_only_the_command_is_built_unless_the_tests_are_asked_for(self):
        self.bootstrap(WORK="[1/40]")
        self.assertNotIn("libgtest-dev", (self.state / "packages.txt").read_text(encoding="utf-8"))
        self.assertEqual(len(self.calls("cmake --preset release -D SLUICE_TESTS=OFF")), 1)
        self.assertTrue(self.calls("cmake --build")[-1].endswith("--target sluice"), self.calls("cmake --build"))
        self.bootstrap("--tests", WORK="[1/99]")
        self.assertIn("libgtest-dev", (self.state / "packages.txt").read_text(encoding="utf-8"))
        self.assertEqual(len(self.calls("cmake --preset release -D SLUICE_TESTS=ON")), 1)
        self.assertTrue(self.calls("cmake --build")[-1].endswith("--target all"), self.calls("cmake --build"))

    def test_a_folder_that_has_the_tests_keeps_them(self):
        self.bootstrap("--tests")
        (self.state / "calls.txt").unlink()
        self.bootstrap(WORK="[1/40]")
        self.assertEqual(self.calls("cmake --preset"), [])
        self.assertTrue(self.calls("cmake --build")[-1].endswith("--target sluice"), self.calls("cmake --build"))

    def test_without_root_it_names_the_packages_and_the_command(self):
        done = self.bootstrap(USER_ID="1000")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("run as root: apt-get update && apt-get install -y", done.stderr)
        self.assertIn("libspdlog-dev", done.stderr)
        self.assertEqual(self.calls("apt-get"), [])

    def test_an_interrupted_pip_leaves_no_stamp_and_is_repaired(self):
        failed = self.bootstrap(PIP_ERROR="killed")
        self.assertEqual(failed.returncode, 70)
        self.assertEqual(list((self.copy.root / ".venv").glob(".sluice-*")), [])
        repaired = self.bootstrap()
        self.assertEqual(repaired.returncode, 0, repaired.stderr)
        self.assertIn("did not finish: making it again", repaired.stderr)
        self.assertEqual(len(self.calls("python3 -m venv")), 2)

    def test_a_venv_without_its_interpreter_is_made_anew(self):
        self.bootstrap()
        (self.copy.root / ".venv/bin/python").unlink()
        self.assertEqual(self.bootstrap().returncode, 0)
        self.assertEqual(len(self.calls("python3 -m venv")), 2)

    def test_a_removed_package_is_installed_again(self):
        self.bootstrap()
        (next((self.copy.root / ".venv/lib/python3.11/site-packages").glob("numpy-*"))).rmdir()
        self.assertEqual(self.bootstrap().returncode, 0)
        self.assertEqual(len(self.calls("python -m pip install")), 2)

    def test_causes_outside_are_told_in_one_sentence(self):
        causes = {
            "E: Temporary failure resolving 'registry'": (5, "cannot be reached"),
            "OSError: [Errno 28] No space left on device": (8, "the disk is full"),
            "E: something unheard of": (70, "the lines above and build/bootstrap.log say why"),
        }
        for text, (code, sentence) in causes.items():
            for variable in ("APT_ERROR", "PIP_ERROR"):
                with self.subTest(text=text, variable=variable):
                    (self.state / "packages.txt").unlink(missing_ok=True)
                    subprocess.run(["rm", "-rf", str(self.copy.root / ".venv")], check=True)
                    done = self.bootstrap(**{variable: text})
                    self.assertEqual(done.returncode, code, done.stderr)
                    self.assertIn(sentence, done.stderr.splitlines()[-1])

    def test_too_small_a_disk_is_noticed_before_the_download(self):
        done = self.bootstrap(FREE_KIB="2097152")
        self.assertEqual(done.returncode, 8)
        self.assertIn("needs about 6 GB of disk and 2 GB are free", done.stderr)
        self.assertEqual(self.calls("python -m pip"), [])

    def test_two_at_once_install_once(self):
        command = [str(self.copy.root / "scripts/bootstrap.sh")]
        environment = self.copy.environment(STATE=str(self.state), APT_SECONDS="1")
        both = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        told = [process.communicate(timeout=60)[1] for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], told)
        self.assertEqual(len([call for call in self.calls("apt-get") if " install " in call]), 1)
        self.assertIn("waiting for another bootstrap", "".join(told))

    def test_bad_usage(self):
        for arguments in (["--preset"], ["--preset", "fast"], ["release"]):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.bootstrap(*arguments).returncode, 2)


if __name__ == "__main__":
    unittest.main()
