#!/usr/bin/env python3
"""One training step of exported models in several plans, against PyTorch: loss and every gradient (bench/exported_models.py).

    exported_training_test.py SLUICE [unittest options]

SLUICE is the binary. SLUICE_LONG_TESTS=1: all models up to 200 million parameters. Exit status 77: no torchvision or
transformers.
"""

import pathlib
import sys
import tempfile
import unittest

import long_tests

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
try:
    import exported_models
    import torch
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)

MODELS = exported_models.exported_model_list.models()
SOME = ["two_inputs_shared", "llama"]
LARGEST = 200_000_000


class ExportedTrainingTest(unittest.TestCase):
    def test_a_step_equals_pytorch(self):
        for name in long_tests.some(SOME, list(MODELS), "all other models"):
            with self.subTest(model=name), tempfile.TemporaryDirectory() as folder:
                model = MODELS[name]
                if model.source == "torchvision" and exported_models.exported_model_list.parameters_of(model) > LARGEST:
                    self.skipTest(f"more than {LARGEST:,} parameters")
                result = exported_models.run_model(model, sys.argv[1], pathlib.Path(folder))
                print(exported_models.line_of(result), flush=True)
                self.assertIn(result.outcome, ("passed", "refused by torch.export"), result.messages)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main(argv=sys.argv[1:])
