#include "train/setup/noise_watch.h"

#include <algorithm>
#include <cmath>

#include "core/log.h"
#include "engine/noise_norms.h"
#include "models/model.h"

namespace sluice::train {
namespace {

bool is_finite(const GradientPair& pair) {
  return std::isfinite(pair.small_squares) && std::isfinite(pair.big_squares);
}

bool has_batch_norm(const Setup& setup) {
  const models::Model model = models::make_without_values(setup.model);
  return std::ranges::any_of(model.layers, [](const auto& layer) { return !layer->batch_norms().empty(); });
}

}  // namespace

std::optional<tune::GradientEstimate> noise_estimate(const StepStats& stats) {
  if (!stats.norms || !std::ranges::all_of(stats.norms->parts, is_finite)) return std::nullopt;
  tune::GradientEstimate sum;
  for (const GradientPair& pair : stats.norms->parts) {
    const auto part =
        tune::estimate_from_batches({pair.small_samples, pair.small_squares}, {pair.big_samples, pair.big_squares});
    if (!part) return std::nullopt;
    sum += *part;
  }
  return sum;
}

std::optional<report::NoiseRecord> take_in(tune::NoiseAverage::State& mean, const StepStats& stats,
                                           std::int64_t every) {
  const auto estimate = noise_estimate(stats);
  if (!estimate) return std::nullopt;
  tune::NoiseAverage average({}, mean);
  average.add(*estimate, static_cast<double>(every));
  mean = average.state();
  return report::NoiseRecord{.of_step = *estimate, .mean = average.noise_scale(), .duration = stats.norms->duration};
}

nlohmann::json noise_to_json(const tune::NoiseAverage::State& mean) {
  return {{"estimates", mean.estimates},
          {"weight", mean.weight},
          {"squared_weight", mean.squared_weight},
          {"trace", mean.mean.trace},
          {"squared_norm", mean.mean.squared_norm},
          {"trace_squares", mean.trace_squares},
          {"norm_squares", mean.norm_squares},
          {"products", mean.products}};
}

tune::NoiseAverage::State noise_from_json(const nlohmann::json& json) {
  return {.estimates = json.at("estimates"),
          .weight = json.at("weight"),
          .squared_weight = json.at("squared_weight"),
          .mean = {.trace = json.at("trace"), .squared_norm = json.at("squared_norm")},
          .trace_squares = json.at("trace_squares"),
          .norm_squares = json.at("norm_squares"),
          .products = json.at("products")};
}

void warn_of_noise(const Setup& setup, const Plan& plan) {
  if (setup.config.train.noise_scale_every_steps == 0) return;
  if (const std::string why = engine::why_no_noise_norms(plan, setup.process.processes); !why.empty()) {
    log_warning("train.noise_scale_every_steps: the noise scale is not measured: ", why);
    return;
  }
  if (setup.config.pipeline.batch_norm == "sync" && has_batch_norm(setup)) {
    log_warning(
        "train.noise_scale_every_steps with pipeline.batch_norm = \"sync\": shared statistics make the replicas' "
        "gradients dependent, but the noise scale assumes independent gradients; treat it with caution");
  }
}

}  // namespace sluice::train
