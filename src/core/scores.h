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

struct Score {
  std::string name;   // in records: "top1"
  std::string title;  // for readers: "top-1"
  std::string tag;    // in TensorBoard: "acc1" for "acc1/val"
  std::function<double(const ScoreSums&)> of;
  bool is_percent = true;
  bool higher_is_better = true;
  bool needs_sums = true;  // false: it follows from the loss
};

// A task's. The first one that needs sums is the main score.
using Scores = std::vector<Score>;

}  // namespace sluice
