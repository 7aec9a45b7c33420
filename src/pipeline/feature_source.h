// feature_source: a cache of the outputs of frozen layers (features). For each share of a micro-batch a pass calls
// find(), runs the layers on the missing samples, then calls complete(). train/run/feature_reuse.h implements it.
// Threads: find() and complete() from any thread; follow() while no pass runs. Errors: those of reading samples.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/clock.h"
#include "pipeline/frozen_prefix.h"
#include "pipeline/micro_batch.h"

namespace sluice::pipeline {

class FeatureSource {
 public:
  virtual ~FeatureSource() = default;

  // Cached features of some samples, and the inputs of the others.
  struct Found {
    // [samples, feature...] each, on the CPU with the cached rows filled in; empty: no row is cached.
    Tensors rows;
    std::vector<std::int64_t> missing;  // samples that are not cached, ascending
    // [missing, ...] each, inputs of the missing samples on the CPU; empty if no sample is missing.
    Tensors inputs;
    Nanoseconds since = now_ns();  // time of the look-up
  };
  [[nodiscard]] virtual Found find(const MicroBatch& samples) = 0;

  // made: [missing, feature...] each, on any device. Returns all rows in order, on that device or on the CPU.
  [[nodiscard]] virtual Tensors complete(const MicroBatch& samples, const Found& found,
                                         const FrozenPrefix::Features& made) = 0;

  // Sets the frozen layers; null: none. Drops rows of other weights; runs kept rows through added layers.
  virtual void follow(const FrozenPrefix* prefix) = 0;
};

}  // namespace sluice::pipeline
