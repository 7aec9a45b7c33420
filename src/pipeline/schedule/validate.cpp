#include "pipeline/schedule/validate.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "pipeline/schedule/action_index.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/inspect.h"

namespace sluice::pipeline {
namespace {

struct Placed {
  Action action;
  ActionPosition where;
};

template <typename... Parts>
[[noreturn]] void reject(const Schedule& schedule, std::string_view rule, const Parts&... parts) {
  throw ConfigError("schedule '", schedule.name, "' breaks the rule '", rule, "': ", parts...);
}

template <typename Visit>
void for_each_action(const Schedule& schedule, Visit visit) {
  for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
    for (std::size_t position = 0; position < schedule.devices[device].size(); ++position) {
      visit(schedule.devices[device][position], ActionPosition{static_cast<int>(device), static_cast<int>(position)});
    }
  }
}

std::string at(ActionPosition where) { return concat("device ", where.device, ", position ", where.position); }

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
  for_each_action(schedule, [&](const Action& action, ActionPosition where) {
    if (index(action.stage) < 0 || index(action.stage) >= schedule.stages) {
      reject(schedule, "range", to_text(action), " (", at(where), ") names stage ", index(action.stage),
             ", expected 0 to ", schedule.stages - 1, " (the header's stages= counts the stages of all devices)");
    }
    const int last = action.op == Op::kReduceGradient ? 0 : schedule.micro_batches - 1;
    if (index(action.micro_batch) < 0 || index(action.micro_batch) > last) {
      reject(schedule, "range", to_text(action), " (", at(where), ") names micro-batch ", index(action.micro_batch),
             ", expected 0 to ", last);
    }
  });
}

void check_pairs(const Schedule& schedule) {
  for_each_action(schedule, [&](const Action& action, ActionPosition where) {
    if (!action.overlaps_next) return;
    const auto& actions = schedule.devices[static_cast<std::size_t>(where.device)];
    const auto next = static_cast<std::size_t>(where.position) + 1;
    const bool is_pair = action.op == Op::kForward && next < actions.size() && makes_input_gradient(actions[next].op) &&
                         !actions[next].overlaps_next;
    if (!is_pair) {
      reject(schedule, "pair", to_text(action), " (", at(where), ") overlaps ",
             next < actions.size() ? to_text(actions[next]) : "nothing", ", expected a forward and then one B or I");
    }
  });
}

// Describes an action that occurs twice; empty: none. group: sorted by operation.
std::string repeated(std::span<const Placed> group) {
  const auto twice = std::ranges::adjacent_find(group, {}, [](const Placed& placed) { return placed.action.op; });
  if (twice == group.end()) return {};
  return concat(to_text(twice->action), " occurs twice (", at(twice->where), " and ", at(std::next(twice)->where),
                "), expected once");
}

std::string incomplete(std::span<const Placed> group, bool trains) {
  const auto text_of = [&](Op op) { return to_text({op, group[0].action.stage, group[0].action.micro_batch}); };
  const auto has = [&](Op op) {
    return std::ranges::any_of(group, [&](const Placed& p) { return p.action.op == op; });
  };
  const bool whole = has(Op::kBackward);
  const bool input = has(Op::kInputGradient);
  const bool weight = has(Op::kWeightGradient);
  if (!has(Op::kForward)) return concat(text_of(Op::kForward), " is missing");
  if (whole && (input || weight)) {
    return concat(text_of(Op::kBackward), " and ", text_of(input ? Op::kInputGradient : Op::kWeightGradient),
                  " both occur; expected B, or I and W");
  }
  if (input != weight) return concat(text_of(input ? Op::kWeightGradient : Op::kInputGradient), " is missing");
  if (whole || input || !trains) return {};
  return concat(text_of(Op::kBackward), " is missing (or ", text_of(Op::kInputGradient), " and ",
                text_of(Op::kWeightGradient), ")");
}

std::string home_of(StageId stage, const std::vector<Placed>& sorted) {
  const auto stage_of = [](const Placed& placed) { return placed.action.stage; };
  const auto found = std::ranges::lower_bound(sorted, stage, {}, stage_of);
  if (found == sorted.end() || stage_of(*found) != stage) return concat(", and so is all of stage ", index(stage));
  return concat(" on device ", found->where.device);
}

// Sorts and counts, so that a file that claims a billion stages costs no more than its actions.
void check_complete(const Schedule& schedule) {
  std::vector<Placed> sorted;
  for_each_action(schedule, [&](const Action& action, ActionPosition where) {
    if (action.op != Op::kReduceGradient) sorted.push_back({action, where});
  });
  const auto key = [](const Placed& placed) {
    return std::tuple(placed.action.stage, placed.action.micro_batch, placed.action.op, placed.where.device,
                      placed.where.position);
  };
  std::ranges::sort(sorted, {}, key);
  const bool trains = !is_forward_only(schedule);
  std::size_t begin = 0;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (int m = 0; m < schedule.micro_batches; ++m) {
      const Action wanted{Op::kForward, static_cast<StageId>(stage), static_cast<MicroBatchId>(m)};
      std::size_t end = begin;
      while (end < sorted.size() && sorted[end].action.stage == wanted.stage &&
             sorted[end].action.micro_batch == wanted.micro_batch) {
        ++end;
      }
      if (end == begin) reject(schedule, "complete", to_text(wanted), " is missing", home_of(wanted.stage, sorted));
      const std::span group = std::span(sorted).subspan(begin, end - begin);
      const std::string twice = repeated(group);
      if (!twice.empty()) reject(schedule, "complete", twice);
      if (const std::string missing = incomplete(group, trains); !missing.empty())
        reject(schedule, "complete", missing, home_of(wanted.stage, sorted));
      begin = end;
    }
  }
}

void check_owners(const Schedule& schedule) {
  std::vector<ActionPosition> owners(static_cast<std::size_t>(schedule.stages));
  for_each_action(schedule, [&](const Action& action, ActionPosition where) {
    ActionPosition& first = owners[static_cast<std::size_t>(index(action.stage))];
    if (!first) first = where;
    if (first.device != where.device) {
      reject(schedule, "owner", to_text(action), " is on device ", where.device, ", expected device ", first.device,
             ", which has the first action of stage ", index(action.stage));
    }
  });
}

void check_order(const Schedule& schedule, const ActionIndex& lookup) {
  for_each_action(schedule, [&](const Action& action, ActionPosition where) {
    const ActionPosition input = lookup.own_input(action);
    if (!input) return;
    const bool in_one_pair = input.position + 1 == where.position && lookup.at(input).overlaps_next;
    if (input.position > where.position || in_one_pair) {
      reject(schedule, "order", to_text(action), " (", at(where), ") comes ",
             in_one_pair ? "together with " : "before ", to_text(lookup.at(input)), " (", at(input),
             "), expected after it");
    }
  });
}

// [stage]: its REDUCE_GRAD; empty if the schedule has none.
std::vector<ActionPosition> find_reductions(const Schedule& schedule) {
  std::vector<ActionPosition> reductions;
  for_each_action(schedule, [&](const Action& action, ActionPosition where) {
    if (action.op != Op::kReduceGradient) return;
    reductions.resize(static_cast<std::size_t>(schedule.stages));
    ActionPosition& of_stage = reductions[static_cast<std::size_t>(index(action.stage))];
    if (of_stage) {
      reject(schedule, "reduce", to_text(action), " occurs twice (", at(of_stage), " and ", at(where),
             "), expected once");
    }
    of_stage = where;
  });
  for (std::size_t stage = 0; stage < reductions.size(); ++stage) {
    if (!reductions[stage])
      reject(schedule, "reduce", stage, letter(Op::kReduceGradient), " is missing; other stages have theirs");
  }
  return reductions;
}

void check_tied(const Schedule& schedule, const std::vector<std::vector<StageId>>& tied, bool reduces) {
  std::set<StageId> seen;
  for (const auto& group : tied) {
    for (const StageId stage : group) {
      if (index(stage) < 0 || index(stage) >= schedule.stages)
        reject(schedule, "reduce", "stage ", index(stage), " is tied to others, expected 0 to ", schedule.stages - 1);
      if (!reduces)
        reject(schedule, "reduce", "stage ", index(stage), " is tied to others, expected a REDUCE_GRAD for each stage");
      if (!seen.insert(stage).second)
        reject(schedule, "reduce", "stage ", index(stage), " is tied twice, expected in one group of tied stages");
    }
  }
}

void check_reductions(const Schedule& schedule, const std::vector<std::vector<StageId>>& tied) {
  const auto reductions = find_reductions(schedule);
  for_each_action(schedule, [&](const Action& action, ActionPosition where) {
    if (reductions.empty() || (action.op != Op::kBackward && action.op != Op::kWeightGradient)) return;
    const ActionPosition reduction = reductions[static_cast<std::size_t>(index(action.stage))];
    if (where.position > reduction.position) {
      reject(schedule, "reduce", index(action.stage), letter(Op::kReduceGradient), " (", at(reduction),
             ") comes before ", to_text(action), " (", at(where), "), expected after the stage's last B or W");
    }
  });
  check_tied(schedule, tied, !reductions.empty());
}

struct Queue {
  std::vector<Action> sent;      // in the source's order; named by the receiving action
  std::vector<Action> received;  // in the target's order
};

void check_queues(const Schedule& schedule, const ActionIndex& lookup) {
  std::map<std::tuple<int, int, Payload>, Queue> queues;
  for_each_action(schedule, [&](const Action& action, ActionPosition where) {
    if (const ActionPosition source = lookup.source(action); source && source.device != where.device)
      queues[{source.device, where.device, ActionIndex::payload(lookup.at(source))}].received.push_back(action);
    if (const ActionPosition receiver = lookup.receiver(action); receiver && receiver.device != where.device)
      queues[{where.device, receiver.device, ActionIndex::payload(action)}].sent.push_back(lookup.at(receiver));
  });
  for (const auto& [key, queue] : queues) {
    const auto [sent, received] = std::ranges::mismatch(queue.sent, queue.received);
    if (sent == queue.sent.end()) continue;
    const auto [from, to, payload] = key;
    reject(schedule, "queue", "device ", to, " next takes the ", word(payload), " for ", to_text(*received),
           " from device ", from, ", which sends that for ", to_text(*sent), " first; expected the same order on both");
  }
}

void check_progress(const Schedule& schedule, const ActionIndex& lookup, std::string_view rule,
                    const Transport& transport) {
  if (const auto cycle = find_deadlock(schedule, lookup, transport)) {
    reject(schedule, rule, "the devices wait for each other for ever: ", *cycle,
           transport.receive_buffers
               ? concat("; expected another order, or more receive buffers than ", *transport.receive_buffers)
               : "; expected each action after those that compute its input");
  }
}

void check_memory(const Schedule& schedule, std::string_view what, const std::vector<int>& peaks,
                  std::optional<int> limit) {
  for (std::size_t device = 0; limit && device < peaks.size(); ++device) {
    if (peaks[device] > *limit) {
      reject(schedule, "memory", "device ", device, " has ", peaks[device], " ", what, " at once, expected at most ",
             *limit);
    }
  }
}

}  // namespace

void validate(const Schedule& schedule, const Limits& limits) {
  check_shape(schedule);
  check_ranges(schedule);
  check_pairs(schedule);
  check_complete(schedule);
  check_owners(schedule);
  const ActionIndex lookup(schedule);
  check_order(schedule, lookup);
  check_reductions(schedule, limits.transport.tied);
  check_progress(schedule, lookup, "progress", {.receive_buffers = std::nullopt, .tied = limits.transport.tied});
  check_queues(schedule, lookup);
  if (limits.transport.receive_buffers) check_progress(schedule, lookup, "rendezvous", limits.transport);
  check_memory(schedule, "activations in flight", peak_in_flight(schedule), limits.activations);
  check_memory(schedule, "stashed weight gradients", peak_stash(schedule), limits.stashes);
}

}  // namespace sluice::pipeline
