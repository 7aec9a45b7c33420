#include "train/setup/agreement.h"

#include <filesystem>

#include "config/schema.h"
#include "storage/checksum.h"

namespace sluice::train {
namespace {

constexpr const char* kVersion = "the version of Sluice";

// The path may differ between processes, the content may not.
std::string content_of(const std::string& file) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(file, ignored) ? storage::digest_file(file).xxh3_128 : "no such file";
}

}  // namespace

comm::Agreement agreement_of(const config::Config& config, const std::string& version) {
  comm::Agreement agreement{{kVersion, version}};
  for (const auto& [key, value] : config::values(config)) {
    if (!config::has(key, config::kPerProcess)) agreement[key] = value;
  }
  if (!config.model.config.empty()) agreement["the content of model.config"] = content_of(config.model.config);
  if (!config.model.file.empty()) agreement["the content of model.file"] = content_of(config.model.file);
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
