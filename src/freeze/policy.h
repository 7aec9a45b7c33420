// policy: how many of a model's first units stay as they are from an epoch on. A unit is a block or half a block
// (models/freeze_points.h); the head is none. Pure: from plain numbers to a number and all that it was decided from.
// Not here: measuring gradients, which layers a unit is, freezing them, caches.
//
// L: units. T: epoch, from 0. In epoch 0 no rule freezes a unit.
//   none             never any.
//   linear           ceil(L (1 - (1 - alpha)^T)): what PipeTransformer (ICML 2021) ran.
//   schedule         the units of the last entry whose epoch has come; a later entry may thaw.
//   gradient         PipeTransformer's equation 1: all units up to and with the active one of the smallest norm, which
//                    has converged first, yet no more than F + alpha (L - F), rounded up, where F are frozen now, and
//                    no more than linear has in this epoch, which is their closed form of that bound. (The paper's
//                    layer counts from 1: its range ends with L.)
//   gradient-change  AutoFreeze (Liu et al. 2021, arXiv 2102.01386): all active units before the first whose norm has
//                    changed by at least the threshold, the percentile of the changes of all active units. That unit
//                    stays active, as in their code (freeze_intermediate_e2e_lr.py: start_layer = key;
//                    PipeTransformer's copy of it froze that one, too), so the last active unit never freezes.
// Linear and schedule depend on the epoch alone. The gradient rules never thaw, and leave everything as it is where a
// norm of an active unit is missing or not finite. Of equal norms or changes the first unit counts, which freezes
// least.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::freeze {

enum class Rule { kNone, kLinear, kGradient, kGradientChange, kSchedule };

struct ScheduledFreeze {
  std::int64_t epoch;  // from this one on; at least 1
  int units;

  bool operator==(const ScheduledFreeze&) const = default;
};

struct Policy {
  Rule rule = Rule::kNone;
  double alpha = 1.0 / 3;                 // linear, gradient: (0, 1], of the active units, an epoch
  double percentile = 50;                 // gradient-change: [0, 100]
  std::vector<ScheduledFreeze> schedule;  // schedule: by increasing epoch
};

// A unit's norm is the L1 norm of the gradient that all steps since the last decision have added up, of everything that
// freezes with the unit. First the gradients are added, over steps, replicas and processes, then the norm is taken:
// opposite gradients cancel out. L1, since both papers' code measures that; it adds up over parameters, stages and
// shards. Intervals of equally many steps, or their changes are those of the number of steps.
struct Situation {
  std::int64_t epoch = 0;            // that is to begin, from 0
  int units = 0;                     // of the model; all may freeze
  int frozen = 0;                    // now
  std::vector<double> norms;         // [unit]; those of frozen units are not read; empty: not measured
  std::vector<double> norms_before;  // the same of the interval before; empty: there was none
};

// Units count from 0. A value may be infinite or not a number, as a norm may be.
struct Term {
  std::string name;  // "cap", "norm_3": of unit 3
  double value;

  bool operator==(const Term&) const = default;
};

struct Decision {
  int frozen;               // units, from now on
  std::vector<Term> terms;  // all that it was decided from, for the record
};

// The same in every process that is given the same. Requires: values in their ranges, 0 <= frozen <= units, a schedule
// that fits (schedule_text.h); norms are not negative, and there is one for every unit or none at all.
[[nodiscard]] Decision decide(const Policy& policy, const Situation& situation);

[[nodiscard]] bool needs_gradients(const Policy& policy);
[[nodiscard]] bool is_known_beforehand(const Policy& policy);  // depends on the epoch and the number of units alone

// "none", "linear", "gradient", "gradient-change", "schedule". ConfigError for another.
[[nodiscard]] Rule rule_of(const std::string& name);

}  // namespace sluice::freeze
