#include "train/setup/agreement.h"

#include <algorithm>
#include <array>

namespace sluice::train {
namespace {

// Keys, or beginnings of keys, that may differ between processes: how each does its part, and what rank 0 alone does.
constexpr std::array kOwnKeys{"device.list",
                              "device.threads",
                              "device.memory_limit",
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

// Besides these, what workers of a parameter server may have otherwise: how each runs its part, and what the server
// alone does.
constexpr std::array kOwnKeysOfWorkers{
    "pipeline.",     "profile.",          "replicas.local",      "train.global_batch",
    "train.eval",    "train.micro_batch", "train.deterministic", "ps.worker_batch",
    "ps.partitions", "ps.keys",           "ps.address",          "ps.log"};

template <typename Keys>
bool is_among(const Keys& keys, const std::string& key) {
  return std::ranges::any_of(keys, [&](const char* own) { return key.starts_with(own); });
}

}  // namespace

comm::Agreement agreement_of(const config::Config& config, const std::string& version) {
  comm::Agreement agreement{{"the version of Sluice", version}};
  for (const auto& [key, value] : config::values(config)) {
    if (!is_among(kOwnKeys, key)) agreement[key] = value;
  }
  return agreement;
}

comm::Agreement agreement_with_server(const config::Config& config, const std::string& version) {
  comm::Agreement agreement = agreement_of(config, version);
  const std::string batch_norm = agreement.at("pipeline.batch_norm"), batch = agreement.at("ps.worker_batch");
  std::erase_if(agreement, [](const auto& entry) { return is_among(kOwnKeysOfWorkers, entry.first); });
  agreement["pipeline.batch_norm"] = batch_norm;
  if (config.ps.policy == "dual_batch") agreement["ps.worker_batch"] = batch;  // the shares of all come from it
  return agreement;
}

comm::Agreement agreement_with_log(comm::Agreement agreement) {
  std::erase_if(agreement, [](const auto& entry) {
    const std::string& key = entry.first;
    return key == "the version of Sluice" || key == "train.steps" || key == "train.epochs" ||
           key.starts_with("train.lr") || key.starts_with("ps.induce") || key == "ps.placement";
  });
  return agreement;
}

}  // namespace sluice::train
