// fingerprint: what must be equal for measured layer costs to be valid elsewhere (measure/fingerprint_of.h). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/model_spec.h"

namespace sluice::profiler {

struct Fingerprint {
  std::string cpu;
  int cores = 0;                // available to the process
  int threads_per_device = 0;   // of a CPU device
  std::string instruction_set;  // of Sluice's kernels
  std::uint64_t memory_bytes = 0;
  std::vector<std::string> gpus;
  std::string device;
  std::string sluice;
  std::string libtorch;
  std::string precision;
  std::optional<std::string> winograd;  // train.winograd if it is not "2x2"
  std::optional<bool> tf32;             // device.tf32 of a GPU in float32
  std::string optimizer;
  std::string batch_norm;
  ModelSpec model;                                 // context: tokens of the longest text
  std::optional<std::int64_t> usual_tokens;        // that batches of texts are padded to on average
  std::optional<std::vector<std::string>> inputs;  // of texts beside the tokens, such as mask
  double label_smoothing = 0;
  bool deterministic = false;

  bool operator==(const Fingerprint&) const = default;
};

[[nodiscard]] nlohmann::ordered_json to_json(const Fingerprint& fingerprint);

[[nodiscard]] std::string short_hash(const Fingerprint& fingerprint);

[[nodiscard]] std::vector<std::string> differences(const Fingerprint& a, const Fingerprint& b);

}  // namespace sluice::profiler
