#include "pipeline/schedule/validate.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/inspect.h"

namespace sluice::pipeline {
namespace {

struct Place {
  int device = 0;
  int position = 0;
};
using Places = std::map<Action, Place>;

template <typename... Parts>
[[noreturn]] void reject(const Schedule& schedule, std::string_view rule, const Parts&... parts) {
  throw ConfigError(concat("schedule '", schedule.name, "' breaks the rule '", rule, "': ", parts...));
}

template <typename Visit>
void for_each_action(const Schedule& schedule, Visit visit) {
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    for (std::size_t position = 0; position < schedule.devices[device].size(); ++position) {
      visit(schedule.devices[device][position], Place{static_cast<int>(device), static_cast<int>(position)});
    }
  }
}

std::string at(Place place) { return concat("device ", place.device, ", position ", place.position); }

void check_shape(const Schedule& schedule) {
  if (!is_schedule_name(schedule.name)) {
    reject(schedule, "shape", "its name must be one word of letters, digits, '_', '-' and '.'");
  }
  if (schedule.stages < 1) reject(schedule, "shape", "stages=", schedule.stages, ", expected at least 1");
  if (schedule.micro_batches < 1) {
    reject(schedule, "shape", "micro_batches=", schedule.micro_batches, ", expected at least 1");
  }
  if (schedule.devices.empty()) reject(schedule, "shape", "it has no devices");
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    if (schedule.devices[device].empty()) {
      reject(schedule, "shape", "device ", device, " has no actions; leave it out or give it a stage");
    }
  }
}

void check_ranges(const Schedule& schedule) {
  for_each_action(schedule, [&](const Action& action, Place place) {
    if (index(action.stage) < 0 || index(action.stage) >= schedule.stages) {
      reject(schedule, "range", to_text(action), " (", at(place), ") names stage ", index(action.stage),
             ", expected 0 to ", schedule.stages - 1);
    }
    if (index(action.micro_batch) < 0 || index(action.micro_batch) >= schedule.micro_batches) {
      reject(schedule, "range", to_text(action), " (", at(place), ") names micro-batch ", index(action.micro_batch),
             ", expected 0 to ", schedule.micro_batches - 1);
    }
  });
}

// What follows `action` in the order of Action's comparison when every stage has every micro-batch.
Action successor(Action action, const Schedule& schedule) {
  if (index(action.micro_batch) + 1 < schedule.micro_batches) {
    return {action.op, action.stage, static_cast<MicroBatchId>(index(action.micro_batch) + 1)};
  }
  if (index(action.stage) + 1 < schedule.stages) {
    return {action.op, static_cast<StageId>(index(action.stage) + 1), MicroBatchId{0}};
  }
  return {Op::kBackward, StageId{0}, MicroBatchId{0}};
}

// Counts, not sets: a second copy of an action is an error as much as a missing one. Works on the sorted actions, so
// that a file which claims a billion stages costs no more than the actions it has.
Places check_complete(const Schedule& schedule) {
  Places places;
  for_each_action(schedule, [&](const Action& action, Place place) {
    const auto [first, fresh] = places.emplace(action, place);
    if (!fresh) {
      reject(schedule, "complete", to_text(action), " is there twice (", at(first->second), " and ", at(place),
             "), expected once");
    }
  });
  const std::int64_t per_op = std::int64_t{schedule.stages} * schedule.micro_batches;
  const std::int64_t expected = is_forward_only(schedule) ? per_op : 2 * per_op;
  if (static_cast<std::int64_t>(places.size()) == expected) return places;
  Action wanted{};
  for (const auto& [action, place] : places) {
    if (action != wanted) break;
    wanted = successor(wanted, schedule);
  }
  reject(schedule, "complete", to_text(wanted), " is missing; expected ", expected, " actions, found ", places.size());
}

void check_owners(const Schedule& schedule) {
  std::map<StageId, Place> owners;
  for_each_action(schedule, [&](const Action& action, Place place) {
    const auto [first, fresh] = owners.emplace(action.stage, place);
    if (!fresh && first->second.device != place.device) {
      reject(schedule, "owner", to_text(action), " is on device ", place.device, ", expected device ",
             first->second.device, ", which has the first action of stage ", index(action.stage));
    }
  });
}

void check_order(const Schedule& schedule, const Places& places) {
  for (const auto& [action, place] : places) {
    if (action.op != Op::kBackward) continue;
    const Action forward{Op::kForward, action.stage, action.micro_batch};
    if (places.at(forward).position > place.position) {
      reject(schedule, "order", to_text(action), " (", at(place), ") comes before ", to_text(forward), " (",
             at(places.at(forward)), "), expected after it");
    }
  }
}

// Actions as nodes of a graph; an edge from each action to those it waits for.
class WaitGraph {
 public:
  WaitGraph(const Schedule& schedule, const Places& places) : schedule_(schedule), places_(places) {}

  void require_acyclic() const {
    const auto pending = run_all_that_can();
    for (std::size_t device = 0; device < pending.size(); ++device) {
      if (pending[device] < schedule_.devices[device].size()) report_cycle(pending);
    }
  }

 private:
  [[nodiscard]] bool is_done(const Action& action, const std::vector<std::size_t>& next) const {
    const Place place = places_.at(action);
    return static_cast<std::size_t>(place.position) < next[static_cast<std::size_t>(place.device)];
  }

  // Per device, the position of its first action that can never run (the end of its list when all can).
  [[nodiscard]] std::vector<std::size_t> run_all_that_can() const {
    std::vector<std::size_t> next(schedule_.devices.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t device = 0; device < next.size(); ++device) {
        const auto& actions = schedule_.devices[device];
        while (next[device] < actions.size() && !blocker(actions[next[device]], next)) {
          ++next[device];
          moved = true;
        }
      }
    }
    return next;
  }

  [[nodiscard]] std::optional<Action> blocker(const Action& action, const std::vector<std::size_t>& next) const {
    for (const auto& input : inputs_of(action, schedule_.stages)) {
      if (!is_done(input, next)) return input;
    }
    return std::nullopt;
  }

  // Walks from one stuck device to the device that holds what it waits for, until a device comes up again.
  [[noreturn]] void report_cycle(const std::vector<std::size_t>& next) const {
    std::vector<int> seen(next.size(), -1);
    std::vector<std::pair<Action, Action>> waits;  // (stuck action, the input it waits for)
    std::size_t device = 0;
    while (next[device] == schedule_.devices[device].size()) ++device;
    while (seen[device] < 0) {
      seen[device] = static_cast<int>(waits.size());
      const Action stuck = schedule_.devices[device][next[device]];
      const auto input = blocker(stuck, next);
      waits.emplace_back(stuck, *input);
      device = static_cast<std::size_t>(places_.at(*input).device);
    }
    std::string cycle;
    for (auto i = static_cast<std::size_t>(seen[device]); i < waits.size(); ++i) {
      const Action& behind =
          i + 1 < waits.size() ? waits[i + 1].first : waits[static_cast<std::size_t>(seen[device])].first;
      const auto& [stuck, input] = waits[i];
      cycle += concat(cycle.empty() ? "" : ", ", to_text(stuck), " waits for ", to_text(input));
      if (input != behind)
        cycle += concat(", which is after ", to_text(behind), " on device ", places_.at(input).device);
    }
    reject(schedule_, "progress", "the devices wait for each other for ever: ", cycle,
           "; expected an order in which every action's input is made before it is needed");
  }

  const Schedule& schedule_;
  const Places& places_;
};

struct Queue {
  std::vector<Action> sent;      // in the order of the source; named by the action that receives
  std::vector<Action> received;  // in the order of the target
};

void check_queues(const Schedule& schedule, const Places& places) {
  std::map<std::tuple<int, int, Payload>, Queue> queues;
  std::map<Action, Action> receiver_of;
  for (const auto& [action, place] : places) {
    if (const auto source = received_from(action, schedule.stages)) receiver_of.emplace(*source, action);
  }
  for_each_action(schedule, [&](const Action& action, Place place) {
    if (const auto source = received_from(action, schedule.stages)) {
      const int from = places.at(*source).device;
      if (from != place.device) queues[{from, place.device, payload_of(source->op)}].received.push_back(action);
    }
    if (const auto receiver = receiver_of.find(action); receiver != receiver_of.end()) {
      const int to = places.at(receiver->second).device;
      if (to != place.device) queues[{place.device, to, payload_of(action.op)}].sent.push_back(receiver->second);
    }
  });
  for (const auto& [key, queue] : queues) {
    const auto [sent, received] = std::ranges::mismatch(queue.sent, queue.received);
    if (sent == queue.sent.end()) continue;
    const auto [from, to, payload] = key;
    reject(schedule, "queue", "device ", to, " next takes the ", word(payload), " for ", to_text(*received),
           " from device ", from, ", which sends that for ", to_text(*sent), " first; expected the same order on both");
  }
}

}  // namespace

void validate(const Schedule& schedule) {
  check_shape(schedule);
  check_ranges(schedule);
  const Places places = check_complete(schedule);
  check_owners(schedule);
  check_order(schedule, places);
  WaitGraph(schedule, places).require_acyclic();
  check_queues(schedule, places);
}

}  // namespace sluice::pipeline
