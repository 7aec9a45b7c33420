"""Text models of the speed comparison: where both sides start, and transformers' model as the peer.

    peer_text.py FOLDER MODEL [--batch 16] [--tokens 128] [--padded]

writes config.json, model.safetensors and batch.safetensors of random tokens, which bench_train_step --start and
peer_torch.py --start read. bert: the sizes of MiniLM; a masked language model, 15 % of the tokens have a target.
llama: as large, with grouped queries and a tied head; each token's target is the next one. --padded: texts have 1/4 of
the tokens or more.
"""

import argparse
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

MODELS = {
    "bert": dict(model_type="bert", vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                 intermediate_size=1536, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    "llama": dict(model_type="llama", vocab_size=32000, hidden_size=384, num_hidden_layers=6, num_attention_heads=6,
                  num_key_value_heads=2, intermediate_size=1024, tie_word_embeddings=True),
}
MASK_TOKEN, FIRST_WORD = 103, 1000  # of BERT's vocabulary
MASKED_SHARE = 0.15
NO_TARGET = -100


def auto_class(name):
    import transformers  # noqa: PLC0415  (takes seconds, and peers of image models do without)

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers, {"bert": transformers.AutoModelForMaskedLM, "llama": transformers.AutoModelForCausalLM}[name]


def make_batch(args):
    vocabulary = MODELS[args.model]["vocab_size"]
    tokens = torch.randint(FIRST_WORD, vocabulary, (args.batch, args.tokens + 1))
    lengths = torch.full((args.batch,), args.tokens)
    if args.padded:
        lengths = torch.randint(args.tokens // 4, args.tokens + 1, (args.batch,))
    mask = (torch.arange(args.tokens) < lengths.unsqueeze(1)).long()
    inputs = tokens[:, :-1].clone()
    if args.model == "bert":
        targets = torch.full_like(inputs, NO_TARGET)
        for row, length in enumerate(lengths.tolist()):
            masked = torch.randperm(length)[: max(round(MASKED_SHARE * length), 1)]
            targets[row, masked] = inputs[row, masked]
            inputs[row, masked] = MASK_TOKEN
    else:
        targets = tokens[:, 1:].masked_fill(mask == 0, NO_TARGET)
    batch = {"inputs": inputs * mask, "targets": targets.contiguous()}
    return batch | {"mask": mask} if args.padded else batch


def write_start(args):
    transformers, auto = auto_class(args.model)
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(max_position_embeddings=args.tokens, **MODELS[args.model])
    auto.from_config(config).save_pretrained(args.folder)
    save_file(make_batch(args), args.folder / "batch.safetensors")


class Logits(torch.nn.Module):
    """transformers' model as a function from tokens to logits."""

    def __init__(self, model, mask):
        super().__init__()
        self.model, self.mask = model, mask

    def forward(self, tokens):
        return self.model(input_ids=tokens, attention_mask=self.mask).logits


def load(folder, name, rank, processes):
    """Model, inputs, targets of this process, and the weight of its mean loss in the mean of all processes."""
    folder = pathlib.Path(folder)
    _, auto = auto_class(name)
    model = auto.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32).train()
    model.config.use_cache = False
    batch = load_file(folder / "batch.safetensors")
    share = {field: tensor.chunk(processes)[rank].contiguous() for field, tensor in batch.items()}
    # Causal attention never sees the padding behind a text, so that the fast kernel without a mask computes the same.
    mask = share.get("mask") if name == "bert" else None
    targets_of_all, targets = ((of["targets"] != NO_TARGET).sum().item() for of in (batch, share))
    return Logits(model, mask), share["inputs"], share["targets"], targets * processes / targets_of_all


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--padded", action="store_true")
    write_start(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
