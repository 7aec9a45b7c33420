#!/usr/bin/env python3
"""scripts/check_includes.py: planted bad edges are rejected, good ones are not."""

import unittest

import checked_folder

GOOD = {
    "src/core/a.cpp": "#include <vector>\n#include \"core/error.h\"\n",
    "src/comm/gloo/a.cpp": "#include <torch/torch.h>\n#include \"comm/mesh.h\"\n#include \"device/stream.h\"\n",
    "src/pipeline/a.h": "#include \"pipeline/schedule/action.h\"\n#include \"nn/layer.h\"\n",
    "src/tune/a.h": "#include \"pipeline/schedule/action.h\"\n",
    "src/train/plan/a.cpp": "#include \"models/vit.h\"\n#include \"train/trace/step_trace.h\"\n#include \"measure/links.h\"\n",
    "src/storage/a.cpp": "#include <ATen/ATen.h>\n#include \"core/error.h\"\n",
    "src/measure/a.cpp": "#include \"profiler/fit.h\"\n#include \"pipeline/stage.h\"\n",
    "src/app/a.cpp": "#include \"train/run/loop.h\"\n",
    "src/profiler/a.cpp": "#ifdef SLUICE_WITH_CUDA\n#endif\n",
    "src/nn/cuda/a.cu": "#include \"nn/cuda/grid.cuh\"\n#include <c10/cuda/CUDAException.h>\n",
    "src/ps/net/a.cpp": "// by now_ns()\nwait_own_time(changed, lock, limit, done);  // not .wait_for()\n",
    "src/ps/net/log_recovery.cpp": "update.at = now_ns();\n",
    "src/report/a.cpp": "begin = now_ns();\n",
    "models/a.cpp": "#include \"nn/layer.h\"\n",
    "tests/core/a.cpp": "#include \"support/ranks.h\"\n#include \"helper.h\"\n#include \"app/commands.h\"\n",
    "bench/a.cpp": "#include \"train/run/loop.h\"\n",
}
BAD = {
    "src/core/a.cpp": ("#include \"device/stream.h\"", "'core' may not include 'device'"),
    "src/core/b.h": ("#include <ATen/ATen.h>", "'core' is free of LibTorch"),
    "src/ddp/a.cpp": ("  #  include \"optim/optimizer.h\"", "'ddp' may not include 'optim'"),
    "src/data/a.cpp": ("#include \"comm/mesh.h\"", "'data' may not include 'comm'"),
    "src/tune/a.cpp": ("#include \"pipeline/executor.h\"", "'tune' may not include 'pipeline'"),
    "src/pipeline/schedule/a.cpp": ("#include \"pipeline/stage.h\"", "'pipeline/schedule' may not include 'pipeline'"),
    "src/pipeline/a.cpp": ("#include \"models/vit.h\"", "'pipeline' may not include 'models'"),
    "src/nn/a.cpp": ("#include \"models/vit.h\"", "'nn' may not include 'models'"),
    "src/train/run/a.cpp": ("#include \"app/commands.h\"", "'train/run' may not include 'app'"),
    "src/train/plan/a.cpp": ("#include \"train/run/loop.h\"", "'train/plan' may not include 'train/run'"),
    "src/storage/a.cpp": ("#include \"device/stream.h\"", "'storage' may not include 'device'"),
    "src/profiler/b.cpp": ("#include \"measure/links.h\"", "'profiler' may not include 'measure'"),
    "src/profiler/c.cpp": ("#include <ATen/ATen.h>", "'profiler' is free of LibTorch"),
    "src/engine/a.cpp": ("#include \"tune/partition.h\"", "'engine' may not include 'tune'"),
    "src/report/a.cpp": ("#include \"engine/train_step.h\"", "'report' may not include 'engine'"),
    "src/measure/a.cpp": ("#include \"train/setup/setup.h\"", "'measure' may not include 'train/setup'"),
    "src/comm/a.cpp": ("#include \"support/ranks.h\"", "names no folder of the table"),
    "src/device/a.cpp": ("#include \"stream.h\"", "names no folder of the table"),
    "src/device/b.cpp": ("#include \"../core/error.h\"", "names no folder of the table"),
    "src/device/c.cpp": ("#include <core/error.h>", "is ours"),
    "src/newfolder/a.cpp": ("int x;", "is not in the table"),
    "src/core/c.cpp": ("#if defined(SLUICE_WITH_CUDA)", "CUDA is asked for outside"),
    "src/optim/a.cu": ("int x;", "GPU kernels lie in src/nn/cuda/ only"),
    "src/nn/a.cuh": ("int x;", "GPU kernels lie in src/nn/cuda/ only"),
    "src/nn/cuda/b.cu": ("#ifdef __CUDA_ARCH__", "CUDA is asked for outside"),
    "src/ps/net/a.cpp": ("if (now_ns() > end) throw;", "must not count the time in which this process is stopped"),
    "src/comm/b.cpp": ("changed.wait_for(lock, limit);", "use OwnClock, OwnTime or wait_own_time()"),
    "src/train/run/b.cpp": ("const auto t = std::chrono::steady_clock::now();", "goes into MAY_READ_CLOCKS"),
    "tests/core/a.cpp": ("#include \"nowhere/ranks.h\"", "names no folder of the table"),
}


def check(files, *options):
    return checked_folder.check("check_includes.py", files, *options)


class IncludeEdgesTest(unittest.TestCase):
    def test_edges_of_the_table_are_accepted(self):
        self.assertEqual(check(GOOD), (0, []))

    def test_each_planted_violation_is_named(self):
        for path, (text, expected) in BAD.items():
            with self.subTest(path=path, text=text):
                code, lines = check({path: text + "\n"})
                self.assertEqual((code, len(lines)), (70, 1), lines)
                self.assertTrue(lines[0].startswith(f"{path}:1: error: "), lines[0])
                self.assertIn(expected, lines[0])

    def test_what_the_whole_tree_shows(self):
        ring = {"src/core/a.h": "#include \"core/b.h\"\n", "src/core/b.h": "#include \"core/c.h\"\n",
                "src/core/c.h": "#include \"core/a.h\"\n"}
        code, lines = check(ring, "--whole")
        self.assertEqual(code, 70)
        self.assertIn("error: headers include each other in a ring: core/a.h -> core/b.h -> core/c.h -> core/a.h", lines)
        self.assertIn("error: the table lets 'config' include 'core', but no file does; take the edge out", lines)
        self.assertIn("error: MAY_READ_CLOCKS names ps/net/log_recovery.cpp, but it reads no clock; take it out", lines)
        self.assertIn("error: 'core' holds 100% of the lines, more than 10%; it is more than one room", lines)
        self.assertEqual(check({"src/core/a.h": "", "src/config/a.h": "#include \"core/a.h\"\n"})[1], [])
        used = check({"src/core/a.h": "", "src/config/a.h": "#include \"core/a.h\"\n"}, "--whole")[1]
        self.assertNotIn("error: the table lets 'config' include 'core', but no file does; take the edge out", used)
        self.assertFalse([line for line in used if "ring" in line])


if __name__ == "__main__":
    unittest.main()
