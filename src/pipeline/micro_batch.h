// micro_batch: one chunk of a replica's share of a mini-batch, and how a mini-batch is cut into them.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sluice::pipeline {

struct MicroBatch {
  at::Tensor inputs;      // [n, ...]; n = 0 is allowed: the micro-batch is skipped
  at::Tensor targets;     // [n] int64; of tokens [n, T]
  at::Tensor sample_ids;  // [n] int64, positions in the data set

  [[nodiscard]] std::int64_t samples() const { return targets.defined() ? targets.size(0) : 0; }
};

// Sizes of `parts` consecutive parts of `samples`; they differ by at most one, larger ones first; zeros at the end when
// there are fewer samples than parts.
[[nodiscard]] std::vector<std::int64_t> split_sizes(std::int64_t samples, int parts);

// Views of the parts; no copies.
[[nodiscard]] std::vector<MicroBatch> split(const MicroBatch& batch, int parts);

}  // namespace sluice::pipeline
