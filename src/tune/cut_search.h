// cut_search: the fastest cut of a family, by branch and bound or by moving borders. Internal to src/tune.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "core/plan.h"
#include "core/rng.h"
#include "tune/deadline.h"
#include "tune/plan_family.h"

namespace sluice::tune {

// Branch and bound over all cuts, stage by stage. Prunes cuts slower than the best one or than the bar.
class CutSearch {
 public:
  // bar: seconds; slower cuts are ignored.
  CutSearch(PlanFamily& family, double bar, const Deadline& deadline)
      : family_(family), bar_(bar), deadline_(deadline) {}

  // Returns true if the search finished before the deadline: then no cut is faster than both `best` and the bar.
  [[nodiscard]] bool improve(ScoredCut& best);
  [[nodiscard]] std::int64_t pruned() const { return pruned_; }
  [[nodiscard]] bool has_slower() const { return has_slower_; }

 private:
  void place(ScoredCut& best);
  void visit(ScoredCut& best);
  [[nodiscard]] double worst(const ScoredCut& best) const;
  [[nodiscard]] bool must_stop();

  PlanFamily& family_;
  double bar_;
  const Deadline& deadline_;
  std::vector<int> ends_;
  std::int64_t pruned_ = 0;
  std::int64_t nodes_ = 0;
  bool has_slower_ = false;
  bool is_stopped_ = false;
};

// Steepest descent by moving one border, or both borders of a stage, by one layer: first for memory, then for time.
class CutClimb {
 public:
  CutClimb(PlanFamily& family, const Deadline& deadline) : family_(family), deadline_(deadline), rng_(0) {}

  void from(const Partition& start, ScoredCut& best);
  // Restarts from cuts near the best one, or from random cuts until one fits in memory.
  void restart(ScoredCut& best);

 private:
  struct Height {
    std::uint64_t excess = 0;
    double seconds = kNever;

    [[nodiscard]] bool is_below(const Height& other) const {
      return excess != other.excess ? excess < other.excess : seconds < other.seconds * (1 - kSameTime);
    }
  };

  [[nodiscard]] Height height(const Partition& partition, const Height& below, ScoredCut& best);
  [[nodiscard]] std::vector<Partition> neighbours(const Partition& partition) const;
  [[nodiscard]] Partition random_cut();

  PlanFamily& family_;
  const Deadline& deadline_;
  RngStream rng_;
  std::set<std::vector<int>> seen_;
};

}  // namespace sluice::tune
