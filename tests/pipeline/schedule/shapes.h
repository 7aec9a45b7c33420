// shapes: which shapes the property tests go through, the names of their cases, and what validate() says of them.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/simulate.h"
#include "pipeline/schedule/validate.h"

namespace sluice::pipeline::test {

struct NamedShape {
  std::string name;
  PipelineShape shape;

  [[nodiscard]] Schedule make() const { return make_schedule(name, shape); }
  [[nodiscard]] int virtual_stages() const { return shape.virtual_stages.value_or(default_virtual_stages(name)); }
  [[nodiscard]] std::string text() const {
    return name + " p=" + std::to_string(shape.stages) + " m=" + std::to_string(shape.micro_batches) +
           " V=" + std::to_string(virtual_stages());
  }
};

inline bool is_looped(const std::string& name) { return name == "interleaved" || name == "looped-bfs"; }

// v: virtual stages, of the schedules that take any number.
inline NamedShape shape_of(const std::string& name, int p, int m, int v = 1) {
  NamedShape shape{name, {.stages = p, .micro_batches = m, .virtual_stages = {}}};
  if (is_looped(name)) shape.shape.virtual_stages = v;
  return shape;
}

// What validate() says: "valid", or its error.
inline std::string verdict(const Schedule& schedule, const Limits& limits = {}) {
  try {
    validate(schedule, limits);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "valid";
}

inline bool is_valid(const Schedule& schedule, const Limits& limits = {}) {
  return verdict(schedule, limits) == "valid";
}

// Calls `visit` for every schedule there is of at most these sizes.
template <typename Visit>
void for_each_shape(int most_stages, int most_micro_batches, int most_virtual, Visit visit) {
  for (const auto& name : schedule_names()) {
    for (int p = 1; p <= most_stages; ++p) {
      for (int m = name == "dualpipe-v" ? 2 * p : 1; m <= most_micro_batches; ++m) {
        for (int v = 1; v <= (is_looped(name) ? most_virtual : 1); ++v) {
          PipelineShape shape{.stages = p, .micro_batches = m, .virtual_stages = {}};
          if (is_looped(name)) shape.virtual_stages = v;
          visit(NamedShape{name, shape});
        }
      }
    }
  }
}

// Schedules drawn at random.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  double time(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }

  NamedShape shape(const std::string& name, int most_stages, int most_micro_batches) {
    PipelineShape shape{.stages = between(1, most_stages), .micro_batches = 1, .virtual_stages = {}};
    shape.micro_batches =
        between(name == "dualpipe-v" ? 2 * shape.stages : 1, std::max(most_micro_batches, 2 * shape.stages));
    if (is_looped(name)) shape.virtual_stages = between(1, 4);
    return {name, shape};
  }

  StepCost cost() { return {time(0.1, 5), time(0.1, 5), time(0.1, 5)}; }

 private:
  std::mt19937 random_;
};

inline Costs even_costs(const Schedule& schedule, const StepCost& device, double hop = 0) {
  const std::vector<StepCost> devices(schedule.devices.size(), device);
  return {.stages = share_costs(schedule, devices), .sent_bytes = {}, .link = {.latency = hop}};
}

}  // namespace sluice::pipeline::test
