// micro_batch: one part of a replica's share of a mini-batch, and how a mini-batch is split into micro-batches.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/parts.h"
#include "nn/layer.h"

namespace sluice::pipeline {

using nn::Tensors;

struct MicroBatch {
  // [n, ...] each, in the order in which the first layer and the loss take them. Undefined: an input that this batch
  // lacks. A micro-batch with n = 0 is skipped.
  Tensors inputs;
  Tensors targets;
  at::Tensor sample_ids;  // [n] int64, positions in the data set
  // Augmentation view of all samples: a sample has the same inputs, bit for bit, whenever its view is the same.
  int view = 0;
  bool view_repeats = true;  // the view occurs again later in the run
  // [i]: the first input of sample i is NaN, because its features are cached (feature_source.h). Empty: none are
  // missing.
  std::vector<bool> without_inputs = {};
  // [3, channels] if the first input is bytes of images: numbers_of_pixels() converts them on the device. Undefined:
  // layers take the inputs as they are.
  at::Tensor pixel_scale = {};

  [[nodiscard]] std::int64_t samples() const { return sample_ids.defined() ? sample_ids.size(0) : 0; }
};

// Sizes differ by at most one, larger ones first; the last ones are 0 if there are fewer samples than parts.
[[nodiscard]] std::vector<std::int64_t> split_sizes(std::int64_t samples, int parts);

// Computes (byte / scale[0] - scale[1]) / scale[2] for each channel, rounded after every operation, with the bits of
// data/augment.h if scale[0] is 255. bytes: [n, channels, height, width]; scale: [3, channels].
[[nodiscard]] at::Tensor numbers_of_pixels(const at::Tensor& bytes, const at::Tensor& scale);

[[nodiscard]] MicroBatch part_of(const MicroBatch& batch, std::int64_t begin, std::int64_t end);

[[nodiscard]] std::vector<MicroBatch> split(const MicroBatch& batch, int parts);

// How the micro-batches of a step are distributed: consecutive parts, one for each replica of all processes.
struct MicroBatchParts {
  std::int64_t size = 1;   // samples of a micro-batch; the last one may be shorter
  std::int64_t all = 0;    // micro-batches of the step
  Parts parts = 1;         // replicas of all processes
  std::int64_t first = 0;  // number of this process's first replica

  // Numbers of the micro-batches of a replica of this process.
  [[nodiscard]] NumberRange of(std::int64_t replica) const { return parts.range(all, first + replica); }
};

// [replica][micro-batch]: `batch`, the samples of this process, cut into its micro-batches. Each replica has
// `per_replica` of them; those left over are empty.
[[nodiscard]] std::vector<std::vector<MicroBatch>> deal_out(const MicroBatch& batch, const MicroBatchParts& how,
                                                            int replicas, int per_replica);

// Cuts off the last columns that inputs[mask] ([n, width], 0 for padding) has for no sample, from all tensors of that
// width. A batch without that input is not padded.
void trim_padding(MicroBatch& batch, std::size_t mask);

}  // namespace sluice::pipeline
