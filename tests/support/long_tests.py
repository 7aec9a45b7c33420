"""What is too long for CI. It runs where SLUICE_LONG_TESTS is set, as the CTest entries NAME_long have it, which have the
label `long` (tests/app/CMakeLists.txt); tests/support/long_tests.h is the same for GoogleTest."""

import os
import unittest

RUN = "SLUICE_LONG_TESTS" in os.environ


def only(why):
    """Decorates a test or a class of tests: CI skips it, and its output says why."""
    return unittest.skipUnless(RUN, f"long: {why}")


def some(in_ci, all_of_them, why):
    """What a test takes: in CI a part, which its output says, elsewhere all."""
    if RUN:
        return all_of_them
    print(f"long: {len(in_ci)} of {len(all_of_them)} here: {why}", flush=True)
    return in_ci
