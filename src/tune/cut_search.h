// cut_search: the fastest cut of a family: exactly, by branch and bound, or by moving borders. Only src/tune includes
// this.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "core/plan.h"
#include "core/rng.h"
#include "tune/plan_family.h"

namespace sluice::tune {

// A time on a clock; without a clock it never comes.
class Deadline {
 public:
  explicit Deadline(std::function<double()> clock = {}, double at = 0) : clock_(std::move(clock)), at_(at) {}

  [[nodiscard]] bool is_over() const { return clock_ && clock_() >= at_; }
  [[nodiscard]] double left() const { return clock_ ? at_ - clock_() : kNever; }
  // This share of what is left.
  [[nodiscard]] Deadline share(double of_it) const {
    return clock_ ? Deadline(clock_, at_ - (1 - of_it) * std::max(0.0, left())) : *this;
  }

 private:
  std::function<double()> clock_;
  double at_;
};

// All cuts, stage by stage, but for those that are known to take longer than the best one, or than the bar.
class CutSearch {
 public:
  // bar: seconds; slower cuts are of no interest.
  CutSearch(PlanFamily& family, double bar, const Deadline& deadline)
      : family_(family), bar_(bar), deadline_(deadline) {}

  // Whether it came to the end: then no cut within the bar is faster than `best`.
  [[nodiscard]] bool improve(ScoredCut& best);
  // Parts of cuts that a bound ruled out.
  [[nodiscard]] std::int64_t pruned() const { return pruned_; }
  // Whether there are cuts that may have room, or have it, but are too slow.
  [[nodiscard]] bool has_slower() const { return has_slower_; }

 private:
  void place(ScoredCut& best);
  void visit(ScoredCut& best);
  [[nodiscard]] double worst(const ScoredCut& best) const;
  [[nodiscard]] bool must_stop();

  PlanFamily& family_;
  double bar_;
  const Deadline& deadline_;
  std::vector<int> ends_;  // of the stages so far
  std::int64_t pruned_ = 0;
  std::int64_t nodes_ = 0;
  bool has_slower_ = false;
  bool is_stopped_ = false;
};

// Steepest descent: a border, or both borders of a stage, by a layer. First towards room, then towards speed.
class CutClimb {
 public:
  CutClimb(PlanFamily& family, const Deadline& deadline) : family_(family), deadline_(deadline), rng_(0) {}

  void from(const Partition& start, ScoredCut& best);
  // From cuts near the best one, or anywhere as long as none has room.
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
