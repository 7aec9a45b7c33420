#include "measure/fingerprint_of.h"

#include <algorithm>

#include <torch/version.h>

#include "device/cpu_threads.h"
#include "nn/kernels/kernels.h"
#include "storage/checksum.h"

namespace sluice::measure {
namespace {

const char* name_of(nn::BatchNormMode mode) {
  switch (mode) {
    case nn::BatchNormMode::kMicro: return "micro";
    case nn::BatchNormMode::kDeferred: return "deferred";
    case nn::BatchNormMode::kSync: return "sync";
  }
  return "";
}

const char* precision_of(const models::ModelOptions& model) {
  if (model.in_bf16) return "bf16";
  return model.dtype == at::kDouble ? "fp64" : "fp32";
}

std::optional<std::string> name_of(nn::Winograd allowed) {
  switch (allowed) {
    case nn::Winograd::kNone: return "none";
    case nn::Winograd::k4x4: return "4x4";
    case nn::Winograd::k2x2: break;
  }
  return std::nullopt;
}

std::optional<bool> tf32_of(const Workload& workload) {
  const models::ModelOptions& model = workload.model;
  const bool matters = workload.device.kind == device::DeviceKind::kCuda && model.dtype == at::kFloat && !model.in_bf16;
  return matters ? std::optional(workload.tf32) : std::nullopt;
}

std::optional<std::vector<std::string>> optional_inputs_of(const Workload& workload) {
  std::vector<std::string> names;
  for (const models::TensorInfo& info : models::make_without_values(workload.model).inputs) {
    const bool is_given = std::ranges::find(workload.optional_inputs, info.name) != workload.optional_inputs.end();
    if (info.is_optional && is_given) names.push_back(info.name);
  }
  return names.empty() ? std::nullopt : std::optional(names);
}

}  // namespace

std::string digest_of_model(const std::string& file) { return storage::digest_file(file).xxh3_128; }

profiler::Fingerprint fingerprint_of(const Workload& workload, const std::string& version) {
  profiler::Fingerprint fingerprint{.cores = device::available_cores(),
                                    .threads_per_device = workload.threads,
                                    .instruction_set = nn::kernels::best().instruction_set,
                                    .device = device::to_string(workload.device),
                                    .sluice = version,
                                    .libtorch = TORCH_VERSION,
                                    .precision = precision_of(workload.model),
                                    .winograd = name_of(workload.numerics.winograd),
                                    .tf32 = tf32_of(workload),
                                    .optimizer = optim::name_of(workload.optimizer),
                                    .batch_norm = name_of(workload.numerics.batch_norm),
                                    .model = workload.model,
                                    .label_smoothing = workload.numerics.label_smoothing,
                                    .deterministic = workload.is_deterministic};
  if (workload.tokens > 0) fingerprint.model.context = static_cast<int>(workload.tokens);
  if (workload.usual_tokens > 0) fingerprint.usual_tokens = workload.usual_tokens;
  fingerprint.inputs = optional_inputs_of(workload);
  if (!workload.model.config.empty())  // its path says nothing of what it holds
    fingerprint.model.config = models::config_json(models::text_config(workload.model), 0);
  if (!workload.model.file.empty()) fingerprint.model.file = digest_of_model(workload.model.file);
  for (const device::DeviceDescription& device : device::list_devices()) {
    if (device.device.kind == device::DeviceKind::kCpu) {
      fingerprint.cpu = device.model;
      fingerprint.memory_bytes = device.memory_bytes;
    } else {
      fingerprint.gpus.push_back(device.model);
    }
  }
  return fingerprint;
}

}  // namespace sluice::measure
