"""Small text models of transformers in float64 for tests of model.lora_rank, and texts to train them on."""

import json

import torch
import transformers

import sluice_cli as cli

RANK, ALPHA, CLASSES, LR = 4, 6, 3, 0.1
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
SIZES = dict(vocab_size=len(WORDS), num_hidden_layers=2, hidden_size=32, num_attention_heads=4, intermediate_size=40,
             max_position_embeddings=24, pad_token_id=0)
# name: (config.json, model.task, model.lora_targets)
MODELS = {
    "bert": (dict(SIZES, model_type="bert", hidden_dropout_prob=0, attention_probs_dropout_prob=0), "classify",
             ["query", "value", "dense"]),
    "llama": (dict(SIZES, model_type="llama", num_key_value_heads=2), "lm",
              ["q_proj", "v_proj", "up_proj", "down_proj"]),
    "gpt2": (dict(model_type="gpt2", n_embd=32, n_layer=2, n_head=4, n_inner=40, vocab_size=len(WORDS), n_positions=24,
                  resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, pad_token_id=0, bos_token_id=0, eos_token_id=0), "lm",
             ["c_attn", "c_fc"]),
}
HEADS = {"classify": transformers.AutoModelForSequenceClassification, "lm": transformers.AutoModelForCausalLM}


def make_base(name, folder):
    """Saves the weights below the adapters; returns the model."""
    config, task, _ = MODELS[name]
    torch.manual_seed(1)
    kind = transformers.AutoConfig.for_model(**config, num_labels=CLASSES)
    model = HEADS[task].from_config(kind, attn_implementation="sdpa").double()
    model.save_pretrained(folder)
    return model.eval()


def write_config(folder, name, **changes):
    _, task, targets = MODELS[name]
    tables = {"device": {"list": "cpu", "threads": 1},
              "model": {"name": name, "config": str(folder / "base/config.json"), "task": task, "dropout": -1,
                        "weights": str(folder / "base"), "lora_rank": RANK, "lora_alpha": ALPHA,
                        "lora_targets": targets},
              "train": {"steps": 4, "global_batch": 8, "optimizer": "sgd", "lr": LR, "precision": "fp64"}}
    if task == "classify":
        tables["model"]["classes"] = CLASSES
    merged = {table: {**tables.get(table, {}), **changes.get(table, {})} for table in {**tables, **changes}}
    return cli.write_config(folder / f"{name}.toml", **merged)


def write_texts(folder):
    """A vocabulary, and labelled texts; returns the keys of [data] and the texts of the test set."""
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    letters = torch.randint(5, len(WORDS), (60, 12), generator=torch.Generator().manual_seed(3)).tolist()
    texts = [" ".join(WORDS[i] for i in row[:4 + n % 8]) for n, row in enumerate(letters)]
    lines = [json.dumps({"text": text, "label": f"class{i % CLASSES}"}) for i, text in enumerate(texts)]
    (folder / "train.jsonl").write_text("\n".join(lines[:40]) + "\n", encoding="utf-8")
    (folder / "test.jsonl").write_text("\n".join(lines[40:]) + "\n", encoding="utf-8")
    keys = {"name": "jsonl", "path": str(folder), "tokenizer": str(folder / "vocab.txt"), "stride": 0}
    return keys, texts[40:]


def assert_close(ours, theirs, what):
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10, msg=lambda text: f"{what}: {text}")
