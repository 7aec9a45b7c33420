"""Our text models beside transformers' own in float64: hidden states, logits, loss and every gradient, files both ways.

    text_models_test.py PROGRAM        tests/models/text_dump; exits 77 without transformers

Batches are plain, padded (also in front), or packed: then every document is compared with the document alone.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch.nn import functional as F

try:
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)

from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral
from transformers.models.qwen2 import modeling_qwen2

from text_loops import exact_rms_norm

TOLERANCE = 1e-9  # relative
LABELS = 3
HEADS = {
    "lm": transformers.AutoModelForCausalLM,
    "mlm": transformers.AutoModelForMaskedLM,
    "classify": transformers.AutoModelForSequenceClassification,
    "tokens": transformers.AutoModelForTokenClassification,
    "qa": transformers.AutoModelForQuestionAnswering,
}
SIZES = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40, vocab_size=50,
             max_position_embeddings=20)
LLAMA3 = dict(rope_type="llama3", rope_theta=20.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
ENCODER, DECODER = ("mlm", "classify", "tokens", "qa"), ("lm", "classify")
# name: (config.json, or a size of our own; tasks)
MODELS = {
    "bert": (dict(SIZES, model_type="bert"), ENCODER),
    "bert with tanh": (dict(SIZES, model_type="bert", hidden_act="gelu_new", layer_norm_eps=1e-3, type_vocab_size=3),
                       ("mlm", "classify")),
    "roberta": (dict(SIZES, model_type="roberta", pad_token_id=1, type_vocab_size=1), ENCODER),
    "distilbert": (dict(model_type="distilbert", dim=32, n_layers=3, n_heads=4, hidden_dim=40, vocab_size=50,
                        max_position_embeddings=20), ENCODER),
    "llama": (dict(SIZES, model_type="llama", num_key_value_heads=2, head_dim=12, rope_parameters=LLAMA3,
                   pad_token_id=0), DECODER),
    "llama, tied": (dict(SIZES, model_type="llama", tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                         rope_theta=500.0, rope_scaling=dict(type="linear", factor=2.0), pad_token_id=0), DECODER),
    "mistral": (dict(SIZES, model_type="mistral", num_key_value_heads=1, sliding_window=None), ("lm",)),
    "qwen2": (dict(SIZES, model_type="qwen2", num_key_value_heads=2, tie_word_embeddings=True), ("lm",)),
    "gpt2": (dict(model_type="gpt2", n_embd=32, n_layer=3, n_head=4, n_inner=40, vocab_size=50, n_positions=20,
                  activation_function="gelu", layer_norm_epsilon=1e-3, pad_token_id=0), DECODER),
    "bert:nano": (None, ("mlm",)),
    "llama:nano": (None, ("lm",)),
    "gpt2:nano": (None, ("lm",)),
}


for norm in (modeling_llama.LlamaRMSNorm, modeling_mistral.MistralRMSNorm, modeling_qwen2.Qwen2RMSNorm):
    norm.forward = exact_rms_norm


def part(tensors, prefix):
    return {name[len(prefix):]: value for name, value in tensors.items() if name.startswith(prefix)}


def logits_of(outputs):
    if "start_logits" in outputs:
        return torch.stack([outputs.start_logits, outputs.end_logits], -1)
    return outputs.logits


def loss_of(logits, tensors, targets):
    if "starts" in tensors:
        if "mask" in tensors:  # transformers does not leave padding out
            logits = logits.masked_fill(tensors["mask"].eq(0).unsqueeze(2), -torch.inf)
        return sum(F.cross_entropy(logits[..., i], tensors[name], reduction="sum") for i, name in
                   enumerate(("starts", "ends"))) / 2
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="sum")


class Comparison:
    def __init__(self):
        self.what, self.bad, self.count = "files", [], 0

    def check(self, what, ours, theirs, scale=None):
        scale = theirs.norm().item() if scale is None else scale
        error = (ours - theirs).norm().item() / max(scale, 1e-300)
        self.count += 1
        if ours.shape != theirs.shape or not error <= TOLERANCE:
            self.bad.append(f"{self.what}: {what}: relative error {error:.1e}")

    def equal(self, what, ours, theirs):
        self.count += 1
        if ours != theirs:
            self.bad.append(f"{self.what}: {what}: {sorted(set(ours) ^ set(theirs))[:5]}")


def inputs_of(model, tensors, row=None, of_document=None):
    """Arguments of a model of transformers: a whole batch, or one document."""
    names = {"inputs": "input_ids", "types": "token_type_ids", "mask": "attention_mask"}
    if of_document is not None:
        return {names[name]: tensors[name][row:row + 1, of_document] for name in ("inputs", "types") if name in tensors}
    return {theirs: tensors[ours] for ours, theirs in names.items() if ours in tensors}


def compare_passes(model, tensors, compare):
    """One pass over the batch, or one a document, in which nothing is padded."""
    loss, blocks = 0, model.config.num_hidden_layers
    mask = tensors.get("mask", torch.ones_like(tensors["inputs"]))
    is_packed = mask.max() > 1
    passes = [(slice(None), mask > 0)] if not is_packed else [
        (row, mask[row] == document) for row in range(len(mask)) for document in mask[row].unique() if document > 0]
    for row, kept in passes:
        where = dict(row=row, of_document=kept) if is_packed else {}
        outputs = model(**inputs_of(model, tensors, **where), output_hidden_states=True)
        logits, ours = logits_of(outputs), tensors["logits"][row]
        targets = tensors.get("targets")
        if is_packed:
            logits, ours, targets = logits[0], ours[kept], targets[row][kept]
        elif logits.dim() == 3:
            ours, shown = ours[kept], logits[kept]
        compare.check("logits", ours, shown if not is_packed and logits.dim() == 3 else logits)
        for i in range(blocks):
            theirs = outputs.hidden_states[i][0] if is_packed else outputs.hidden_states[i][kept]
            compare.check(f"hidden state {i}", tensors[f"hidden/{i}"][row][kept], theirs)
        loss = loss + loss_of(logits, tensors, targets)
    compare.check("loss", tensors["loss"], loss)
    loss.backward()


def compare_gradients(model, tensors, compare):
    ours, theirs = part(tensors, "grad/"), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    compare.equal("names of gradients", set(ours), set(theirs))
    total = sum(gradient.norm().item() ** 2 for gradient in theirs.values()) ** 0.5
    for name in ours.keys() & theirs.keys():
        compare.check(f"gradient of {name}", ours[name], theirs[name], max(theirs[name].norm().item(), 1e-3 * total))


def names_of(program, model, task, files):
    """Our names and shapes of the tensors of each file."""
    lines = "\n".join(f"{name} {' '.join(map(str, value.shape))}" if name else ""
                      for file in files for name, value in [*file.items(), ("", None)])
    done = subprocess.run([program, "names", model, task], input=lines + "\n", check=True, capture_output=True, text=True)
    return [set(file.splitlines()) for file in done.stdout.split("\n\n")[:-1]]


def compare_files(program, model, folder, task, weights, compare):
    """What we save loads with from_pretrained(); the names of their files become ours, also in files of other heads."""
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    loaded, info = HEADS[task].from_pretrained(folder, dtype=torch.float64, attn_implementation="sdpa",
                                               output_loading_info=True)
    compare.equal("tensors that from_pretrained() lacks", set(info["missing_keys"]), set())
    compare.equal("tensors that from_pretrained() does not know", set(info["unexpected_keys"]), set())
    loaded.save_pretrained(folder / "theirs")
    files = [load_file(folder / "theirs" / "model.safetensors"),
             transformers.AutoModel.from_config(loaded.config).state_dict()]
    if loaded.config.model_type == "bert":
        pretraining = transformers.BertForPreTraining(loaded.config).state_dict()
        files.append({name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
                      for name, value in pretraining.items()})
    whole, *others = names_of(program, model, task, files)
    ours = {f"{name} {' '.join(map(str, value.shape))}" for name, value in weights.items()}
    compare.equal("our names for their file", whole, ours)
    body = {name for name in ours if ".embeddings." in name or "layer" in name or name.startswith("transformer.")}
    body = {name for name in body if not name.startswith(("cls.", "lm_head.", "vocab_"))}
    for other in others:
        found = {name for name in other if not name.startswith("cls.predictions.decoder.weight")}
        compare.equal("names that are not ours", found - ours, set())
        compare.equal("missing names", body - found, set())
    return loaded.eval()


def compare(program, name, config, task):
    with tempfile.TemporaryDirectory() as path:
        folder, model = pathlib.Path(path), name
        if config is not None:
            model = str(folder / "given.json")
            pathlib.Path(model).write_text(json.dumps(config))
        subprocess.run([program, "step", model, task, path], check=True)
        result = Comparison()
        theirs = compare_files(program, model, folder, task, part(load_file(folder / "plain.safetensors"), "weight/"), result)
        for kind in ("plain", "padded", "packed"):
            if kind == "packed" and task in ("classify", "qa"):
                continue  # one target a row
            tensors, result.what = load_file(folder / f"{kind}.safetensors"), f"{name}, {task}, {kind}"
            theirs.zero_grad()
            compare_passes(theirs, tensors, result)
            compare_gradients(theirs, tensors, result)
        return result


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    bad, count = [], 0
    for name, (config, tasks) in MODELS.items():
        for task in tasks:
            result = compare(sys.argv[1], name, config, task)
            bad, count = bad + result.bad, count + result.count
    print("\n".join(bad[:40]) if bad else f"{count} values agree")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
