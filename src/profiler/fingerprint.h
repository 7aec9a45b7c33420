// fingerprint: everything that must be the same for measured layer costs to hold elsewhere: the machine, how much of it
// a device uses, the software, and what was measured. Pure. Not here: finding these things out
// (measure/fingerprint_of.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/model_spec.h"

namespace sluice::profiler {

struct Fingerprint {
  std::string cpu;                 // model name
  int cores = 0;                   // that the process may use
  int threads_per_device = 0;      // of a CPU device
  std::string instruction_set;     // of our kernels
  std::uint64_t memory_bytes = 0;  // of the machine
  std::vector<std::string> gpus;   // model names
  std::string device;              // that the layers were measured on
  std::string sluice;              // version
  std::string libtorch;            // version
  std::string precision;
  std::optional<std::string> winograd;  // train.winograd where it is not "2x2"
  std::optional<bool> tf32;             // device.tf32 of a GPU in float32
  std::string optimizer;
  std::string batch_norm;
  ModelSpec model;
  double label_smoothing = 0;
  bool deterministic = false;

  bool operator==(const Fingerprint&) const = default;
};

[[nodiscard]] nlohmann::ordered_json to_json(const Fingerprint& fingerprint);

// 16 hexadecimal digits of XXH3-64 over the fields: the same for equal fingerprints.
[[nodiscard]] std::string short_hash(const Fingerprint& fingerprint);

// "cpu", "threads_per_device": the fields that differ, for messages; empty when none does.
[[nodiscard]] std::vector<std::string> differences(const Fingerprint& a, const Fingerprint& b);

}  // namespace sluice::profiler
