"""Runs the tests of a file three at once, each in a process of its own: for tests that mostly sleep."""

import concurrent.futures
import subprocess
import sys
import unittest

TESTS = 3


def names_in(suite):
    for test in suite:
        yield from names_in(test) if isinstance(test, unittest.TestSuite) else [test.id().removeprefix("__main__.")]


def run(name):
    return subprocess.run([sys.executable, sys.argv[0], "-v", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def main():
    """Instead of unittest.main(). With arguments it is the same."""
    if len(sys.argv) > 1:
        unittest.main()
    names = list(names_in(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])))
    with concurrent.futures.ThreadPoolExecutor(TESTS) as pool:
        done = list(pool.map(run, names))
    for test in done:
        print(test.stdout, flush=True)
    failed = [name for name, test in zip(names, done, strict=True) if test.returncode != 0]
    print(f"{len(names)} tests, failed: {', '.join(failed) or 'none'}")
    sys.exit(bool(failed or not names))
