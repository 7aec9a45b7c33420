// plan_families: lists the plan families of a search space (plan_search.h) and groups the reasons for rejected ones.
// Internal to src/tune. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tune/plan_family.h"
#include "tune/plan_search.h"

namespace sluice::tune {

class Refusals {
 public:
  // A group keeps as example the family that misses least, or the first of a tie.
  void add(const std::string& group, const Plan& plan, const std::string& why, double missed_by = 0,
           bool is_of_memory = false);
  [[nodiscard]] std::vector<Refusal> take() &&;

 private:
  struct Group {
    Refusal refusal;
    double missed_by = 0;
  };
  std::map<std::string, Group> groups_;
};

// The order does not depend on the order of the space's lists. Duplicates, and schedules with equal actions, form one
// family.
[[nodiscard]] std::vector<FamilyShape> families_of(const SearchSpace& space, Refusals& refusals);

}  // namespace sluice::tune
