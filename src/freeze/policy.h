// policy: how many of a model's first units are frozen from an epoch on. A unit is a block or half a block
// (models/freeze_points.h). Pure functions.
// L is the number of units and T the epoch, counted from 0. In epoch 0 no rule freezes a unit.
//   none             never freezes.
//   linear           ceil(L (1 - (1 - alpha)^T)), the rule that PipeTransformer (ICML 2021) ran.
//   schedule         the units of the last entry whose epoch has been reached; a later entry may thaw units.
//   gradient         PipeTransformer's equation 1. Freezes up to and including the active unit with the smallest norm,
//                    at most F + alpha (L - F) rounded up, with F units frozen now, and at most linear's number for the
//                    epoch, the paper's closed form of that limit.
//   gradient-change  AutoFreeze (Liu et al. 2021, arXiv 2102.01386). Freezes the active units before the first one
//                    whose norm changed by at least the threshold, a percentile of the changes of all active units.
//                    PipeTransformer's copy of AutoFreeze's code froze that unit, too.
// linear and schedule depend on the epoch alone. The gradient rules never thaw, and change nothing if the norm of an
// active unit is missing or not finite. If norms or changes are equal, the first unit counts, which freezes least.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::freeze {

enum class Rule { kNone, kLinear, kGradient, kGradientChange, kSchedule };

struct ScheduledFreeze {
  std::int64_t epoch;  // first epoch of the entry; at least 1
  int units;

  bool operator==(const ScheduledFreeze&) const = default;
};

struct Policy {
  Rule rule = Rule::kNone;
  double alpha = 1.0 / 3;                 // linear, gradient: share of the active units per epoch, (0, 1]
  double percentile = 50;                 // gradient-change: [0, 100]
  std::vector<ScheduledFreeze> schedule;  // schedule: sorted by epoch
};

// The L1 norm of a unit's gradient, added up over all steps since the last decision, over replicas and processes, so
// opposite gradients cancel out. L1 is what the code of both papers measures. All intervals must have the same number
// of steps, because the norm grows with that number.
struct Situation {
  std::int64_t epoch = 0;  // the epoch that begins, from 0
  int units = 0;
  int frozen = 0;                    // number of units frozen now
  std::vector<double> norms;         // [unit]; entries of frozen units are not read; empty: not measured
  std::vector<double> norms_before;  // norms of the previous interval; empty: there was no such interval
};

// A named number of the decision's record. It may be infinite or NaN, as norms may be.
struct Term {
  std::string name;  // "cap", "norm_3" (of unit 3, counted from 0)
  double value;

  bool operator==(const Term&) const = default;
};

struct Decision {
  int frozen;               // number of frozen units from now on
  std::vector<Term> terms;  // all values that the decision was derived from, for the record
};

// Deterministic, so that processes with equal inputs agree. Requires: values in their ranges, 0 <= frozen <= units, a
// schedule that fits the model (schedule_text.h), and norms >= 0 for every unit or none.
[[nodiscard]] Decision decide(const Policy& policy, const Situation& situation);

[[nodiscard]] bool needs_gradients(const Policy& policy);
[[nodiscard]] bool is_known_beforehand(const Policy& policy);  // depends on the epoch and the number of units alone

[[nodiscard]] Rule rule_of(const std::string& name);

}  // namespace sluice::freeze
