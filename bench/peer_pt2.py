"""The PyTorch side of bench/compare.py --pt2: writes the batch of both sides, and loads the module.

    peer_pt2.py FOLDER FILE [--batch 16] [--tokens 128]

writes batch.safetensors of random samples for the model of FILE (scripts/export_model.py), which bench_train_step
--start and peer_torch.py --start read.
"""

import argparse
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import export_model  # noqa: E402


def as_long(inputs, batch, tokens):
    """Inputs like the examples, for more samples and longer texts."""
    longer = {}
    for name, example in inputs.items():
        if example.is_floating_point():
            longer[name] = torch.randn(batch, *example.shape[1:])
        elif name == "attention_mask":
            longer[name] = torch.ones(batch, tokens, dtype=torch.long)
        else:
            longer[name] = torch.randint(0, int(example.max()) + 1, (batch, tokens))
    return longer


def write_start(args):
    torch.manual_seed(0)
    module, inputs, *_ = export_model.make_again(args.file)
    batch = as_long(inputs, args.batch, args.tokens)
    with torch.no_grad():
        logits = export_model.first_output(module.eval()(**batch))
    batch["targets"] = torch.randint(0, logits.shape[-1], logits.shape[:-1])
    save_file(batch, args.folder / "batch.safetensors")


class Logits(torch.nn.Module):
    def __init__(self, module, names):
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *inputs):
        return export_model.first_output(self.module(**dict(zip(self.names, inputs, strict=True))))


def load(folder, file, rank, processes):
    """Model, inputs and targets of this process."""
    module, inputs, *_ = export_model.make_again(file)
    batch = load_file(pathlib.Path(folder) / "batch.safetensors")
    share = {field: tensor.chunk(processes)[rank].contiguous() for field, tensor in batch.items()}
    return Logits(module.train(), list(inputs)), tuple(share[name] for name in inputs), share["targets"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    write_start(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
