"""Names, shapes and roles of the parameters of all our models beside torchvision and transformers themselves, one for one.

    public_names_test.py PROGRAM        tests/models/step_dump; exits 77 without these packages
"""

import subprocess
import sys

import torch
from torch import nn

try:
    import public_models
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)


def names_of_ours(program, name, size, stem):
    done = subprocess.run([program, "names", name, size, stem], check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines())


NORMS = (nn.BatchNorm2d, nn.LayerNorm)


def role_of(key, module, is_head):
    """By the module that has a parameter, and of embeddings by their public names."""
    leaf = key.rpartition(".")[2]
    role = ("norm" if isinstance(module, NORMS) else "position" if leaf in ("cls_token", "position_embeddings") else
            "bias" if leaf == "bias" else "weight")
    return f" head {role}" if is_head else f" {role}"


def names_of_theirs(name, size, stem):
    with torch.device("meta"):
        model = public_models.make(name, size, stem)
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    roles = {(f"{prefix}." if prefix else "") + key: role_of(key, module, module is head)
             for prefix, module in model.named_modules() for key, _ in module.named_parameters(recurse=False)}
    return {f"{public_models.name_in_files(name, key)} {list(value.shape)}{roles.get(key, '')}"
            for key, value in model.state_dict().items()}


def main():
    bad = 0
    for name, size, stem in public_models.every_model():
        ours, theirs = names_of_ours(sys.argv[1], name, size, stem), names_of_theirs(name, size, stem)
        print(f"{name} {size} {stem}: {len(theirs)} tensors, {len(ours ^ theirs)} differ", *sorted(ours ^ theirs)[:5])
        bad += ours != theirs or not theirs
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
