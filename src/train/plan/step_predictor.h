// step_predictor: what a run may expect of its plan, from costs that are known without measuring: a profile of this
// machine and model that `sluice profile` or `sluice tune` left in the cost cache, else the layers' costs that a plan
// was cut by. Not here: measuring, comparing with what came (report/prediction.h). Threads: one. Errors: none; a
// profile that cannot be read is warned of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "measure/cost_cache.h"
#include "profiler/layer_profile.h"
#include "report/reporter.h"
#include "train/plan/predicted_server.h"
#include "train/setup/setup.h"

namespace sluice::train {

class StepPredictor {
 public:
  // Nothing where no costs are known, of a parameter server and its workers too where there is one. setup: outlives it.
  [[nodiscard]] static std::optional<StepPredictor> known(const Setup& setup);

  // With a parameter server a step is an update, as in its records.
  [[nodiscard]] report::Prediction of(const Plan& plan) const;
  [[nodiscard]] std::int64_t samples(const Plan& plan) const;  // of such a step
  [[nodiscard]] bool is_of_server() const { return server_.has_value(); }
  // Seconds of a step whose batch is there.
  [[nodiscard]] double seconds_without_loading(const Plan& plan) const;
  [[nodiscard]] const std::string& source() const { return source_; }  // the file of the costs, its age and quality
  // Costs by a profile: of several sizes, with what devices take from each other and with the sums over this run's
  // replicas.
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
  std::string by_;  // report::Prediction::by
};

// The log and the records of a run, of the plan that follows; nothing where nothing is known.
void report_prediction(const std::optional<StepPredictor>& predictor, const Plan& plan, report::Reporter& reporter);

}  // namespace sluice::train
