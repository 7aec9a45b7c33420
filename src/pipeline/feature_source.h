// feature_source: where what frozen layers make of samples is kept, so that a pass runs them on new samples alone.
// A pass asks it for each share of a micro-batch that a device runs (frozen_prefix.h): find() what is kept, run the
// layers on what is missing, complete(). Not here: whether, where and for how long anything is kept (train/).
// Threads: find() and complete() from any number of threads; follow() while no pass runs. Errors: those of reading
// samples; nothing that goes wrong with keeping is one.
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

  // What is kept of some samples, and what is not.
  struct Found {
    at::Tensor rows;                    // [samples, feature...] on the CPU, those kept filled in; undefined: none is
    std::vector<std::int64_t> missing;  // which samples are not, ascending
    at::Tensor inputs;                  // [missing, ...] of those, on the CPU; undefined where none is missing
    Nanoseconds since = now_ns();       // when it was looked for
  };
  [[nodiscard]] virtual Found find(const MicroBatch& samples) = 0;

  // made: [missing, feature...], on any device. All rows, in the order of the samples: on that device, or on the CPU.
  [[nodiscard]] virtual at::Tensor complete(const MicroBatch& samples, const Found& found, const at::Tensor& made) = 0;

  // The frozen layers from now on, one copy of them; null: none are frozen. Rows of other weights are dropped, and
  // where the layers are those of before and more, the rows become those of all of them.
  virtual void follow(const FrozenPrefix* prefix) = 0;
};

}  // namespace sluice::pipeline
