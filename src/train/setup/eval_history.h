// eval_history: what a run's evaluations have come to: the best one, how long none was better, and how often the rate
// fell on a plateau. From it follow checkpoint.best, train.stop_patience and train.lr_schedule = "plateau". A pure
// value that checkpoints hold; every process adds the same counts and comes to the same. The plateau is
// torch.optim.lr_scheduler.ReduceLROnPlateau's with its defaults: an evaluation has to be better by a part of 1e-4, and
// after more than `patience` in a row that were not the rate falls and the count begins anew.
#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "core/step_stats.h"

namespace sluice::train {

struct EvalHistory {
  std::optional<double> best;  // by train.best_by; nothing: there was no evaluation
  std::int64_t best_step = 0;  // the first that came to it
  int since_best = 0;          // evaluations after it
  struct Plateau {
    std::optional<double> best;
    int since_best = 0;
    int falls = 0;  // of the rate
    bool operator==(const Plateau&) const = default;
  } plateau;

  bool operator==(const EvalHistory&) const = default;
  [[nodiscard]] nlohmann::json to_json() const;
  [[nodiscard]] static EvalHistory from_json(const nlohmann::json& json);  // throws nlohmann::json::exception
};

// Takes in the evaluation after step `step`. Requires: a finite loss.
void add(EvalHistory& history, const EvalCounts& counts, std::int64_t step, const config::TrainConfig& train);

[[nodiscard]] inline bool ends_early(const EvalHistory& history, const config::TrainConfig& train) {
  return train.stop_patience > 0 && history.since_best >= train.stop_patience;
}

}  // namespace sluice::train
