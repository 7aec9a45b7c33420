#include "train/plan/profile_overheads.h"

#include <algorithm>
#include <array>

#include "config/schema.h"
#include "core/concat.h"
#include "storage/checksum.h"

namespace sluice::train {

tune::StepOverheads step_overheads(const config::Config& config, const profiler::LayerProfile& profile,
                                   int local_replicas, int processes, bool shares_memory) {
  constexpr double kMiB = 1024 * 1024;
  tune::StepOverheads costs{.bucket_bytes = config.replicas.bucket_mb * kMiB,
                            .sent_share = sent_share(config, processes),
                            .update = profile.update,
                            .updaters = shares_memory ? local_replicas : 1,
                            .contenders = profile.contenders,
                            .replicas_on_machine = local_replicas};
  const profiler::Fingerprint& print = profile.fingerprint;
  if (is_of_cpu(profile) && print.cores > 0 && print.threads_per_device > 0)
    costs.runnable = std::max(1.0, static_cast<double>(print.cores) / print.threads_per_device);
  if (profile.step) costs.other_s = profile.step->other_s;
  if (local_replicas * processes == 1) return costs;
  if (const LinkCost* sum = profile.all_reduce_of(processes, local_replicas)) costs.all_reduce = *sum;
  costs.replicas = local_replicas * processes;
  // Replicas update equal parts at the same time; the stages of one replica have different weights.
  if (local_replicas > 1 && profile.update_together) costs.update = profile.update_together;
  if (profile.step) costs.deviation = profile.step->compute_deviation;
  return costs;
}

bool is_of_cpu(const profiler::LayerProfile& profile) { return profile.fingerprint.device.starts_with("cpu"); }

std::string hash_of_loading(const config::Config& config) {
  constexpr std::array kSameWork{"data.path", "data.limit", "data.samples", "data.validation"};
  std::string text = concat(config.model.image_size, " ", config.model.context);
  for (const config::Key& key : config::schema())
    if (key.name.starts_with("data.") && !key.has(config::kHow) &&
        std::ranges::find(kSameWork, key.name) == kSameWork.end())
      text += concat(" ", key.name, "=", config::to_text(key.field.get(config)));
  return storage::digest_text(text).xxh3_128;
}

bool loads_as_measured(const config::Config& config, const profiler::LayerProfile& profile) {
  return profile.load_of.empty() || profile.load_of == hash_of_loading(config);
}

std::optional<tune::Loading> loading_of(const config::Config& config, const profiler::LayerProfile& profile,
                                        const Plan& plan, int processes) {
  if (!profile.load) return std::nullopt;
  const profiler::Fingerprint& print = profile.fingerprint;
  return tune::Loading{
      .cost = *profile.load,
      .threads = config.data.workers,
      .samples = static_cast<double>(plan.global_batch) / processes,
      .cores = print.cores,
      .busy_threads = is_of_cpu(profile) ? plan.devices() * plan.replicas * print.threads_per_device : 0};
}

double sent_share(const config::Config& config, int processes) {
  if (config.replicas.bucket_type != "bf16" || processes == 1) return 1;
  return config.train.precision == "fp64" ? 0.25 : 0.5;
}

}  // namespace sluice::train
