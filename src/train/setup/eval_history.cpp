#include "train/setup/eval_history.h"

#include <algorithm>
#include <cmath>

namespace sluice::train {
namespace {

// Higher is better.
double score_of(const ScoreSums& sums, const std::string& best_by, const Scores& scores) {
  const auto score = std::ranges::find(scores, best_by, &Score::name);
  if (score == scores.end()) return -sums.loss();
  return score->higher_is_better ? score->of(sums) : -score->of(sums);
}

bool take(std::optional<double>& best, int& since_best, double score, double margin) {
  const bool is_better = !best || score > *best + margin * std::abs(*best);
  if (is_better) best = score;
  since_best = is_better ? 0 : since_best + 1;
  return is_better;
}

nlohmann::json or_null(const std::optional<double>& number) { return number ? nlohmann::json(*number) : nullptr; }

std::optional<double> number_in(const nlohmann::json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

}  // namespace

void add(EvalHistory& history, const ScoreSums& sums, std::int64_t step, const config::TrainConfig& train,
         const Scores& scores) {
  const double score = score_of(sums, train.best_by, scores);
  if (take(history.best, history.since_best, score, 0)) history.best_step = step;
  constexpr double kThreshold = 1e-4;  // PyTorch's default: a fraction of the best score
  EvalHistory::Plateau& plateau = history.plateau;
  take(plateau.best, plateau.since_best, score, kThreshold);
  if (plateau.since_best <= train.lr_patience) return;
  ++plateau.falls;
  plateau.since_best = 0;
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
