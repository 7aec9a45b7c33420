// dropout: masks drawn by Philox under (seed, step, sample, layer), so a sample gets the same mask whatever the
// micro-batch, the stage, the thread or the schedule, and again when a forward pass is repeated. On GPUs a kernel draws
// the same numbers there (cuda/operations.h), in forward and again in backward; no mask is kept and nothing waits.
// Not here: torch's global generator; nothing reads it.
#pragma once

#include <string_view>

#include "nn/layer.h"

namespace sluice::nn {

namespace gpu {
struct MaskNumbers;  // cuda/keyed_bits.h
}

// x [N, ...] with context.sample_ids [N], which are copied to its device where they are not there. Elements are kept
// with probability 1 - p and scaled by 1 / (1 - p).
// `site` names the layer and the call in it. Not training, or p = 0: x itself.
// Throws BugError when sample_ids does not fit x.
at::Tensor dropout(const at::Tensor& x, double p, std::string_view site, const ForwardContext& context);

// The factors alone, shaped and typed like x: 0 or 1 / (1 - p). float32 for bfloat16.
at::Tensor dropout_mask(const at::Tensor& x, double p, std::string_view site, const ForwardContext& context);

// What CPUs and GPUs draw those factors by. It reads context.step_in_memory, which GPUs do when they draw.
gpu::MaskNumbers mask_numbers(double p, std::string_view site, const ForwardContext& context);

}  // namespace sluice::nn
