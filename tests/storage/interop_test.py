"""What Sluice writes is read by the official readers, and the other way round.

usage: interop_test.py RECORDS_INTEROP   (the program of interop_main.cpp; run by CTest)
Exit status 77 (skipped) when a package is missing: pip install safetensors tensorboard.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
    from tensorboard.backend.event_processing import event_accumulator
except ImportError as error:
    print(f"skipped: {error}; install PYTHON_TEST_PACKAGES of scripts/dependencies.sh")
    sys.exit(77)


def tensors():
    """The same values as tensors() in interop_main.cpp."""
    dtypes = {
        "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
        "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
    }
    ramp = torch.arange(12, dtype=torch.int32).reshape(3, 4)
    named = {name: ramp.to(dtype) for name, dtype in dtypes.items()}
    named["bool"] = (torch.arange(5) % 2).to(torch.bool)
    named["scalar"] = torch.tensor(2.5)
    named["empty"] = torch.empty(0, 3)
    named['ünï "quoted"'] = torch.ones(1)
    return named


def check_safetensors(program, folder):
    ours = folder / "every_dtype.safetensors"
    expected = tensors()
    found = load_file(ours)
    assert found.keys() == expected.keys(), found.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name
    with safe_open(ours, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}, file.metadata()

    theirs = folder / "python.safetensors"
    save_file(expected, theirs, metadata={"format": "pt"})
    assert theirs.read_bytes() == ours.read_bytes(), "the official writer gives other bytes"
    subprocess.run([program, "read", theirs], check=True)


def check_events(folder):
    events = event_accumulator.EventAccumulator(str(folder / "events"))
    events.Reload()
    loss = [(event.step, round(event.value, 6)) for event in events.Scalars("loss")]
    assert loss == [(0, 1.0), (1, 0.5), (2, 0.333333), (3, 103.0), (4, 104.0), (5, 105.0), (6, 106.0)], loss
    assert events.Tensors("config")[0].tensor_proto.string_val[0] == b"lr = **0.1**"
    assert events.SummaryMetadata("config").plugin_data.plugin_name == "text"


def check_cut_events(folder):
    """A crash in the middle of the last record costs that record only."""
    cut = folder / "cut"
    cut.mkdir()
    first = sorted((folder / "events").iterdir())[0]
    (cut / first.name).write_bytes(first.read_bytes()[:-3])
    events = event_accumulator.EventAccumulator(str(cut))
    events.Reload()
    assert len(events.Scalars("loss")) == 5
    assert math.isnan(events.Scalars("diverged")[0].value)


def check_metrics(folder):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    (line,) = (folder / "metrics.jsonl").read_text().splitlines()
    record = json.loads(line, parse_constant=refuse)
    assert math.isnan(float(record["loss"])) and math.isinf(float(record["lr"])) and record["ü"] == 0.1, record


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([program, "write", folder], check=True)
        check_safetensors(program, folder)
        check_events(folder)
        check_cut_events(folder)
        check_metrics(folder)
    print("ok")


if __name__ == "__main__":
    main()
