// eval_history: the best evaluation and the learning rate's falls on plateaus, equal in all processes. Plateaus follow
// torch.optim.lr_scheduler.ReduceLROnPlateau with its defaults: the rate falls after more than train.lr_patience
// evaluations without an improvement by a fraction of 1e-4.
#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "core/scores.h"

namespace sluice::train {

struct EvalHistory {
  std::optional<double> best;  // by train.best_by; nullopt before the first evaluation
  std::int64_t best_step = 0;
  int since_best = 0;
  struct Plateau {
    std::optional<double> best;
    int since_best = 0;
    int falls = 0;  // how often the rate fell
    bool operator==(const Plateau&) const = default;
  } plateau;

  bool operator==(const EvalHistory&) const = default;
  [[nodiscard]] nlohmann::json to_json() const;
  [[nodiscard]] static EvalHistory from_json(const nlohmann::json& json);  // throws nlohmann::json::exception
};

// step: steps done before the evaluation. Requires: a finite loss.
void add(EvalHistory& history, const ScoreSums& sums, std::int64_t step, const config::TrainConfig& train,
         const Scores& scores);

[[nodiscard]] inline bool ends_early(const EvalHistory& history, const config::TrainConfig& train) {
  return train.stop_patience > 0 && history.since_best >= train.stop_patience;
}

}  // namespace sluice::train
