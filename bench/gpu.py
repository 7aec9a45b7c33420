#!/usr/bin/env python3
"""Training steps on one GPU beside PyTorch's, eager and through torch.compile: samples/s and MFU.

    bench/gpu.py MODEL DIR [--rounds N] [--peers NAME...]
    bench/gpu.py --list       what scripts/gpu_check.sh compares, all in bf16; MODELS has more

The sides take turns: a run of `sluice train` into DIR, then so many steps of each peer, 3 times or --rounds; medians and ratios.
All train the same model with the same optimizer: CNNs by SGD with momentum, in channels_last; transformers by AdamW. In
bf16 the peers are under torch.autocast; in fp32 both sides' products and convolutions may use TF32. A rate is a mean over
the wall time of the steps, ours without its wait for data, the peers' on one batch that lies on the GPU. MFU counts the
operations of the model (docs/how-to/profile.md), not those that an implementation repeats, by the GPU's peak for the
precision. Not measured: loading. Exit codes: 0 done, 2 bad usage, 70 a side failed.
"""

import argparse
import contextlib
import json
import pathlib
import queue
import statistics
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import gpu_measure  # noqa: E402


def image_model(twin, ours, batch, precision="bf16"):
    ours = {"data.name": "shapes", "model.image_size": 224} | ours
    return {"ours": ours, "twin": twin, "batch": batch, "image": 224, "precision": precision}


# The one list of what is compared. `ours`: keys of the configuration; `twin`: of tests/models/torch_models.py.
RESNET50 = ({"name": "resnet50", "stem": "imagenet"}, {"model.name": "resnet50", "model.stem": "imagenet"})
VIT_B16 = ({"name": "vit", "size": "base", "patch": 16}, {"model.name": "vit", "model.size": "base", "model.patch_size": 16})
VIT_L16 = ({"name": "vit", "size": "large", "patch": 16}, {"model.name": "vit", "model.size": "large", "model.patch_size": 16})
MODELS = {
    "resnet50": image_model(*RESNET50, batch=256),
    "vit_b16": image_model(*VIT_B16, batch=128),
    "vit_l16": image_model(*VIT_L16, batch=64),
    "gpt2_small": {"ours": {"data.name": "text", "model.name": "gpt2", "model.size": "small"},
                   "twin": {"name": "gpt2", "size": "small"}, "batch": 16, "image": 0, "tokens": 1024, "precision": "bf16"},
    "resnet50_fp32": image_model(*RESNET50, batch=128, precision="fp32"),
    "vit_b16_fp32": image_model(*VIT_B16, batch=64, precision="fp32"),
    "gpt2_nano": {"ours": {"data.name": "text", "model.name": "gpt2", "model.size": "nano"},
                  "twin": {"name": "gpt2", "size": "nano"}, "batch": 16, "image": 0, "tokens": 32, "precision": "bf16"},
}
# Qwen2.5-0.5B's sizes in Llama's form. No twin: transformers is not on a machine that has PyTorch alone.
QWEN = {"model_type": "llama", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
        "num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 1024, "tie_word_embeddings": True,
        "rms_norm_eps": 1e-6, "rope_theta": 1e6}
MODELS["llama_05b"] = {"ours": {"data.name": "text", "model.name": "llama", "data.max_length": 1024}, "config": QWEN,
                       "twin": None, "batch": 16, "image": 0, "tokens": 1024, "precision": "bf16"}
CHECKED = ("resnet50", "vit_b16", "vit_l16", "gpt2_small", "llama_05b")  # by scripts/gpu_check.sh
PEERS = {"eager": [], "torch.compile": ["--compile"]}
ROUNDS = 3
STEPS = 20
PATIENCE_S = {"eager": 40, "torch.compile": 110}  # for a peer's first answer
# TFLOP/s in bf16 without sparsity, as NVIDIA's data sheets have it; the first name that fits. With TF32 it is half.
PEAKS = (("H100 PCIe", 756), ("H100 NVL", 835), ("H100", 989), ("H200 NVL", 835), ("H200", 989), ("A100", 312))


def peak_of(gpu, precision):
    """Nothing for a GPU that the table lacks."""
    peak = next((peak for name, peak in PEAKS if name in gpu), None)
    return peak / 2 if peak and precision == "fp32" else peak


def rate_of(lines):
    """(samples/s without the wait for data, FLOP of a sample) of our run."""
    steps = gpu_measure.steps_of(lines)
    before = lines[lines.index(steps[0]) - 1]
    wall_s = steps[-1]["time_s"] - before["time_s"]  # with what lies between the steps, as the peers' has
    rate = sum(step["samples"] for step in steps) / (wall_s - sum(step["load_ms"] for step in steps) / 1e3)
    flop = statistics.median(step["flops_per_s"] / step["samples_per_s"] for step in steps)
    return rate, flop


def summary(rates, flop, peak, tokens=0):
    """rates: {side: samples/s of each round}, ours among them; a side without any was not available. peak: or None.
    tokens: of a text."""
    parts, ours = [], rates["ours"]
    for side, values in rates.items():
        if not values:
            parts.append(f"{side}: not available")
            continue
        rate = statistics.median(values)
        mfu = f"MFU {rate * flop / peak / 1e12:.1%}" if peak else f"{rate * flop / 1e12:.1f} model TFLOP/s"
        ratio = "" if side == "ours" else f", ours x {statistics.median(a / b for a, b in zip(ours, values)):.2f}"
        of_tokens = f" ({rate * tokens / 1e3:.1f} k tokens/s)" if tokens else ""
        parts.append(f"{side} {rate:.0f} samples/s{of_tokens}, {mfu}{ratio}")
    return "; ".join(parts)


def write_text(file, count):
    """So many letters: a byte is a token."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(("the quick brown fox jumps over the lazy dog. " * (count // 45 + 1))[:count], encoding="utf-8")


def our_command(model, folder, device):
    of_model = MODELS[model]
    batch = of_model["batch"]
    steps = gpu_measure.FIRST_STEPS + STEPS
    keys = {"device.list": device, "data.workers": 8, "train.global_batch": batch, "train.precision": of_model["precision"],
            "train.steps": steps, "train.eval_limit": batch, "train.lr": 1e-4, "train.lr_schedule": "constant",
            "train.optimizer": "momentum" if of_model["ours"]["model.name"] == "resnet50" else "adamw",
            "train.weight_decay": 0.01, "pipeline.stages": 1, "pipeline.chunks": 1, "replicas.local": 1,
            "log.every": 10, "log.tensorboard": False, **of_model["ours"]}
    if "config" in of_model:
        keys["model.config"] = str(pathlib.Path(f"{folder}.json").resolve())
        pathlib.Path(keys["model.config"]).write_text(json.dumps(of_model["config"]), encoding="utf-8")
    if keys["data.name"] == "text":
        keys["data.path"] = str(pathlib.Path(f"{folder}.txt").resolve())
        write_text(pathlib.Path(keys["data.path"]), 2 * batch * steps * of_model["tokens"])
    else:
        keys["data.samples"] = 2 * batch * steps
    sets = [word for key, value in keys.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    return [ROOT / "build" / "release" / "sluice", "train", ROOT / "configs" / "quickstart.toml", *sets, "--run-dir", folder]


def peer_command(model, name, device):
    of_model = MODELS[model]
    return [sys.executable, ROOT / "bench" / "peer_gpu.py", json.dumps(of_model["twin"]), str(of_model["batch"]),
            str(of_model["image"]), str(STEPS), "--precision", of_model["precision"], "--device", device, *PEERS[name]]


class Peer:
    """A process that times STEPS steps for every line; not available where its first answer does not come."""

    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answers = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def rate(self, patience_s):
        """Samples/s; nothing when it does not answer."""
        try:
            self.process.stdin.write("run\n")
            self.process.stdin.flush()
            line = self.answers.get(timeout=patience_s)
            return json.loads(line)["samples_per_s"]
        except (OSError, queue.Empty, ValueError):
            self.close()
            return None

    def close(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.kill()
        self.process.wait()


def compare(model, folder, device, rounds=ROUNDS, names=tuple(PEERS)):
    rates = {"ours": [], **{name: [] for name in names}}
    peers = [Peer(name, peer_command(model, name, device)) for name in names]
    try:
        for peer in list(peers):  # the first turn warms it up
            if peer.rate(PATIENCE_S[peer.name]) is None:
                if peer.name == "eager":
                    raise ValueError("PyTorch's steps without torch.compile do not run, so there is nothing to compare with")
                print(f"{peer.name} is not available", flush=True)
                peers.remove(peer)
        for number in range(rounds):
            run = pathlib.Path(folder) / f"ours-{number}"
            code = subprocess.run(our_command(model, run, device), check=False).returncode
            if code != 0:
                raise gpu_measure.CheckFailed(f"our run ended with exit code {code}")
            rate, flop = rate_of(gpu_measure.lines_of(run))
            rates["ours"].append(rate)
            for peer in list(peers):
                its = peer.rate(patience_s=60)
                if its is None:
                    peers.remove(peer)
                    rates[peer.name].clear()
                else:
                    rates[peer.name].append(its)
            print(json.dumps({side: values[-1:] for side, values in rates.items()}), flush=True)
    finally:
        for peer in peers:
            peer.close()
    return rates, flop


def name_of_gpu():
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS, nargs="?", metavar="MODEL")
    parser.add_argument("folder", type=pathlib.Path, nargs="?", metavar="DIR")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--rounds", type=int, choices=range(1, 100), default=ROUNDS, metavar="N", help=f"default: {ROUNDS}")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="default: all that the model has")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: to see that it works")
    asked = parser.parse_args()
    if asked.list:
        print("\n".join(CHECKED))
        return 0
    if not asked.folder:
        parser.error("MODEL and DIR are needed; or --list")
    try:
        names = asked.peers if MODELS[asked.model]["twin"] else []
        rates, flop = compare(asked.model, asked.folder, asked.device, asked.rounds, names)
        peak = peak_of(name_of_gpu(), MODELS[asked.model]["precision"]) if asked.device == "cuda" else None
    except (gpu_measure.CheckFailed, ValueError, OSError) as error:
        print(f"result: {error}")
        return 70
    print(f"result: {summary(rates, flop, peak, MODELS[asked.model].get('tokens', 0))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
