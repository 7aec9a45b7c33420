#include "train/study/measure_alone.h"

#include <cstdint>
#include <optional>

#include "core/divided_up.h"
#include "core/log.h"
#include "core/text.h"
#include "measure/fingerprint_of.h"
#include "measure/measure_layers.h"
#include "measure/measure_loading.h"
#include "measure/measure_server.h"
#include "measure/measure_slowdowns.h"
#include "measure/measure_update.h"
#include "train/plan/choose_plan.h"
#include "train/plan/predicted_server.h"
#include "train/plan/profile_overheads.h"
#include "train/setup/server_settings.h"
#include "train/study/profile_sums.h"

namespace sluice::train {
namespace {

using profiler::LayerProfile;

// Larger micro-batches of other plans are extrapolated from at most four times this plan's.
std::int64_t most_samples_for_bytes(const Setup& setup) {
  return std::min(4 * micro_batch_size(setup), divided_up(setup.global_batch, std::int64_t{count_replicas(setup)}));
}

// CPU devices to measure the slowdown on: those of the configuration, with a parameter server's workers on this
// machine, but at most one per core. tune/contention.h computes the wait for cores.
int measured_at_once(const Setup& setup, const profiler::Fingerprint& print) {
  if (!shares_memory(setup)) return 1;
  int slots = std::max(1, cpu_slots(setup.devices));
  if (is_on_one_machine(setup.config)) slots *= setup.config.ps.workers;
  return std::clamp(print.cores / std::max(1, print.threads_per_device), 1, slots);
}

// nullopt without a parameter server, or if its workers do not push gradients.
std::optional<profiler::MeasuredServer> server_of(const Setup& setup, std::uint64_t weights_bytes) {
  const config::PsConfig& ps = setup.config.ps;
  if (!setup.config.replicas.has_server() || workers_update(setup.config)) return std::nullopt;
  measure::ServerSetup measured{.device = setup.devices.front(),
                                .dtype = setup.model.dtype,
                                .cpu_threads = setup.cpu_threads,
                                .bucket_bytes = static_cast<std::size_t>(setup.config.replicas.bucket_mb * 1024 * 1024),
                                .shards = ps.shards,
                                .compression = compression_options(ps),
                                .server = server_options(setup)};
  measured.server.lr = {};  // the run's rate need not suit
  return profiler::MeasuredServer{.cost = measure::measure_server(measured, weights_bytes),
                                  .push_compression = ps.push_compression,
                                  .pull_compression = ps.pull_compression,
                                  .topk_ratio = ps.topk_ratio};
}

}  // namespace

LayerProfile measure_alone(const Setup& setup, const std::string& version, const tune::Deadline& end,
                           const std::function<void(const LayerProfile&)>& keep) {
  constexpr double kLayersShare = 0.5, kSlowdownsShare = 0.1;  // of the remaining time
  LayerProfile profile{.fingerprint = measure::fingerprint_of(workload_of(setup), version),
                       .micro_batch = micro_batch_size(setup)};
  // Another plan may have one replica here, with one micro-batch.
  const auto sizes = measure::sizes_to_profile(profile.micro_batch, setup.global_batch / setup.process.processes);
  log_info("measuring ", counted(setup.layers, "layer"), " on ", profile.fingerprint.device, " at ", sizes.size(),
           " sizes of up to ", counted(sizes.back(), "sample"));
  profile.layers =
      measure::measure_layers(workload_of(setup), {.sizes = sizes,
                                                   .least_rounds = 5,
                                                   .most_rounds = 40,
                                                   .budget_s = 10,
                                                   .needed_size = profile.micro_batch,
                                                   .limit_s = end.is_limited() ? kLayersShare * end.left() : 0,
                                                   .most_samples = most_samples_for_bytes(setup),
                                                   .with_kernels = setup.config.profile.level == "cupti"});
  keep(profile);
  const int at_once = measured_at_once(setup, profile.fingerprint);
  if (at_once > 1) {
    log_info("measuring how much ", at_once, " devices slow each other down");
    const std::int64_t samples = std::min(profile.micro_batch, profile.layers.front().times.back().samples);
    measure::SlowdownPasses passes;
    if (end.is_limited()) passes = {.least = 1, .seconds = std::min(passes.seconds, kSlowdownsShare * end.left())};
    const auto slowdowns = measure::measure_slowdowns(workload_of(setup), at_once, samples, profile.layers, passes);
    for (std::size_t i = 0; i < slowdowns.size(); ++i) profile.layers[i].cost.slowdown = slowdowns[i];
    profile.contenders = at_once;
    keep(profile);
  }
  log_info("measuring the links and the optimizer");
  profile.stage_links = measure_borders(setup);
  const std::uint64_t weights = trained_bytes_of_stage(profile.layers, plan_request(setup).stages());
  profile.update = measure::measure_update(workload_of(setup), weights);
  const bool shares_update = cpu_slots(setup.devices) > 1 || at_once > 1;
  if (shares_update) profile.update_together = measure::measure_update(workload_of(setup), weights, at_once);
  profile.server = server_of(setup, trained_bytes_of_stage(profile.layers, 1));
  if (setup.train_set) {
    profile.load = measure::measure_loading(*setup.train_set, train_loader_options(setup));
    profile.load_of = hash_of_loading(setup.config);
  }
  return profile;
}

}  // namespace sluice::train
