// scores: what a task counts besides its loss, as sums over micro-batches, replicas and processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sluice {

inline void add_to(std::vector<double>& sums, const std::vector<double>& more) {
  if (sums.size() < more.size()) sums.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
}

struct ScoreSums {
  double loss_sum = 0;
  std::int64_t targets = 0;  // counted targets: one per sample for images, the tokens for texts
  std::vector<double> sums;  // in the task's order; empty: not counted

  ScoreSums& operator+=(const ScoreSums& other) {
    loss_sum += other.loss_sum;
    targets += other.targets;
    add_to(sums, other.sums);
    return *this;
  }
  [[nodiscard]] double loss() const { return loss_sum / static_cast<double>(targets); }
  [[nodiscard]] double percent(std::size_t sum) const { return 100.0 * sums[sum] / static_cast<double>(targets); }
};

// rows: [count, 1 + scores], the loss and the scores of micro-batches, added in their order. Without targets.
[[nodiscard]] inline ScoreSums sum_in_order(const double* rows, std::int64_t count, std::size_t scores) {
  ScoreSums all{.sums = std::vector<double>(scores)};
  for (std::int64_t i = 0; i < count; ++i) {
    all.loss_sum += *rows++;
    for (double& sum : all.sums) sum += *rows++;
  }
  return all;
}

struct Score {
  std::string name;   // in records: "top1"
  std::string title;  // for readers: "top-1"
  std::string tag;    // in TensorBoard: "acc1" for "acc1/val"
  std::function<double(const ScoreSums&)> of;
  bool is_percent = true;
  bool higher_is_better = true;
  std::size_t needs = 1;  // so many sums; 0: it follows from the loss. Evaluations may have more sums than steps

  [[nodiscard]] bool is_known(const ScoreSums& all) const { return all.sums.size() >= needs; }
};

// A task's. The first one that needs sums is the main score.
using Scores = std::vector<Score>;

// Null if none is known.
[[nodiscard]] inline const Score* main_score(const Scores& scores, const ScoreSums& sums) {
  for (const Score& score : scores) {
    if (score.needs > 0 && score.is_known(sums)) return &score;
  }
  return nullptr;
}

}  // namespace sluice
