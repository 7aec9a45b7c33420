#include "train/eval_history.h"

namespace sluice::train {
namespace {

// Larger is better.
double score_of(const EvalCounts& counts, const config::TrainConfig& train) {
  return train.best_by == "loss" ? -counts.loss() : counts.top1_percent();
}

void add_to_plateau(EvalHistory::Plateau& plateau, double score, int patience) {
  constexpr double kThreshold = 1e-4;  // torch's, a part of the best; of a loss the score is negative
  const bool is_better = !plateau.best || score > *plateau.best + kThreshold * std::abs(*plateau.best);
  if (is_better) {
    plateau.best = score;
    plateau.since_best = 0;
    return;
  }
  if (++plateau.since_best <= patience) return;
  ++plateau.falls;
  plateau.since_best = 0;
}

nlohmann::json or_null(const std::optional<double>& number) { return number ? nlohmann::json(*number) : nullptr; }

std::optional<double> number_in(const nlohmann::json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

}  // namespace

void add(EvalHistory& history, const EvalCounts& counts, std::int64_t step, const config::TrainConfig& train) {
  const double score = score_of(counts, train);
  add_to_plateau(history.plateau, score, train.lr_patience);
  if (history.best && score <= *history.best) {
    ++history.since_best;
    return;
  }
  history.best = score;
  history.best_step = step;
  history.since_best = 0;
}

nlohmann::json EvalHistory::to_json() const {
  return {{"best", or_null(best)},
          {"best_step", best_step},
          {"since_best", since_best},
          {"plateau", {{"best", or_null(plateau.best)}, {"since_best", plateau.since_best}, {"falls", plateau.falls}}}};
}

EvalHistory EvalHistory::from_json(const nlohmann::json& json) {
  const nlohmann::json& plateau = json.at("plateau");
  return {.best = number_in(json.at("best")),
          .best_step = json.at("best_step"),
          .since_best = json.at("since_best"),
          .plateau = {number_in(plateau.at("best")), plateau.at("since_best"), plateau.at("falls")}};
}

}  // namespace sluice::train
