#include "tune/plan_search.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/concat.h"
#include "core/text.h"
#include "tune/cut_search.h"
#include "tune/memory_model.h"
#include "tune/plan_families.h"

namespace sluice::tune {
namespace {

// Families with at most this many cuts are searched exactly at once.
constexpr double kFewCuts = 256;
constexpr int kRestarts = 4;  // per family in the first look
// Share of the time left for the first look at all families.
constexpr double kFirstLook = 0.5;
// Rates that agree to nine digits are equal. A bound must exceed the bar by this share to rule out a family.
constexpr double kMargin = 1e-8;

double nine_digits(double value) {
  if (value <= 0) return value;
  const double scale = std::pow(10.0, 8 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

std::string four_digits(double value) {
  return fixed(value, value > 0 ? std::clamp(3 - static_cast<int>(std::floor(std::log10(value))), 0, 12) : 0);
}

enum class State { kUnseen, kOpen, kSearched, kNoRoom, kTooSlow, kBeyond };  // kBeyond: ruled out by its bound

struct Searched {
  FamilyShape shape;
  double bound = 0;
  ScoredCut best;
  State state = State::kUnseen;

  [[nodiscard]] double rate_of(double seconds) const { return static_cast<double>(shape.plan.global_batch) / seconds; }
  [[nodiscard]] double most_rate() const { return rate_of(bound); }
  [[nodiscard]] double rate() const { return best.is_found() ? rate_of(best.seconds) : 0; }
  [[nodiscard]] Plan plan() const {
    Plan plan = shape.plan;
    plan.partition = best.partition, plan.recompute = best.recompute;
    return plan;
  }
  [[nodiscard]] auto key() const {
    const Plan& plan = shape.plan;
    return std::tuple(-nine_digits(rate()), plan.chunks, plan.devices() * plan.replicas, plan.virtual_stages,
                      plan.replicas, std::ranges::count(best.recompute, true));
  }
};

class PlanSearch {
 public:
  PlanSearch(const SearchSpace& space, const SearchLimit& limit)
      : space_(space), deadline_(limit.clock, limit.clock ? limit.clock() + limit.seconds : 0) {}

  SearchResult run() && {
    for (FamilyShape& shape : families_of(space_, refusals_)) {
      const double bound = bound_of(shape, space_).of({});
      families_.push_back({std::move(shape), bound, {}, State::kUnseen});
    }
    std::ranges::stable_sort(families_, std::greater{}, &Searched::most_rate);
    search_families(deadline_.share(kFirstLook));
    while (count_open(0) > 0 && !deadline_.is_over()) search_all();
    return result();
  }

 private:
  void search_families(const Deadline& deadline) {
    for (std::size_t i = 0; i < families_.size() && !deadline_.is_over(); ++i)
      if (!rule_out(families_[i]))
        look_at(families_[i], deadline.share(1.0 / static_cast<double>(families_.size() - i)));
  }

  void search_all() {
    for (std::size_t i = 0; i < families_.size() && !deadline_.is_over(); ++i) {
      Searched& family = families_[i];
      if (is_settled(family) || rule_out(family)) continue;
      search(family, deadline_.share(1.0 / static_cast<double>(count_open(i))));
    }
  }

  static bool is_settled(const Searched& family) {
    return family.state != State::kUnseen && family.state != State::kOpen;
  }

  [[nodiscard]] std::int64_t count_open(std::size_t from) const {
    return std::ranges::count_if(families_.begin() + static_cast<std::ptrdiff_t>(from), families_.end(),
                                 [&](const Searched& family) { return !is_settled(family) && !is_beyond(family); });
  }

  [[nodiscard]] double bar() const { return top_.size() < kMostCandidates ? 0 : top_.back()->rate(); }
  [[nodiscard]] bool is_beyond(const Searched& family) const { return family.most_rate() < bar() * (1 - kMargin); }
  [[nodiscard]] double bar_seconds(const Searched& family) const {
    return bar() > 0 ? family.rate_of(bar()) * (1 + kMargin) : kNever;
  }

  bool rule_out(Searched& family) {
    if (!is_beyond(family)) return false;
    family.state = family.best.is_found() ? State::kSearched : State::kBeyond;
    ++pruned_;
    return true;
  }

  // Scores at least one cut regardless of the time, and more while time is left.
  void look_at(Searched& family, const Deadline& deadline) {
    PlanFamily plans(family.shape, space_);
    family.state = State::kOpen;
    CutClimb climb(plans, deadline);
    if (plans.count_cuts() <= kFewCuts) {
      exhaust(family, plans, deadline);
    } else {
      climb.from(plans.even_cut(), family.best);
      if (plans.is_flat() && !deadline.is_over()) climb.from(plans.best_by_stage(), family.best);
      for (int i = 0; i < kRestarts && !deadline.is_over(); ++i) climb.restart(family.best);
    }
    if (family.state == State::kOpen && !family.best.is_found()) climb.from(plans.even_cut(), family.best);
    finish(family, plans);
  }

  void search(Searched& family, const Deadline& deadline) {
    PlanFamily plans(family.shape, space_);
    family.state = State::kOpen;
    exhaust(family, plans, deadline.share(kFirstLook));
    CutClimb climb(plans, deadline);
    while (family.state == State::kOpen && !space_.partition && !deadline.is_over()) climb.restart(family.best);
    finish(family, plans);
  }

  void exhaust(Searched& family, PlanFamily& plans, const Deadline& deadline) {
    CutSearch search(plans, bar_seconds(family), deadline);
    const bool is_complete = space_.partition ? score_pinned(family, plans) : search.improve(family.best);
    pruned_ += search.pruned();
    if (!is_complete) return;
    family.state = State::kSearched;
    if (!plans.looks_at_all_choices()) is_proven_ = false;
    if (!family.best.is_found()) family.state = search.has_slower() ? State::kTooSlow : State::kNoRoom;
  }

  bool score_pinned(Searched& family, PlanFamily& plans) {
    family.best = plans.score(*space_.partition, kNever);
    return true;
  }

  void finish(Searched& family, const PlanFamily& plans) {
    tried_ += plans.tried;
    if (!family.best.is_found() || family.rate() < bar()) return;
    std::vector<const Searched*> all;
    for (const Searched& other : families_)
      if (other.best.is_found()) all.push_back(&other);
    std::ranges::stable_sort(all, {}, [](const Searched* other) { return other->key(); });
    top_.clear();
    for (const Searched* other : all) {
      const auto has_plan = [&](const Searched* known) { return known->plan() == other->plan(); };
      if (top_.size() < kMostCandidates && std::ranges::none_of(top_, has_plan)) top_.push_back(other);
    }
  }

  Candidate candidate(const Searched& family) {
    const PlanFamily plans(family.shape, space_);
    Candidate made{.plan = family.plan(), .step = plans.predict(family.best), .samples_per_s = family.rate()};
    const MemoryModel model{family.shape.costs->layers, space_.shares_memory, space_.processes};
    made.device_bytes = estimate_device_bytes(model, made.plan).value_or(std::vector<std::uint64_t>());
    return made;
  }

  void refuse(Searched& family) {
    const Plan plan = family.plan();
    if (family.best.is_found()) {
      if (std::ranges::none_of(top_, [&](const Searched* best) { return best->plan() == plan; }))
        refusals_.add("slower", plan, concat(four_digits(family.rate()), " samples/s, less than ", tenth()),
                      -family.rate());
    } else if (family.state == State::kUnseen || family.state == State::kOpen) {
      refusals_.add("time", plan, "no time was left to find a cut of it");
    } else {
      refuse_without_cut(family);
    }
  }

  // Some of the families that are too slow may not fit either.
  void refuse_without_cut(Searched& family) {
    const Plan plan = family.plan();
    if (family.state == State::kNoRoom) {
      PlanFamily plans(family.shape, space_);
      const PlanFamily::Need need = plans.least_need();
      Plan example = plan;
      example.partition = need.cut.partition, example.recompute = need.cut.recompute;
      refusals_.add(concat("memory ", family.shape.plan.stages()), example, need.sentence,
                    static_cast<double>(need.bytes), /*is_of_memory=*/true);
    } else if (family.state == State::kTooSlow) {
      refusals_.add("cuts", plan, concat("every cut is slower than ", tenth()), family.bound);
    } else {
      refusals_.add("bound", plan,
                    concat("at best ", four_digits(family.most_rate()), " samples/s, less than ", tenth()),
                    -family.most_rate());
    }
  }

  [[nodiscard]] std::string tenth() const { return concat("the tenth best plan's ", four_digits(bar())); }

  SearchResult result() {
    SearchResult result{.tried = tried_, .pruned = pruned_};
    for (const Searched* family : top_) result.best.push_back(candidate(*family));
    for (Searched& family : families_) {
      refuse(family);
      if (!is_settled(family)) is_proven_ = false;
    }
    result.is_proven = is_proven_;
    result.refusals = std::move(refusals_).take();
    return result;
  }

  const SearchSpace& space_;
  Deadline deadline_;
  Refusals refusals_;
  std::vector<Searched> families_;
  std::vector<const Searched*> top_;
  bool is_proven_ = true;
  std::int64_t tried_ = 0;
  std::int64_t pruned_ = 0;
};

}  // namespace

SearchResult search_plans(const SearchSpace& space, const SearchLimit& limit) { return PlanSearch(space, limit).run(); }

int first_guess_chunks(int devices, double samples, const AffineCost& slowest_stage) {
  const double most = std::max(1.0, std::floor(samples));
  if (devices <= 1) return 1;
  const double square = (devices - 1) * slowest_stage.b_s * samples;
  if (slowest_stage.a_s <= 0) return static_cast<int>(square > 0 ? most : 1);
  return static_cast<int>(std::clamp(std::round(std::sqrt(square / slowest_stage.a_s)), 1.0, most));
}

}  // namespace sluice::tune
