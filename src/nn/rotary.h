// rotary: rotary position embeddings (Su et al. 2021) of query and key, in Hugging Face's layout: element i of a head's
// first half and element i of its second half are a pair, rotated by position * frequency[i]. As in Hugging Face's
// LlamaRotaryEmbedding, frequencies and angles are rounded to float32 for every type.
// On CPUs a kernel of this project runs in float32 and bfloat16. On GPUs and in float64 ATen runs.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include <ATen/core/Tensor.h>

namespace sluice::nn {

// Hugging Face's rope_type: "default", "linear" and "llama3".
enum class RotaryScaling : std::uint8_t { kNone, kLinear, kLlama3 };

struct RotaryOptions {
  std::int64_t head_width = 0;  // even
  std::int64_t positions = 0;   // largest position + 1
  double theta = 10000;         // frequency[i] = theta^(-2 i / head_width)
  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1;  // kLinear: divides all frequencies; kLlama3: divides those of long waves
  // kLlama3: waves shorter than original_positions / high_factor are kept, those longer than original_positions /
  // low_factor are stretched by `factor`, and the others by something between.
  double low_factor = 1, high_factor = 4;
  std::int64_t original_positions = 8192;
};

// [head_width / 2] float32. ConfigError if an option is out of range.
at::Tensor rotary_frequencies(const RotaryOptions& options);

// Holds the tables of one model; its layers share one object. Tables are made on first use on a device.
// Threads: any.
class Rotary {
 public:
  explicit Rotary(const RotaryOptions& options);

  // packed: [N, T, (heads + 2 kv_heads) head_width], query, key and value side by side. positions: undefined (0 .. T -
  // 1) or [N, T] int64. Returns packed with query and key rotated and a copy of value.
  [[nodiscard]] at::Tensor operator()(const at::Tensor& packed, std::int64_t heads, std::int64_t kv_heads,
                                      const at::Tensor& positions = {}) const;

 private:
  struct Tables {
    at::Tensor cosine, sine;  // [positions, head_width / 2] float32
  };
  [[nodiscard]] Tables tables_on(at::Device device) const;

  RotaryOptions options_;
  at::Tensor frequencies_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Tables> tables_;  // by the name of the device
};

}  // namespace sluice::nn
