// The generators with several stages per device in a loop: device r owns stages r, p+r, 2p+r, ...
#include <algorithm>

#include "pipeline/schedule/generator_shape.h"

namespace sluice::pipeline {
namespace {

int virtual_stages_of(std::string_view name, const PipelineShape& shape) {
  require_shape(shape);
  const int virtual_stages = shape.virtual_stages.value_or(default_virtual_stages(name));
  if (virtual_stages < 1) {
    throw ConfigError("schedule '", name, "' has ", counted(virtual_stages, "stage"),
                      " per device; set --virtual (pipeline.virtual) to at least 1");
  }
  return virtual_stages;
}

// Sizes of the groups of micro-batches that go through a device's stages together: m / p groups, as equal as possible.
std::vector<int> group_sizes(const PipelineShape& shape) {
  const int groups = std::max(1, shape.micro_batches / shape.stages);
  std::vector<int> sizes(static_cast<std::size_t>(groups), shape.micro_batches / groups);
  for (int i = 0; i < shape.micro_batches % groups; ++i) ++sizes[static_cast<std::size_t>(i)];
  return sizes;
}

// One entry per micro-batch: group by group, and stage by stage within a group. The backwards run in reverse.
std::vector<int> forward_stages(const std::vector<int>& groups, int device, int devices, int virtual_stages) {
  std::vector<int> stages;
  for (const int size : groups) {
    for (int i = 0; i < virtual_stages; ++i)
      stages.insert(stages.end(), static_cast<std::size_t>(size), i * devices + device);
  }
  return stages;
}

}  // namespace

Schedule make_interleaved(const PipelineShape& shape) {
  const int virtual_stages = virtual_stages_of("interleaved", shape);
  const auto groups = group_sizes(shape);
  return fill_devices("interleaved", shape, virtual_stages, [&](DeviceActions& actions, int device) {
    const auto stages = forward_stages(groups, device, shape.stages, virtual_stages);
    const auto mirrored = [&](int stage) { return (virtual_stages - 1) * shape.stages + 2 * device - stage; };
    const auto warm_up = std::min(stages.size(), static_cast<std::size_t>((virtual_stages - 1) * groups.front() +
                                                                          2 * (shape.stages - 1 - device)));
    for (std::size_t i = 0; i < warm_up; ++i) actions.forward(stages[i]);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (warm_up + i < stages.size()) actions.forward(stages[warm_up + i]);
      actions.backward(mirrored(stages[i]));
    }
  });
}

Schedule make_looped_bfs(const PipelineShape& shape) {
  const int virtual_stages = virtual_stages_of("looped-bfs", shape);
  return fill_devices("looped-bfs", shape, virtual_stages, [&](DeviceActions& actions, int device) {
    for (int i = 0; i < virtual_stages; ++i) {
      for (int m = 0; m < shape.micro_batches; ++m) actions.add(Op::kForward, i * shape.stages + device, m);
    }
    for (int i = virtual_stages - 1; i >= 0; --i) {
      for (int m = shape.micro_batches - 1; m >= 0; --m) actions.add(Op::kBackward, i * shape.stages + device, m);
    }
  });
}

}  // namespace sluice::pipeline
