#include "tune/cut_search.h"

#include <algorithm>
#include <numeric>

namespace sluice::tune {

bool CutSearch::improve(ScoredCut& best) {
  ends_.clear();
  is_stopped_ = deadline_.is_over();
  place(best);
  return !is_stopped_;
}

double CutSearch::worst(const ScoredCut& best) const { return std::min(bar_, best.seconds * (1 - kSameTime)); }

bool CutSearch::must_stop() {
  constexpr std::int64_t kNodesBetweenLooks = 64;
  if (!is_stopped_ && ++nodes_ % kNodesBetweenLooks == 0) is_stopped_ = deadline_.is_over();
  return is_stopped_;
}

void CutSearch::place(ScoredCut& best) {
  const int stage = static_cast<int>(ends_.size());
  const int left = family_.stages() - stage - 1;
  const int begin = ends_.empty() ? 0 : ends_.back();
  for (int end = left == 0 ? family_.layers() : begin + 1; end <= family_.layers() - left; ++end) {
    if (must_stop()) return;
    ends_.push_back(end);
    const bool takes_too_long = family_.bound().of_last(ends_) > worst(best);
    if (takes_too_long || family_.bound().of(ends_) > worst(best)) {
      ++pruned_, has_slower_ = true;
    } else if (family_.memory().has_room(ends_)) {
      visit(best);
    }
    ends_.pop_back();
    if (takes_too_long) return;  // longer stages take too long as well
  }
}

void CutSearch::visit(ScoredCut& best) {
  if (static_cast<int>(ends_.size()) < family_.stages()) return place(best);
  Partition partition{std::vector<int>(ends_.size())};
  std::adjacent_difference(ends_.begin(), ends_.end(), partition.layers_per_stage.begin());
  is_stopped_ = deadline_.is_over();
  if (is_stopped_) return;
  ScoredCut scored = family_.score(partition, worst(best));
  if (scored.is_found()) best = std::move(scored);
  has_slower_ = true;
}

CutClimb::Height CutClimb::height(const Partition& partition, const Height& below, ScoredCut& best) {
  if (!seen_.insert(partition.layers_per_stage).second) return {UINT64_MAX, kNever};
  Height height{.excess = family_.memory().excess(partition)};
  if (height.excess > 0) return height;
  const double worst = below.excess > 0 ? kNever : below.seconds;
  std::vector<int> ends(partition.layers_per_stage.size());
  std::partial_sum(partition.layers_per_stage.begin(), partition.layers_per_stage.end(), ends.begin());
  if (family_.bound().of(ends) > worst) return height;
  ScoredCut scored = family_.score(partition, worst);
  height.seconds = scored.seconds;
  if (scored.seconds < best.seconds * (1 - kSameTime)) best = std::move(scored);
  return height;
}

std::vector<Partition> CutClimb::neighbours(const Partition& partition) const {
  std::vector<Partition> all;
  const auto add = [&](int from, int to) {
    if (partition.layers_per_stage[from] < 2) return;
    Partition& moved = all.emplace_back(partition);
    --moved.layers_per_stage[from];
    ++moved.layers_per_stage[to];
  };
  for (int stage = 0; stage + 1 < family_.stages(); ++stage) {
    add(stage, stage + 1), add(stage + 1, stage);
    if (stage + 2 < family_.stages()) add(stage, stage + 2), add(stage + 2, stage);
  }
  return all;
}

void CutClimb::from(const Partition& start, ScoredCut& best) {
  Partition here = start;
  Height lowest = height(here, {.excess = UINT64_MAX}, best);
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (const Partition& next : neighbours(here)) {
      if (deadline_.is_over()) return;
      const Height found = height(next, lowest, best);
      if (!found.is_below(lowest)) continue;
      lowest = found, here = next, has_moved = true;
    }
  }
}

Partition CutClimb::random_cut() {
  std::vector<int> all(family_.layers() - 1), ends;
  std::iota(all.begin(), all.end(), 1);
  shuffle(all, rng_);
  ends.assign(all.begin(), all.begin() + family_.stages() - 1);
  ends.push_back(family_.layers());
  std::ranges::sort(ends);
  Partition cut{std::vector<int>(ends.size())};
  std::adjacent_difference(ends.begin(), ends.end(), cut.layers_per_stage.begin());
  return cut;
}

void CutClimb::restart(ScoredCut& best) {
  if (!best.is_found()) return from(random_cut(), best);
  Partition start = best.partition;
  const std::uint64_t moves = 2 + rng_.below(static_cast<std::uint64_t>(family_.stages()));
  for (std::uint64_t i = 0; i < moves; ++i) {
    const auto near = neighbours(start);
    if (near.empty()) return;
    start = near[rng_.below(near.size())];
  }
  from(start, best);
}

}  // namespace sluice::tune
