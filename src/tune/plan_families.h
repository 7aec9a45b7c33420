// plan_families: the families of a space (plan_search.h), and why the others are none; what is told of those that are
// not among the best. Only src/tune includes this. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tune/plan_family.h"
#include "tune/plan_search.h"

namespace sluice::tune {

// Groups of families with one reason.
class Refusals {
 public:
  // Of the examples of a group the one that misses least is kept; of equal ones the first.
  void add(const std::string& group, const Plan& plan, const std::string& why, double missed_by = 0,
           bool is_of_memory = false);
  // Most families first.
  [[nodiscard]] std::vector<Refusal> take() &&;

 private:
  struct Group {
    Refusal refusal;
    double missed_by = 0;
  };
  std::map<std::string, Group> groups_;
};

// In an order that does not depend on that of the lists. What a space repeats, and schedules that are the same orders,
// are one family.
[[nodiscard]] std::vector<FamilyShape> families_of(const SearchSpace& space, Refusals& refusals);

}  // namespace sluice::tune
