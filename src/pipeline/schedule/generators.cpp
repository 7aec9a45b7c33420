#include "pipeline/schedule/generators.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace sluice::pipeline {
namespace {

struct Generator {
  std::string_view name;
  Schedule (*make)(const PipelineShape&);
  int virtual_stages;              // default
  int micro_batches_a_device = 0;  // least number
};
constexpr std::array kGenerators{
    Generator{"gpipe", make_gpipe, 1},
    Generator{"1f1b", make_1f1b, 1},
    Generator{"eager-1f1b", make_eager_1f1b, 1},
    Generator{"interleaved", make_interleaved, 2},
    Generator{"looped-bfs", make_looped_bfs, 2},
    Generator{"zb-h1", make_zb_h1, 1},
    Generator{"zb-h2", make_zb_h2, 1},
    Generator{"zb-v", make_zb_v, 2},
    Generator{"dualpipe-v", make_dualpipe_v, 2, 2},
};

const Generator& find_generator(std::string_view name) {
  for (const auto& generator : kGenerators) {
    if (generator.name == name) return generator;
  }
  throw ConfigError("unknown schedule '", name, "'; choose one of: ", join(schedule_names(), ", "),
                    did_you_mean(name, schedule_names()));
}

}  // namespace

Schedule make_schedule(std::string_view name, const PipelineShape& shape) { return find_generator(name).make(shape); }
int default_virtual_stages(std::string_view name) { return find_generator(name).virtual_stages; }

int least_micro_batches(std::string_view name, int devices) {
  return std::max(1, find_generator(name).micro_batches_a_device * devices);
}

std::span<const std::string> schedule_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> list;
    list.reserve(kGenerators.size());
    for (const auto& generator : kGenerators) list.emplace_back(generator.name);
    return list;
  }();
  return kNames;
}

Schedule with_reductions(Schedule schedule) {
  for (auto& actions : schedule.devices) {
    std::map<StageId, std::size_t> last_unit;  // first action of the unit with the last B or W of each stage
    for (std::size_t begin = 0; begin < actions.size(); begin = unit_end(actions, begin)) {
      for (std::size_t i = begin; i < unit_end(actions, begin); ++i) {
        if (actions[i].op == Op::kBackward || actions[i].op == Op::kWeightGradient) last_unit[actions[i].stage] = begin;
      }
    }
    std::multimap<std::size_t, StageId> complete_after;
    for (const auto& [stage, unit] : last_unit) complete_after.emplace(unit, stage);
    std::vector<Action> longer;
    for (std::size_t begin = 0; begin < actions.size(); begin = unit_end(actions, begin)) {
      for (std::size_t i = begin; i < unit_end(actions, begin); ++i) longer.push_back(actions[i]);
      const auto [first, last] = complete_after.equal_range(begin);
      for (auto it = first; it != last; ++it) longer.push_back({Op::kReduceGradient, it->second, MicroBatchId{0}});
    }
    actions = std::move(longer);
  }
  return schedule;
}

}  // namespace sluice::pipeline
