#include "train/plan/step_predictor.h"

#include <algorithm>
#include <vector>

#include "core/concat.h"
#include "core/log.h"
#include "core/text.h"
#include "measure/cost_cache.h"
#include "train/plan/choose_plan.h"
#include "train/plan/profile_overheads.h"
#include "train/plan/what_if.h"
#include "tune/memory_model.h"

namespace sluice::train {
namespace {

std::map<std::string, std::uint64_t> bytes_by_device(const Setup& setup, const Plan& plan,
                                                     const std::vector<LayerCost>& costs) {
  if (plan.frozen_layers > 0) return {};  // what the devices hold for frozen layers is not predicted
  const auto bytes = tune::estimate_slot_bytes(memory_model_of(costs, setup), plan);
  std::map<std::string, std::uint64_t> by_device;
  if (!bytes || bytes->size() != setup.devices.size()) return by_device;
  for (std::size_t slot = 0; slot < bytes->size(); ++slot)
    by_device[device::to_string(setup.devices[slot])] += bytes->at(slot);
  return by_device;
}

}  // namespace

std::optional<StepPredictor> StepPredictor::known(const Setup& setup) {
  const bool has_server = setup.config.replicas.has_server();
  const std::string& cache = setup.config.pipeline.cost_cache;
  if (auto kept = measure::find_profile(cache, workload_of(setup))) {
    profiler::LayerProfile& profile = kept->profile;
    const int local = setup.config.replicas.local, processes = setup.process.processes;
    if (has_server && !server_use(setup.config, profile)) return std::nullopt;
    if (!loads_as_measured(setup.config, profile)) profile.load.reset();
    const bool knows_sums = local * processes == 1 || profile.all_reduce_of(processes, local) != nullptr;
    return StepPredictor(setup, *std::move(kept), knows_sums ? report::kByProfile : report::kByLayers);
  }
  if (has_server) return std::nullopt;
  if (auto layers = measure::find_costs(cache, workload_of(setup), micro_batch_size(setup)))
    return StepPredictor(setup, *std::move(layers), report::kByLayers);
  return std::nullopt;
}

double StepPredictor::seconds(const Plan& plan, bool with_loading) const {
  return predict_by_profile(setup_.config, profile_, plan, setup_.process.processes,
                            {.cores_share = share_of_cores(setup_.process), .with_loading = with_loading})
      .seconds;
}

double StepPredictor::seconds_without_loading(const Plan& plan) const { return seconds(plan, /*with_loading=*/false); }

report::Prediction StepPredictor::of(const Plan& plan) const {
  if (server_) {  // a server's process holds no training model
    const int updates = server_->waits_for_all ? 1 : server_->workers;
    return {.step_s = seconds(plan, /*with_loading=*/true) / updates, .by = by_, .device_bytes = {}};
  }
  const std::int64_t micro_batch = tune::largest_micro_batch(plan, setup_.process.processes);
  return {.step_s = seconds(plan, /*with_loading=*/true),
          .by = by_,
          .device_bytes = bytes_by_device(setup_, plan, profile_.costs_at(micro_batch))};
}

bool StepPredictor::has_equal_steps(const Plan& plan) const {
  return plan.frozen_layers == 0 || !keeps_features(setup_.config);
}

std::int64_t StepPredictor::samples(const Plan& plan) const {
  return plan.global_batch * (server_ ? server_->pushes_of_update() : 1);
}

tune::AdviceCosts StepPredictor::advice_costs(const Plan& plan) const {
  return server_ ? tune::AdviceCosts{} : train::advice_costs(setup_, profile_, plan);
}

tune::AdviceCosts advice_costs(const Setup& setup, const profiler::LayerProfile& profile, const Plan& plan) {
  const auto predict = [&setup, profile](const Plan& other, double bucket_mb) -> std::optional<double> {
    config::Config config = setup.config;
    config.replicas.bucket_mb = bucket_mb;
    try {
      return predict_by_profile(config, profile, other, setup.process.processes,
                                {.cores_share = share_of_cores(setup.process)})
          .seconds;
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  };
  return {.predict = predict,
          .layers = profile.costs(),
          .borders = overheads_by_profile(setup.config, profile, plan, setup.process.processes).borders,
          .bucket_mb = setup.config.replicas.bucket_mb};
}

void report_prediction(const std::optional<StepPredictor>& predictor, const Plan& plan, report::Reporter& reporter) {
  if (!predictor || !predictor->has_equal_steps(plan)) return;
  const report::Prediction prediction = predictor->of(plan);
  std::uint64_t most = 0;
  for (const auto& [device, bytes] : prediction.device_bytes) most = std::max(most, bytes);
  log_info("predicted from the ", prediction.by == report::kByLayers ? "layer costs" : "profile", " in ",
           predictor->source(), ": ", fixed(prediction.step_s * 1e3, 1),
           predictor->is_of_server() ? " ms an update, " : " ms a step, ",
           fixed(static_cast<double>(predictor->samples(plan)) / prediction.step_s, 1), " samples/s",
           most > 0 ? concat(", ", human_bytes(most), " on the fullest device") : "");
  reporter.prediction(prediction);
}

}  // namespace sluice::train
