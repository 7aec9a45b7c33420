"""Names and shapes of all our models beside those of torchvision and transformers themselves, one for one.

    public_names_test.py PROGRAM        tests/models/step_dump; exits 77 without these packages
"""

import subprocess
import sys

import torch

try:
    import public_models
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)


def names_of_ours(program, name, size, stem):
    done = subprocess.run([program, "names", name, size, stem], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines())


def names_of_theirs(name, size, stem):
    with torch.device("meta"):
        model = public_models.make(name, size, stem)
    return {f"{public_models.name_in_files(name, key)} {list(value.shape)}" for key, value in model.state_dict().items()}


def main():
    bad = 0
    for name, size, stem in public_models.every_model():
        ours, theirs = names_of_ours(sys.argv[1], name, size, stem), names_of_theirs(name, size, stem)
        print(f"{name} {size} {stem}: {len(theirs)} tensors, {len(ours ^ theirs)} differ", *sorted(ours ^ theirs)[:5])
        bad += ours != theirs or not theirs
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
