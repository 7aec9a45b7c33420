// executor_cases: small grids and passes that the executor's tests run, and the schedules and shapes they run them in.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "pipeline/executor.h"
#include "pipeline/micro_batch.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/inspect.h"
#include "support/toy_model.h"

namespace sluice::pipeline::executor_cases {

inline constexpr int kLayers = 9;
inline constexpr int kWidth = 6;

inline Partition even_partition(int stages) {
  Partition partition{std::vector<int>(stages, kLayers / stages)};
  for (int i = 0; i < kLayers % stages; ++i) ++partition.layers_per_stage[i];
  return partition;
}

inline Schedule schedule_of(const std::string& name, int devices, int chunks) {
  return with_reductions(make_schedule(name, {.stages = devices, .micro_batches = chunks, .virtual_stages = {}}));
}

inline PassRequest training_pass(const Schedule& schedule, int replicas, const MicroBatch& batch) {
  PassRequest request{.schedule = schedule,
                      .context = {.training = true},
                      .loss = test::toy_loss,
                      .gradient_scale = 1.0 / static_cast<double>(batch.samples())};
  for (const MicroBatch& share : split(batch, replicas))
    request.micro_batches.push_back(split(share, schedule.micro_batches));
  return request;
}

struct Case {
  std::string schedule;
  int devices;
  int replicas;
};

inline std::vector<Case> parity_cases() {
  std::vector<Case> cases;
  for (const std::string& schedule : schedule_names()) {
    for (const int devices : {1, 2, 3, 4}) {
      for (const int replicas : {1, 2, 3}) cases.push_back({schedule, devices, replicas});
    }
  }
  return cases;
}

inline std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  const auto& [schedule, devices, replicas] = info.param;
  std::string name = schedule;
  std::ranges::replace(name, '-', '_');
  return name + "_p" + std::to_string(devices) + "_r" + std::to_string(replicas);
}

}  // namespace sluice::pipeline::executor_cases
