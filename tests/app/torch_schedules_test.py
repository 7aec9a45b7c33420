#!/usr/bin/env python3
"""Our schedules beside those of the PyTorch that is installed: orders, and its dumps read by `sluice schedule --order`.

    torch_schedules_test.py [unittest options]        SLUICE_BINARY names the binary

PyTorch makes its orders without devices or processes, from stages that are only numbers.
"""

import json
import pathlib
import tempfile
import unittest

from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.stage import _PipelineStageBase

import long_tests
import sluice_cli as cli

# PyTorch's name, ours, stages a device, shapes (devices, micro-batches)
PEERS = (
    ("Interleaved1F1B", "interleaved", 2, ((2, 4), (4, 10), (4, 3))),
    ("Interleaved1F1B", "interleaved", 3, ((4, 12),)),
    ("LoopedBFS", "looped-bfs", 2, ((4, 7),)),
    ("InterleavedZeroBubble", "zb-h1", 1, ((4, 8), (8, 24))),
    ("ZBVZeroBubble", "zb-v", 2, ((4, 8), (4, 3), (8, 17))),
    ("DualPipeV", "dualpipe-v", 2, ((1, 2), (4, 10), (5, 12))),
)


class NumberedStage(_PipelineStageBase):
    """What a schedule asks of a stage while it makes its order."""

    def __init__(self, index, stages, devices):
        self.stage_index = index
        self.num_stages = stages
        self.group_size = devices
        self.group_rank = 0
        self.group = None
        self.submod = None
        self.has_backward = True

    def _create_grad_recv_info(self, *_):
        return None

    def _prepare_forward_infra(self, *_):
        return None

    def _prepare_backward_infra(self, *_):
        return None


def torch_schedule(name, devices, chunks, virtual):
    stages = [NumberedStage(i * devices, devices * virtual, devices) for i in range(virtual)]
    return schedules.get_schedule_class(name)(stages, chunks, loss_fn=lambda output, target: output)


def torch_order(schedule):
    """Its lists as `sluice schedule --json` writes them: without bubbles, pairs without their suffix."""
    return [[str(action).removesuffix("OVERLAP_F_B") for action in actions if action is not None]
            for _, actions in sorted(schedule.pipeline_order.items())]


def ours(*arguments):
    return json.loads(cli.must_run("schedule", *arguments, "--json").stdout)


class TorchSchedulesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_the_same_name_is_the_same_order(self):
        for torch_name, name, virtual, shapes in PEERS:
            for devices, chunks in long_tests.some(shapes[-1:], shapes, "the largest"):
                with self.subTest(name=name, devices=devices, chunks=chunks, virtual=virtual):
                    words = ["--virtual", virtual] if name in ("interleaved", "looped-bfs") else []
                    self.assertEqual(ours(name, "--stages", devices, "--chunks", chunks, *words)["order"],
                                     torch_order(torch_schedule(torch_name, devices, chunks, virtual)))

    def test_dumps_of_both_formats_are_read(self):
        dump = self.folder / "dump.csv"
        for torch_name, name, virtual, _ in long_tests.some(PEERS[1::2], PEERS, "their formats are the same"):
            with self.subTest(name=name, virtual=virtual):
                schedule = torch_schedule(torch_name, 3, 9, virtual)
                schedule._dump_csv(str(dump), "compute_only")
                read = ours("--order", dump, "--hop", 0.25)
                self.assertEqual(read["order"], torch_order(schedule))
                # With communication, sharding, and a REDUCE_GRAD after the last gradient of each stage: another place
                # would be refused. It takes no time.
                schedule._dump_csv(str(dump), "compute_comms")
                with_all = ours("--order", dump, "--hop", 0.25)
                self.assertEqual([[action for action in actions if "REDUCE" not in action]
                                  for actions in with_all["order"]], read["order"])
                self.assertEqual(sum("REDUCE" in action for actions in with_all["order"] for action in actions),
                                 3 * virtual)
                self.assertEqual(with_all["makespan"], read["makespan"])

    def test_its_validator_accepts_ours(self):
        for name in ("eager-1f1b", "zb-h2"):  # which PyTorch does not have
            found = ours(name, "--stages", 3, "--chunks", 7)
            actions = {device: [schedules._Action.from_str(action) for action in of_device]
                       for device, of_device in enumerate(found["order"])}
            owners = schedules._validate_schedule(actions, 3, 3, 7)
            self.assertEqual(owners, {0: 0, 1: 1, 2: 2})

    def test_what_its_validator_lets_pass_is_refused_here(self):
        holes = {
            "an action twice": "0F0 0B0 0B0",
            "a whole and a split backward of one micro-batch, none of the other": "0F0 0F1 0B0 0I0 0W0",
            "devices that wait for each other": "0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1",
            "sent in another order than received": "0F0 0F1 0B1 0B0\n1F0 1F1 1B0 1B1",
        }
        for what, text in holes.items():
            lines = [[schedules._Action.from_str(action) for action in line.split()] for line in text.split("\n")]
            chunks = 1 + max(action.microbatch_index for line in lines for action in line)
            schedules._validate_schedule(dict(enumerate(lines)), len(lines), len(lines), chunks)
            order = self.folder / "order.txt"
            order.write_text(text, encoding="utf-8")
            done = cli.run("schedule", "--order", order)
            self.assertEqual(done.returncode, 2, what)
            self.assertIn("breaks the rule", cli.error_of(done), what)

    def test_where_we_differ(self):
        # Any number of micro-batches: PyTorch asks for a multiple of its number of rounds.
        with self.assertRaises(ValueError):
            torch_schedule("Interleaved1F1B", 2, 5, 2)
        self.assertEqual(ours("interleaved", "--stages", 2, "--chunks", 5)["chunks"], 5)
        # The order that PyTorch draws of its own 1F1B begins with micro-batch 1 on the last device (it does not run that
        # order, but a loop that is right). Ours does what the loop does.
        stage = NumberedStage(0, 2, 2)
        drawn = schedules.Schedule1F1B(stage, 4, loss_fn=lambda output, target: output)._get_pipeline_order()
        last = [str(action) for action in drawn[1] if action is not None and "REDUCE" not in str(action)]
        correct = ours("1f1b", "--stages", 2, "--chunks", 4)["order"][1]
        self.assertEqual(correct, ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2", "1F3", "1B3"])
        if last == correct:
            print("this PyTorch draws its 1F1B as it runs it: docs/reference/schedules.md need not mention the difference any more")
        else:
            self.assertEqual(last, ["1F1", "1B0", "1F2", "1B1", "1F3", "1B2", "1F4", "1B3"])


if __name__ == "__main__":
    unittest.main()
