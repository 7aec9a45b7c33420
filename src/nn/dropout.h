// dropout: masks drawn with Philox, keyed by (seed, step, sample, layer). So a sample gets the same mask for any
// micro-batch, stage, thread or schedule, and when a forward pass is repeated; torch's global generator is not used.
// GPU kernels draw the same numbers (cuda/operations.h), in forward and again in backward, without a stored mask or a
// wait.
#pragma once

#include <string_view>

#include "nn/layer.h"

namespace sluice::nn {

namespace gpu {
struct MaskNumbers;  // cuda/keyed_bits.h
}

// x: [N, ...]; context.sample_ids: [N], copied to the device of x if they are elsewhere. Elements are kept with
// probability 1 - p and scaled by 1 / (1 - p). `site` names the layer and the call in it. Returns x itself if p = 0 or
// not in training. Throws BugError if sample_ids does not fit x.
at::Tensor dropout(const at::Tensor& x, double p, std::string_view site, const ForwardContext& context);

// The factors, shaped and typed like x (float32 for bfloat16): 0 or 1 / (1 - p).
at::Tensor dropout_mask(const at::Tensor& x, double p, std::string_view site, const ForwardContext& context);

// The keys of these factors for CPUs and GPUs. Waits for context.step_in_memory, which GPU kernels read by themselves.
gpu::MaskNumbers mask_numbers(double p, std::string_view site, const ForwardContext& context);

}  // namespace sluice::nn
