#!/usr/bin/env python3
"""Predicts a step on two nodes of 8 H100 from published rates. Nothing here was measured.

    bench/two_nodes_on_paper.py        prints the table of docs/results/two_nodes_on_paper.md

Products run at one share of the peak: that at which one H100 trains Qwen2.5-0.5B at ANCHOR. Other operators move their
bytes at the bandwidth of the data sheet. `sluice simulate` predicts every schedule from a profile of such costs.
Needs build/release/sluice. Exit codes: 0 done, 70 a prediction failed.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# NVIDIA's data sheet of the H100 SXM: FLOP/s in bf16, bytes/s of its memory, GB/s of NVLink each way.
PEAK, MEMORY, INSIDE, BETWEEN = 989e12, 3.35e12, 450, "400Gbit/s"
MEMORY_BYTES = 80e9
ANCHOR = 149_500     # tokens/s of Qwen2.5-0.5B in 16 texts of 1024 tokens: 46.8 % of the peak
ANCHOR_TEXTS = 16
KERNEL_S = 2e-6      # that a kernel adds
UPDATE_BYTES = 30    # that AdamW reads and writes for a parameter, with the rounded copy
GPUS, CHUNKS = 16, 32
SCHEDULES = ("gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2", "zb-v", "dualpipe-v")


@dataclasses.dataclass
class Transformer:
    config: dict          # of Hugging Face; empty: not predicted, or ViT-L
    blocks: int
    width: int
    hidden: int           # of the MLP
    tokens: int
    vocabulary: int       # or classes
    samples: int = 0      # of the global batch
    key_width: int = 0    # of keys, and of values; 0: as wide as queries
    is_gated: bool = False
    is_text: bool = True

    def layers(self):
        """For each layer: parameters; of a sample: FLOP of forward, bytes that it moves, bytes that it keeps; kernels."""
        row, wide = self.tokens * self.width, self.tokens * self.hidden * (2 if self.is_gated else 1)
        weights = self.width * 2 * (self.width + (self.key_width or self.width))
        attention = (2 if self.is_text else 4) * self.tokens ** 2 * self.width
        mlp = (3 if self.is_gated else 2) * self.width * self.hidden
        head, rows = self.width * self.vocabulary, self.tokens if self.is_text else 1
        first = head if self.is_text else 3 * 16 * 16 * self.width
        return [(first, 0 if self.is_text else 2 * first * self.tokens, 6 * row, 0, 2),
                *[(weights, 2 * weights * self.tokens + attention, 16 * row, 18 * row, 6),
                  (mlp, 2 * mlp * self.tokens, 12 * row + 6 * wide, 10 * row + 4 * wide, 5)] * self.blocks,
                (head, 2 * head * rows, 6 * rows * self.vocabulary, 4 * row + 2 * rows * self.vocabulary, 4)]

    def state_bytes(self):
        """Of weights, gradients and AdamW's state."""
        return 16 * sum(layer[0] for layer in self.layers())

    def flop(self):
        return 3 * sum(layer[1] for layer in self.layers())


QWEN = Transformer({}, 24, 896, 4864, 1024, 151936, key_width=128, is_gated=True)
GPT2_XL = {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024, "vocab_size": 50257}
LLAMA = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": False}
MODELS = {"ViT-L/16, 2048 images": Transformer({}, 24, 1024, 4096, 197, 1000, 2048, is_text=False),
          "GPT-2 XL, 512 texts of 1024 tokens": Transformer(GPT2_XL, 48, 1600, 6400, 1024, 50257, 512),
          "Llama 8B, 128 texts of 4096 tokens": Transformer(LLAMA, 32, 4096, 14336, 4096, 128256, 128, 1024, is_gated=True)}


def seconds(flop, moved, rate):
    return flop / rate + moved / MEMORY


def rate_of_products():
    low, high = 0.1 * PEAK, PEAK
    for _ in range(50):
        middle = (low + high) / 2
        layers = QWEN.layers()
        step_s = (sum(ANCHOR_TEXTS * seconds(3 * flop, 3 * moved, middle) for _, flop, moved, _, _ in layers)
                  + sum(layer[0] for layer in layers) * UPDATE_BYTES / MEMORY)
        low, high = (middle, high) if ANCHOR_TEXTS * QWEN.tokens / step_s < ANCHOR else (low, middle)
    return low


def cost(a_s, b_s):
    return {"a_s": a_s, "b_s": b_s, "error": 0.0}


def profile_of(model, rate, template):
    row, usual = 4 * model.tokens * model.width, template["layers"][1]
    layers = []
    for number, (parameters, flop, moved, kept, kernels) in enumerate(model.layers()):
        one = cost(kernels * KERNEL_S, seconds(flop, moved, rate))
        keeps = {"fixed": 0, "per_sample": int(kept)}
        layers.append(usual | {
            "name": f"layer {number}", "forward": one, "input_gradient": one, "weight_gradient": one,
            "backward": cost(2 * one["a_s"], 2 * one["b_s"]), "first_forward_s": 0.0, "first_backward_s": 0.0, "slowdown": 1.0,
            "input_bytes": row, "output_bytes": row, "saved_bytes": keeps, "stash_bytes": keeps, "transformed_bytes": 0,
            "parameter_bytes": 4 * parameters, "gradient_bytes": 4 * parameters, "optimizer_bytes": 8 * parameters, "times": [], "bytes": []})
    update = cost(1e-5, UPDATE_BYTES / MEMORY)
    of_machine = {"gpus": ["NVIDIA H100 80GB HBM3"], "device": "cuda:0", "precision": "bf16", "optimizer": "adamw", "tf32": True,
                  "vocabulary": 0, "context": 0}
    of_model = ({"model": model.config["model_type"], "config": json.dumps(model.config)} if model.is_text
                else {"model": "vit", "model_size": "large", "patch_size": 16, "image_size": 224, "classes": 1000, "channels": 3})
    kept = {key: value for key, value in template.items() if key != "fingerprint_hash"}
    return kept | {"fingerprint": template["fingerprint"] | of_machine | of_model, "layers": layers, "stage_links": [],
                   "all_reduces": [], "update": update, "update_together": update}


def predict(folder, model, schedule, stages):
    keys = {"train.precision": "bf16", "train.optimizer": "adamw", "pipeline.stages": stages, "replicas.local": 1,
            "pipeline.chunks": CHUNKS if stages > 1 else 8, "pipeline.schedule": schedule,
            "train.global_batch": model.samples * stages // GPUS, "device.list": [f"cuda:{i}" for i in range(stages)]}
    keys |= ({"data.name": "text", "model.name": model.config["model_type"], "model.config": str(folder / "config.json")} if model.is_text
             else {"data.name": "shapes", "model.name": "vit", "model.size": "large", "model.patch_size": 16, "model.image_size": 224})
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    done = subprocess.run([ROOT / "build/release/sluice", "simulate", ROOT / "configs/quickstart.toml", *words, "--profile", folder / "profile.json",
                           "--nodes", "2", "--devices", "8", "--bandwidth", BETWEEN, "--inside-bandwidth", str(INSIDE), "--json"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{schedule}: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(70)
    return json.loads(done.stdout)["scaling"][-1]


def main():
    rate = rate_of_products()
    print(f"Products at {rate / PEAK:.1%} of the peak.\n\n| schedule | " + " | ".join(MODELS) + " |\n" + "|---" * (len(MODELS) + 1) + "|")
    template = json.loads((ROOT / "tests/app/recorded/gpt2.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for schedule, stages in [(schedule, 8) for schedule in SCHEDULES] + [("1f1b", 1)]:
            cells = []
            for model in MODELS.values():
                if model.state_bytes() / stages > MEMORY_BYTES:
                    cells.append(f"does not fit: {model.state_bytes() / stages / 1e9:.0f} GB")
                    continue
                (folder / "config.json").write_text(json.dumps(model.config), encoding="utf-8")
                (folder / "profile.json").write_text(json.dumps(profile_of(model, rate, template)), encoding="utf-8")
                step = predict(folder, model, schedule, stages)
                speed = step["samples_per_s"]
                unit = f"{speed * model.tokens / 1e3:.0f} k tokens/s" if model.is_text else f"{speed:,.0f} images/s"
                cells.append(f"{unit} ({100 * speed * model.flop() / PEAK / step['devices']:.0f} %)")
            print(f"| {schedule if stages > 1 else 'replicas alone'} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
