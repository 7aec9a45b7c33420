#include "pipeline/pass_report.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "core/check.h"
#include "core/concat.h"
#include "core/text.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/inspect.h"

namespace sluice::pipeline {

PassReport::PassReport(const Schedule& schedule, std::vector<Standing> standings)
    : schedule_(schedule), owners_(stage_owners(schedule)), standings_(std::move(standings)) {
  check(slots() % devices() == 0, "a slot of every replica on each device");
}

std::string PassReport::name_of(int slot) const {
  const auto& actions = actions_of(slot);
  const StageId stage = actions[std::min<std::size_t>(standings_[slot].position, actions.size() - 1)].stage;
  return concat("replica ", replica_of(slot), " stage ", index(stage));
}

std::string PassReport::describe_action(int slot) const {
  if (is_done(slot)) return concat(name_of(slot), " after its last action");
  const std::size_t position = standings_[slot].position;
  const Action& action = actions_of(slot)[position];
  return concat(name_of(slot), " at action ", to_text(action), " (", position + 1, " of ", actions_of(slot).size(),
                ", micro-batch ", index(action.micro_batch), ")");
}

std::optional<int> PassReport::missing_in_sum(int slot) const {
  std::optional<int> missing;
  for (int other = device_of(slot); other < slots(); other += devices()) {
    const Wait wait = standings_[other].wait;
    if (wait == Wait::kProcesses) return other;  // the sum of this process is complete
    if (wait != Wait::kReplicas && !missing) missing = other;
  }
  return missing;
}

std::optional<int> PassReport::waits_for(int slot) const {
  const auto [position, wait] = standings_[slot];
  if (wait == Wait::kReplicas) return missing_in_sum(slot);
  if (wait != Wait::kMessage) return std::nullopt;
  const Action& action = actions_of(slot)[position];
  const int source = index(action.stage) + (action.op == Op::kForward ? -1 : 1);
  if (source < 0) return std::nullopt;  // frozen layers run in other slots of the replica
  return replica_of(slot) * devices() + owners_[source];
}

std::string PassReport::describe(int slot) const {
  const std::string action = describe_action(slot);
  if (standings_[slot].wait == Wait::kProcesses) return concat(action, ", which waits for the other processes");
  const std::optional<int> source = waits_for(slot);
  return source ? concat(action, ", which waits for ", name_of(*source)) : action;
}

// Empty if the first slot waits for no other one. A chain of waits ends at a slot without a wait, or in a cycle.
std::string PassReport::end_of_waits(int slot) const {
  std::vector<int> chain{slot};
  std::optional<int> next = waits_for(slot);
  while (next && std::ranges::find(chain, *next) == chain.end()) {
    chain.push_back(*next);
    next = waits_for(*next);
  }
  if (!next) return chain.size() > 1 ? concat("the others wait for ", describe(chain.back())) : std::string{};
  std::vector<int> cycle(std::ranges::find(chain, *next), chain.end());
  std::ranges::rotate(cycle, std::ranges::min_element(cycle));  // the same text from every entry point
  cycle.push_back(cycle.front());
  std::vector<std::string> names;
  for (const int member : cycle) names.push_back(name_of(member));
  return concat("they wait for each other: ", join(names, " for "));
}

std::string PassReport::describe_waits() const {
  std::vector<std::string> ends;
  for (int slot = 0; slot < slots(); ++slot) {
    std::string end = end_of_waits(slot);
    if (!end.empty() && std::ranges::find(ends, end) == ends.end()) ends.push_back(std::move(end));
  }
  return join(ends, "; ");
}

bool PassReport::waits_for_processes() const {
  bool waits = false;
  for (int slot = 0; slot < slots(); ++slot) {
    if (is_done(slot)) continue;
    std::optional<int> end = slot;
    for (int steps = 0; end && standings_[*end].wait != Wait::kProcesses; ++steps)
      end = steps < slots() ? waits_for(*end) : std::nullopt;  // more steps than slots: they wait for each other
    if (!end) return false;
    waits = true;
  }
  return waits;
}

std::string PassReport::draw_failed(int slot) const { return draw_replica(replica_of(slot), device_of(slot)); }

std::string PassReport::draw_unfinished() const {
  std::string drawings;
  for (int replica = 0; replica * devices() < slots(); ++replica) {
    const auto is_unfinished = [&](int device) { return !is_done(replica * devices() + device); };
    const auto all = std::views::iota(0, devices());
    if (std::ranges::any_of(all, is_unfinished)) drawings += draw_replica(replica, std::nullopt);
  }
  return drawings;
}

std::string PassReport::draw_replica(int replica, std::optional<int> failed_device) const {
  ActionMark mark{{}, failed_device};
  for (int device = 0; device < devices(); ++device)
    mark.current.push_back(standings_[replica * devices() + device].position);
  return concat("replica ", replica, " ran this schedule (", schedule_.name, "), each device's action in brackets:\n",
                draw_grid(schedule_, mark));
}

}  // namespace sluice::pipeline
