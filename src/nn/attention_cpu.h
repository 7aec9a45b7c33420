// attention_cpu: multi-head attention by the kernels of kernels/, for float32 and bfloat16 on CPUs, without dropout.
// Positions are handled as runs. A run attends to itself only and is computed as an attention of its own. Short runs
// that are not causal keep their probabilities for backward; the others compute them again and keep only their input.
#pragma once

#include <optional>
#include <vector>

#include "nn/kernel_data.h"

namespace sluice::nn {

// Adjacent rows of query and packed, counted over all samples.
struct AttentionRun {
  std::int64_t first_query, queries, first_key, keys;
};

// query: undefined for self-attention. groups: undefined, or [N, T] int64 on the CPU (attention.h).
struct AttentionOperands {
  at::Tensor query, packed, groups;
  std::int64_t heads, kv_heads;
  bool causal;

  [[nodiscard]] bool is_self() const { return !query.defined(); }
  [[nodiscard]] std::int64_t head_width() const { return packed.size(2) / ((is_self() ? heads : 0) + 2 * kv_heads); }
  [[nodiscard]] std::int64_t width() const { return heads * head_width(); }
  [[nodiscard]] std::int64_t queries() const { return is_self() ? packed.size(1) : query.size(1); }
  // One run per sample without groups. Nothing if a group has two runs in one sample.
  [[nodiscard]] std::optional<std::vector<AttentionRun>> runs() const;
};

// runs: of the operands. Requires: float32 or bfloat16 on the CPU, and head_width() is a multiple of kHeadStep.
at::Tensor attention_on_cpu(const AttentionOperands& operands, const std::vector<AttentionRun>& runs);

}  // namespace sluice::nn
