// micro_batch: one chunk of a replica's share of a mini-batch, and how a mini-batch is cut into them.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace sluice::pipeline {

struct MicroBatch {
  at::Tensor inputs;         // [n, ...]; n = 0 is allowed: the micro-batch is skipped
  at::Tensor targets;        // [n] int64; of tokens [n, T]
  at::Tensor sample_ids;     // [n] int64, positions in the data set
  int view = 0;              // of all of them: the same one of a sample, the same inputs bit for bit
  bool view_repeats = true;  // later in the run
  // [i]: the inputs of sample i are NaN, because what frozen layers make of them is known (feature_source.h). Empty:
  // all inputs are there.
  std::vector<bool> without_inputs = {};
  // [3, channels], where inputs are the bytes of images: numbers_of_pixels() makes of them what layers take, on the
  // device. Undefined: inputs are what layers take.
  at::Tensor pixel_scale = {};

  [[nodiscard]] std::int64_t samples() const { return targets.defined() ? targets.size(0) : 0; }
};

// Sizes of `parts` consecutive parts of `samples`; they differ by at most one, larger ones first; zeros at the end when
// there are fewer samples than parts.
[[nodiscard]] std::vector<std::int64_t> split_sizes(std::int64_t samples, int parts);

// bytes: [n, channels, height, width]; scale: [3, channels] of the type of what comes out, on the same device. Of each
// channel (byte / scale[0] - scale[1]) / scale[2], every step of it rounded: where scale[0] is 255 the same bits as
// data/augment.h gives, on CPUs and on GPUs.
[[nodiscard]] at::Tensor numbers_of_pixels(const at::Tensor& bytes, const at::Tensor& scale);

// Samples [begin, end) of it; views of its tensors, no copies.
[[nodiscard]] MicroBatch part_of(const MicroBatch& batch, std::int64_t begin, std::int64_t end);

[[nodiscard]] std::vector<MicroBatch> split(const MicroBatch& batch, int parts);

}  // namespace sluice::pipeline
