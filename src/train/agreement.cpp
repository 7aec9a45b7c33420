#include "train/agreement.h"

#include <algorithm>
#include <array>

namespace sluice::train {
namespace {

// Keys, or beginnings of keys, that may differ between processes: how each does its part, and what rank 0 alone does.
constexpr std::array kOwnKeys{"device.",
                              "data.path",
                              "data.workers",
                              "data.prefetch",
                              "model.weights",
                              "pipeline.cost_cache",
                              "freeze.cache_bytes",
                              "freeze.cache_disk_bytes",
                              "freeze.cache_dir",
                              "checkpoint.",
                              "profile.peak_tflops",
                              "train.step_timeout_s",
                              "log.",
                              "replicas.connect_timeout_s",
                              "replicas.hang_timeout_s"};

bool may_differ(const std::string& key) {
  return std::ranges::any_of(kOwnKeys, [&](const char* own) { return key.starts_with(own); });
}

}  // namespace

comm::Agreement agreement_of(const config::Config& config, const std::string& version) {
  comm::Agreement agreement{{"the version of Sluice", version}};
  for (const auto& [key, value] : config::values(config)) {
    if (!may_differ(key)) agreement[key] = value;
  }
  return agreement;
}

}  // namespace sluice::train
