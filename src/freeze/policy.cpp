#include "freeze/policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::freeze {
namespace {

constexpr std::array<std::pair<const char*, Rule>, 5> kRules{{{"none", Rule::kNone},
                                                              {"linear", Rule::kLinear},
                                                              {"gradient", Rule::kGradient},
                                                              {"gradient-change", Rule::kGradientChange},
                                                              {"schedule", Rule::kSchedule}}};

// Values within this relative distance of a whole number count as that number. This absorbs rounding, and fractions
// written as 0.6666666667 instead of 2/3.
constexpr double kRounding = 1e-9;

int rounded_up(double units) {
  const double nearest = std::round(units);
  const bool is_whole = nearest > 0 && std::abs(units - nearest) <= kRounding * nearest;
  return static_cast<int>(is_whole ? nearest : std::ceil(units));
}

// L (1 - (1 - alpha)^T), accurate also for a small alpha.
double linear_units(double alpha, const Situation& now) {
  return now.epoch == 0 ? 0 : -now.units * std::expm1(static_cast<double>(now.epoch) * std::log1p(-alpha));
}

Decision linear(const Policy& policy, const Situation& now) {
  const double units = linear_units(policy.alpha, now);
  return {rounded_up(units), {{"alpha", policy.alpha}, {"linear_units", units}}};
}

Decision scheduled(const Policy& policy, const Situation& now) {
  Decision decision{0, {}};
  for (const ScheduledFreeze& entry : policy.schedule) {
    check(entry.epoch >= 1 && entry.units >= 0 && entry.units <= now.units, "a freeze schedule that fits the model");
    if (entry.epoch <= now.epoch) decision = {entry.units, {{"scheduled_epoch", static_cast<double>(entry.epoch)}}};
  }
  return decision;
}

// Appends the active norms to `terms`; if they cannot support a decision, returns false and appends the reason.
bool has_all_norms(const std::vector<double>& norms, const Situation& now, const std::string& name,
                   std::vector<Term>& terms) {
  if (norms.empty()) {
    terms.push_back({name + "_missing", 1});
    return false;
  }
  check(norms.size() == static_cast<std::size_t>(now.units), "one norm for each unit");
  bool are_finite = true;
  for (int unit = now.frozen; unit < now.units; ++unit) {
    check(!(norms[unit] < 0), "norms of at least 0");
    terms.push_back({concat(name, "_", unit), norms[unit]});
    are_finite = are_finite && std::isfinite(norms[unit]);
  }
  if (!are_finite) terms.push_back({name + "_not_finite", 1});
  return are_finite;
}

Decision smallest_gradient(const Policy& policy, const Situation& now) {
  Decision decision{now.frozen, {{"alpha", policy.alpha}}};
  if (!has_all_norms(now.norms, now, "norm", decision.terms) || now.frozen == now.units) return decision;
  const double step_cap = now.frozen + policy.alpha * (now.units - now.frozen);
  const double linear_cap = linear_units(policy.alpha, now);
  const int cap = std::min(rounded_up(step_cap), rounded_up(linear_cap));
  const auto smallest = std::ranges::min_element(now.norms.begin() + now.frozen, now.norms.end());
  const int unit = static_cast<int>(smallest - now.norms.begin());
  decision.terms.insert(decision.terms.end(), {{"step_cap", step_cap},
                                               {"linear_cap", linear_cap},
                                               {"cap", static_cast<double>(cap)},
                                               {"smallest_norm_unit", static_cast<double>(unit)}});
  decision.frozen = std::max(now.frozen, std::min(cap, unit + 1));
  return decision;
}

// Infinite if a unit's norm was 0 and is not any more; 0 if both are 0.
double relative_change(double before, double now) {
  if (before == now) return 0;
  return before == 0 ? std::numeric_limits<double>::infinity() : std::abs(before - now) / before;
}

double percentile_of(std::vector<double> values, double percentile) {
  std::ranges::sort(values);
  const double position = static_cast<double>(values.size() - 1) * percentile / 100;
  const auto below = static_cast<std::size_t>(position);
  const double low = values[below], high = values[std::min(below + 1, values.size() - 1)];
  const double part = position - static_cast<double>(below);
  return part == 0 || low == high ? low : std::lerp(low, high, part);  // 0 * infinity is NaN
}

Decision gradient_change(const Policy& policy, const Situation& now) {
  Decision decision{now.frozen, {{"percentile", policy.percentile}}};
  const bool is_measured = has_all_norms(now.norms, now, "norm", decision.terms);
  const bool was_measured = has_all_norms(now.norms_before, now, "norm_before", decision.terms);
  if (!is_measured || !was_measured || now.frozen == now.units || now.epoch == 0) return decision;
  std::vector<double> changes;
  for (int unit = now.frozen; unit < now.units; ++unit) {
    changes.push_back(relative_change(now.norms_before[unit], now.norms[unit]));
    decision.terms.push_back({concat("change_", unit), changes.back()});
  }
  const double threshold = percentile_of(changes, policy.percentile);
  const auto first = std::ranges::find_if(changes, [&](double change) { return change >= threshold; });
  decision.terms.push_back({"threshold", threshold});
  decision.frozen = now.frozen + static_cast<int>(first - changes.begin());
  return decision;
}

Decision by_rule(const Policy& policy, const Situation& now) {
  switch (policy.rule) {
    case Rule::kNone: return {0, {}};
    case Rule::kLinear: return linear(policy, now);
    case Rule::kGradient: return smallest_gradient(policy, now);
    case Rule::kGradientChange: return gradient_change(policy, now);
    case Rule::kSchedule: return scheduled(policy, now);
  }
  check(false, "a known freeze rule");
  return {};
}

}  // namespace

Decision decide(const Policy& policy, const Situation& situation) {
  const bool has_ranges = policy.alpha > 0 && policy.alpha <= 1 && policy.percentile >= 0 && policy.percentile <= 100;
  check(has_ranges, "a policy with alpha in (0, 1] and percentile in [0, 100]");
  check(situation.epoch >= 0 && situation.frozen >= 0 && situation.frozen <= situation.units,
        "epoch >= 0 and 0 <= frozen <= units");
  Decision decision = by_rule(policy, situation);
  decision.terms.insert(decision.terms.begin(), {{"epoch", static_cast<double>(situation.epoch)},
                                                 {"units", static_cast<double>(situation.units)},
                                                 {"frozen_before", static_cast<double>(situation.frozen)}});
  return decision;
}

bool needs_gradients(const Policy& policy) {
  return policy.rule == Rule::kGradient || policy.rule == Rule::kGradientChange;
}

bool is_known_beforehand(const Policy& policy) { return !needs_gradients(policy); }

Rule rule_of(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [word, rule] : kRules) {
    if (name == word) return rule;
    known.emplace_back(word);
  }
  throw ConfigError("freeze.policy = \"", printable(name), "\" is unknown; choose one of: ", join(known, ", "),
                    did_you_mean(name, known));
}

}  // namespace sluice::freeze
