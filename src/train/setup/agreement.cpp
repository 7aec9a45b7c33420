#include "train/setup/agreement.h"

#include "config/schema.h"

namespace sluice::train {
namespace {

constexpr const char* kVersion = "the version of Sluice";

}  // namespace

comm::Agreement agreement_of(const config::Config& config, const std::string& version) {
  comm::Agreement agreement{{kVersion, version}};
  for (const auto& [key, value] : config::values(config)) {
    if (!config::has(key, config::kPerProcess)) agreement[key] = value;
  }
  return agreement;
}

comm::Agreement agreement_with_server(const config::Config& config, const std::string& version) {
  comm::Agreement agreement = agreement_of(config, version);
  const std::string batch = agreement.at("ps.worker_batch");
  std::erase_if(agreement, [](const auto& entry) { return config::has(entry.first, config::kPerWorker); });
  // With dual batch sizes, every worker's share is computed from ps.worker_batch.
  if (config.ps.policy == "dual_batch") agreement["ps.worker_batch"] = batch;
  return agreement;
}

comm::Agreement agreement_with_log(comm::Agreement agreement) {
  std::erase_if(agreement, [](const auto& entry) { return config::has(entry.first, config::kAfterRecovery); });
  agreement.erase(kVersion);
  return agreement;
}

}  // namespace sluice::train
