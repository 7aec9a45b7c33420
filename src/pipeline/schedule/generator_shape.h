// generator_shape: code that generators share: checks of the shape, and the loop over devices.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "pipeline/schedule/device_actions.h"
#include "pipeline/schedule/generators.h"

namespace sluice::pipeline {

inline void require_shape(const PipelineShape& shape) {
  if (shape.stages < 1) throw ConfigError("pipeline.stages=", shape.stages, "; set it to at least 1");
  if (shape.micro_batches < 1) {
    throw ConfigError("pipeline.chunks=", shape.micro_batches, "; a step needs at least 1 micro-batch");
  }
}

inline void require_virtual_stages(std::string_view name, const PipelineShape& shape, int only) {
  const int given = shape.virtual_stages.value_or(only);
  if (given != only) {
    throw ConfigError("schedule '", name, "' takes ", counted(only, "stage"), " per device, not ", given,
                      "; leave out --virtual (pipeline.virtual), or choose interleaved or looped-bfs");
  }
}

template <typename Fill>
Schedule fill_devices(std::string_view name, const PipelineShape& shape, int virtual_stages, Fill fill) {
  Schedule schedule{std::string(name), shape.stages * virtual_stages, shape.micro_batches, {}};
  for (int device = 0; device < shape.stages; ++device) {
    DeviceActions actions(shape.micro_batches);
    fill(actions, device);
    schedule.devices.push_back(std::move(actions).take());
  }
  return schedule;
}

}  // namespace sluice::pipeline
