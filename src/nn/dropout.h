// dropout: masks drawn with Philox, keyed by (seed, step, sample, layer), so they do not depend on micro-batch, stage,
// thread or schedule. GPU kernels draw the same numbers (cuda/operations.h), again in backward, without a stored mask.
#pragma once

#include <string_view>

#include "nn/layer.h"

namespace sluice::nn {

namespace gpu {
struct MaskNumbers;  // cuda/keyed_bits.h
}

// x: [N, ...]; context.sample_ids: [N]. Elements are kept with probability 1 - p and scaled by 1 / (1 - p). `site`
// names the layer and the call in it. Returns x itself if p = 0 or not in training. BugError if sample_ids does not fit
// x.
at::Tensor dropout(const at::Tensor& x, double p, std::string_view site, const ForwardContext& context);

// The factors, shaped and typed like x (float32 for bfloat16): 0 or 1 / (1 - p).
at::Tensor dropout_mask(const at::Tensor& x, double p, std::string_view site, const ForwardContext& context);

// Numbers from [0, 1), a multiple of 2^-24 each, with the keys of dropout at this site. Shaped and typed like x.
at::Tensor keyed_uniform(const at::Tensor& x, std::string_view site, const ForwardContext& context);

// The keys of these factors for CPUs and GPUs. Waits for context.step_in_memory, which GPU kernels read by themselves.
gpu::MaskNumbers mask_numbers(double p, std::string_view site, const ForwardContext& context);

}  // namespace sluice::nn
