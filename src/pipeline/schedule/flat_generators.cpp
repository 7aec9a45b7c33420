// The generators with one stage per device.
#include <algorithm>

#include "pipeline/schedule/generator_shape.h"

namespace sluice::pipeline {
namespace {

template <typename Fill>
Schedule one_stage_per_device(std::string_view name, const PipelineShape& shape, Fill fill) {
  require_shape(shape);
  require_virtual_stages(name, shape, 1);
  return fill_devices(name, shape, 1, fill);
}

void alternate(DeviceActions& actions, int stage, int micro_batches, int warm_up) {
  warm_up = std::min(micro_batches, warm_up);
  for (int i = 0; i < warm_up; ++i) actions.forward(stage);
  for (int i = warm_up; i < micro_batches; ++i) {
    actions.forward(stage);
    actions.backward(stage);
  }
  for (int i = 0; i < warm_up; ++i) actions.backward(stage);
}

// alternate() with a split backward; W of a micro-batch comes `lag` backwards after its I, or at the end.
void alternate_split(DeviceActions& actions, int stage, int micro_batches, int warm_up, int lag) {
  warm_up = std::min(micro_batches, warm_up);
  for (int i = 0; i < warm_up; ++i) actions.forward(stage);
  for (int i = 0; i < micro_batches; ++i) {
    if (warm_up + i < micro_batches) actions.forward(stage);
    actions.input_gradient(stage);
    if (actions.backwards(stage) - actions.weights(stage) > lag) actions.weight_gradient(stage);
  }
  while (actions.weights(stage) < micro_batches) actions.weight_gradient(stage);
}

}  // namespace

Schedule make_gpipe(const PipelineShape& shape) {
  return one_stage_per_device("gpipe", shape, [&](DeviceActions& actions, int stage) {
    for (int i = 0; i < shape.micro_batches; ++i) actions.forward(stage);
    for (int i = 0; i < shape.micro_batches; ++i) actions.backward(stage);
  });
}

Schedule make_1f1b(const PipelineShape& shape) {
  return one_stage_per_device("1f1b", shape, [&](DeviceActions& actions, int stage) {
    alternate(actions, stage, shape.micro_batches, shape.stages - 1 - stage);
  });
}

Schedule make_eager_1f1b(const PipelineShape& shape) {
  return one_stage_per_device("eager-1f1b", shape, [&](DeviceActions& actions, int stage) {
    alternate(actions, stage, shape.micro_batches, 2 * (shape.stages - 1 - stage));
  });
}

Schedule make_zb_h1(const PipelineShape& shape) {
  return one_stage_per_device("zb-h1", shape, [&](DeviceActions& actions, int stage) {
    alternate_split(actions, stage, shape.micro_batches, shape.stages - 1 - stage, stage);
  });
}

Schedule make_zb_h2(const PipelineShape& shape) {
  return one_stage_per_device("zb-h2", shape, [&](DeviceActions& actions, int stage) {
    alternate_split(actions, stage, shape.micro_batches, 2 * (shape.stages - 1 - stage), 2 * stage);
  });
}

Schedule make_forward_only(std::span<const int> owners, int micro_batches) {
  Schedule schedule{"forward_only", static_cast<int>(owners.size()), micro_batches, {}};
  schedule.devices.resize(owners.empty() ? 0 : std::ranges::max(owners) + 1);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (int m = 0; m < micro_batches; ++m)
      schedule.devices.at(owners[stage]).push_back({Op::kForward, StageId{stage}, MicroBatchId{m}});
  }
  return schedule;
}

}  // namespace sluice::pipeline
