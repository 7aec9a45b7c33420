// memory_runs: training steps whose memory is counted, for the tests of limits and of estimates.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "data/loader.h"
#include "device/cpu_threads.h"
#include "device/memory.h"
#include "engine/state.h"
#include "train/plan/choose_plan.h"
#include "train/plan/composition.h"
#include "train/setup/setup.h"
#include "train/setup/step_batch.h"

namespace sluice::train::test {

class WithCountedMemory : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    device::count_memory();
    device::use_cpu_threads(1);  // as `sluice` does: this thread only coordinates
  }
};

// resnet8 on CPU devices, one stage each, with 64 samples a batch.
inline config::Config small_config(int stages, int chunks) {
  config::Config config;
  config.device.list.choice = "cpu";
  config.device.threads = 1;
  config.model.name = "resnet8";
  config.data.name = "shapes";
  config.data.samples = 128;
  config.data.workers = 0;
  config.model.image_size = 32;
  config.train.global_batch = 64;
  config.train.steps = 100;
  config.pipeline.stages = stages;
  config.pipeline.chunks = chunks;
  if (stages > 1) config.pipeline.partition = std::vector<int>{2, 3};
  return config;
}

struct Outcome {
  std::vector<double> losses;
  storage::TensorMap parameters;
  std::vector<device::MemoryUse> use;  // of each device, after the steps
};

inline Outcome train(const config::Config& config, int steps = 2) {
  const train::Setup setup = make_setup(config);
  engine::Engine engine(decide_plan(setup), engine_options(setup));
  engine::Composition& composition = engine.composition();
  engine::TrainStep& step = engine.step();
  for (const device::Device device : setup.devices) device::reset_peak_memory(device);
  data::Loader loader(*setup.train_set, train_loader_options(setup));
  Outcome outcome;
  for (int i = 0; i < steps; ++i)
    outcome.losses.push_back(step.run(as_step_batch(*loader.next(), *setup.task), i, 0.05).loss);
  for (const auto& [name, tensor] : engine::parameter_tensors(composition)) outcome.parameters[name] = tensor.clone();
  for (const device::Device device : setup.devices) outcome.use.push_back(device::memory_use(device));
  return outcome;
}

}  // namespace sluice::train::test
