// step_predictor: predicts a run's step from known costs: a profile of this machine and model in the cost cache, else
// the layer costs of the partition. Threads: one. Errors: none; an unreadable profile gives a warning.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/plan.h"
#include "measure/cost_cache.h"
#include "profiler/layer_profile.h"
#include "report/reporter.h"
#include "train/plan/predicted_server.h"
#include "train/setup/setup.h"

namespace sluice::train {

class StepPredictor {
 public:
  // nullopt if no costs are known, including the parameter server's if there is one. Requires: `setup` outlives it.
  [[nodiscard]] static std::optional<StepPredictor> known(const Setup& setup);

  // With a parameter server a step is an update, as in its records.
  [[nodiscard]] report::Prediction of(const Plan& plan) const;
  // False if the features of frozen layers may be kept: the first steps make them, later ones take less time. The
  // change of plan says what a step takes on average.
  [[nodiscard]] bool has_equal_steps(const Plan& plan) const;
  [[nodiscard]] std::int64_t samples(const Plan& plan) const;
  [[nodiscard]] bool is_of_server() const { return server_.has_value(); }
  [[nodiscard]] double seconds_without_loading(const Plan& plan) const;
  [[nodiscard]] const std::string& source() const { return source_; }  // file, age and quality of the costs
  // For advice about the steps of `plan`; nothing of a parameter server's. Outlived by the setup, not by the predictor.
  [[nodiscard]] tune::AdviceCosts advice_costs(const Plan& plan) const;
  // True if the costs come from a profile: several sizes, contention between devices, sums over this run's replicas.
  [[nodiscard]] bool is_by_profile() const { return by_ == report::kByProfile; }

 private:
  StepPredictor(const Setup& setup, measure::KeptCosts costs, std::string by)
      : setup_(setup),
        profile_(std::move(costs.profile)),
        source_(std::move(costs.source)),
        server_(server_use(setup.config, profile_)),
        by_(std::move(by)) {}

  [[nodiscard]] double seconds(const Plan& plan, bool with_loading) const;

  const Setup& setup_;
  profiler::LayerProfile profile_;
  std::string source_;
  std::optional<tune::ServerUse> server_;
  std::string by_;
};

// What advice about `plan` and other plans is predicted from. Requires: `setup` outlives it.
[[nodiscard]] tune::AdviceCosts advice_costs(const Setup& setup, const profiler::LayerProfile& profile,
                                             const Plan& plan);

// Logs and records the time of a step of `plan`, if there is one time.
void report_prediction(const std::optional<StepPredictor>& predictor, const Plan& plan, report::Reporter& reporter);

}  // namespace sluice::train
