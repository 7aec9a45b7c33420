#include "pipeline/schedule/progress.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "core/concat.h"

namespace sluice::pipeline {
namespace {

struct Blocker {
  ActionPosition target;
  bool is_buffer = false;
};

// The receiving actions of each queue in the receiver's order. If orders are equal, the n-th message sent is the n-th
// received.
class Queues {
 public:
  Queues(const Schedule& schedule, const ActionIndex& index) : schedule_(schedule), index_(index) {
    for (std::size_t device = 0; device < schedule.devices.size(); ++device) {
      auto& numbers = numbers_.emplace_back(schedule.devices[device].size(), -1);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const ActionPosition here{static_cast<int>(device), static_cast<int>(i)};
        const ActionPosition source = index.source(index.at(here));
        if (!source || source.device == here.device) continue;
        auto& receivers = receivers_[key(source, here)];
        numbers[i] = static_cast<int>(receivers.size());
        receivers.push_back(here);
      }
    }
  }

  [[nodiscard]] ActionPosition frees_buffer_for(ActionPosition source, ActionPosition receiver, int buffers) const {
    const int number = numbers_[static_cast<std::size_t>(receiver.device)][static_cast<std::size_t>(receiver.position)];
    if (number < buffers) return {};
    return receivers_.at(key(source, receiver))[static_cast<std::size_t>(number - buffers)];
  }

 private:
  using Key = std::tuple<int, int, Payload>;
  [[nodiscard]] Key key(ActionPosition source, ActionPosition target) const {
    return {source.device, target.device, ActionIndex::payload(index_.at(source))};
  }

  const Schedule& schedule_;
  const ActionIndex& index_;
  std::map<Key, std::vector<ActionPosition>> receivers_;
  // [device][position]: number of the message it receives in its queue; or -1.
  std::vector<std::vector<int>> numbers_;
};

class Walk {
 public:
  Walk(const Schedule& schedule, const ActionIndex& index, const Transport& transport, const Queues* queues)
      : schedule_(schedule),
        index_(index),
        transport_(transport),
        queues_(queues),
        at_(schedule.devices.size(), 0),
        is_computed_(schedule.devices.size(), false),
        is_queued_(schedule.devices.size(), true) {
    for (std::size_t device = 0; device < at_.size(); ++device) ready_.push_back(device);
    for (const auto& group : transport.tied) {
      for (const StageId stage : group) group_of_[stage] = &group;
    }
  }

  void run(const std::function<void(ActionPosition)>& visit) {
    while (!ready_.empty()) {
      const std::size_t device = ready_.front();
      ready_.pop_front();
      is_queued_[device] = false;
      while (at_[device] < schedule_.devices[device].size() && advance(device, visit)) {
      }
    }
  }

  [[nodiscard]] std::optional<std::string> stuck() const {
    for (std::size_t device = 0; device < at_.size(); ++device) {
      if (at_[device] < schedule_.devices[device].size()) return cycle_from(device);
    }
    return std::nullopt;
  }

 private:
  struct Wait {
    ActionPosition stuck;
    Blocker blocker;
  };

  bool advance(std::size_t device, const std::function<void(ActionPosition)>& visit) {
    const ActionPosition unit{static_cast<int>(device), static_cast<int>(at_[device])};
    if (wait_of(unit)) return false;
    if (!is_computed_[device]) {
      if (visit) visit(unit);
      is_computed_[device] = true;
    } else {
      is_computed_[device] = false;
      at_[device] = unit_end(schedule_.devices[device], at_[device]);
      if (at_[device] < schedule_.devices[device].size()) wake_tied(schedule_.devices[device][at_[device]]);
    }
    wake_neighbours(unit);
    return true;
  }

  [[nodiscard]] std::optional<Wait> wait_of(ActionPosition unit) const {
    const auto device = static_cast<std::size_t>(unit.device);
    const auto begin = static_cast<std::size_t>(unit.position);
    for (std::size_t i = begin; i < unit_end(schedule_.devices[device], begin); ++i) {
      const ActionPosition here{unit.device, static_cast<int>(i)};
      const auto blocker = is_computed_[device] ? send_blocker(here) : compute_blocker(here);
      if (blocker) return Wait{here, *blocker};
    }
    return std::nullopt;
  }

  [[nodiscard]] bool is_computed(ActionPosition where) const {
    const auto device = static_cast<std::size_t>(where.device);
    const auto position = static_cast<std::size_t>(where.position);
    if (position < at_[device]) return true;
    return is_computed_[device] && position < unit_end(schedule_.devices[device], at_[device]);
  }

  [[nodiscard]] bool is_reached(ActionPosition where) const {
    const auto device = static_cast<std::size_t>(where.device);
    if (at_[device] >= schedule_.devices[device].size()) return true;
    return static_cast<std::size_t>(where.position) < unit_end(schedule_.devices[device], at_[device]);
  }

  [[nodiscard]] std::optional<Blocker> compute_blocker(ActionPosition here) const {
    const Action& action = index_.at(here);
    if (action.op == Op::kReduceGradient) return tied_blocker(action);
    const ActionPosition source = index_.source(action);
    if (source && !is_computed(source)) return Blocker{source};
    return std::nullopt;
  }

  [[nodiscard]] std::optional<Blocker> send_blocker(ActionPosition here) const {
    if (!transport_.receive_buffers) return std::nullopt;
    const ActionPosition receiver = index_.receiver(index_.at(here));
    if (!receiver || receiver.device == here.device) return std::nullopt;
    const ActionPosition frees = queues_->frees_buffer_for(here, receiver, *transport_.receive_buffers);
    if (frees && !is_reached(frees)) return Blocker{frees, true};
    return std::nullopt;
  }

  // All members of a tied group must be at the group's reduction.
  [[nodiscard]] std::optional<Blocker> tied_blocker(const Action& action) const {
    const auto group = group_of_.find(action.stage);
    if (group == group_of_.end()) return std::nullopt;
    for (const StageId stage : *group->second) {
      const int owner = index_.owner(stage);
      const auto& actions = schedule_.devices[static_cast<std::size_t>(owner)];
      const Action wanted{Op::kReduceGradient, stage, MicroBatchId{0}};
      const auto found = std::ranges::find(actions, wanted) - actions.begin();
      const ActionPosition where{owner, static_cast<int>(found)};
      const bool is_own = owner == index_.owner(action.stage);
      if (!is_own && !is_reached(where)) return Blocker{where};
    }
    return std::nullopt;
  }

  void wake(int device) {
    const auto which = static_cast<std::size_t>(device);
    if (is_queued_[which]) return;
    is_queued_[which] = true;
    ready_.push_back(which);
  }

  void wake_neighbours(ActionPosition unit) {
    const auto& actions = schedule_.devices[static_cast<std::size_t>(unit.device)];
    const auto begin = static_cast<std::size_t>(unit.position);
    // Also the next unit: reaching it may free a buffer that a sender waits for.
    const std::size_t end = unit_end(actions, begin);
    for (std::size_t i = begin; i < (end < actions.size() ? unit_end(actions, end) : end); ++i) {
      const int stage = index(actions[i].stage);
      if (stage > 0) wake(index_.owner(static_cast<StageId>(stage - 1)));
      if (stage + 1 < schedule_.stages) wake(index_.owner(static_cast<StageId>(stage + 1)));
    }
  }

  void wake_tied(const Action& reached) {
    if (reached.op != Op::kReduceGradient || !group_of_.contains(reached.stage)) return;
    for (const StageId stage : *group_of_.at(reached.stage)) wake(index_.owner(stage));
  }

  [[nodiscard]] std::string cycle_from(std::size_t device) const {
    std::vector<int> seen(at_.size(), -1);
    std::vector<Wait> waits;
    while (seen[device] < 0) {
      seen[device] = static_cast<int>(waits.size());
      waits.push_back(*wait_of({static_cast<int>(device), static_cast<int>(at_[device])}));
      device = static_cast<std::size_t>(waits.back().blocker.target.device);
    }
    waits.erase(waits.begin(), waits.begin() + seen[device]);
    std::string cycle;
    for (std::size_t i = 0; i < waits.size(); ++i) {
      const ActionPosition behind = waits[(i + 1) % waits.size()].stuck;
      const auto& [stuck, blocker] = waits[i];
      const std::string target = to_text(index_.at(blocker.target));
      cycle += concat(cycle.empty() ? "" : ", ", to_text(index_.at(stuck)),
                      blocker.is_buffer ? " is done but has no receive buffer before " : " waits for ", target);
      if (blocker.target != behind)
        cycle += concat(", which is after ", to_text(index_.at(behind)), " on device ", behind.device);
    }
    return cycle;
  }

  const Schedule& schedule_;
  const ActionIndex& index_;
  const Transport& transport_;
  const Queues* queues_;
  std::vector<std::size_t> at_;    // [device]: position of its current unit
  std::vector<bool> is_computed_;  // [device]: that unit has run, but may still wait to hand its results over
  std::deque<std::size_t> ready_;  // devices that may be able to advance
  std::vector<bool> is_queued_;    // [device]: in ready_
  std::map<StageId, const std::vector<StageId>*> group_of_;
};

}  // namespace

std::optional<std::string> find_deadlock(const Schedule& schedule, const ActionIndex& index,
                                         const Transport& transport) {
  std::optional<Queues> queues;
  if (transport.receive_buffers) queues.emplace(schedule, index);
  Walk walk(schedule, index, transport, queues ? &*queues : nullptr);
  walk.run({});
  return walk.stuck();
}

int needed_receive_buffers(const Schedule& schedule) {
  const ActionIndex index(schedule);
  const Queues queues(schedule, index);
  const auto gets_stuck_with = [&](int buffers) {
    const Transport transport{.receive_buffers = buffers, .tied = {}};
    Walk walk(schedule, index, transport, &queues);
    walk.run({});
    return walk.stuck().has_value();
  };
  // More buffers never cause a deadlock. Most schedules need 0 or 1, so the search begins there.
  int enough = 0;
  int too_few = -1;
  while (gets_stuck_with(enough)) {
    too_few = enough;
    enough = std::max(1, 2 * enough);
  }
  while (enough - too_few > 1) {
    const int middle = too_few + (enough - too_few) / 2;
    (gets_stuck_with(middle) ? too_few : enough) = middle;
  }
  return enough;
}

void for_each_in_order(const Schedule& schedule, const ActionIndex& index,
                       const std::function<void(ActionPosition)>& visit) {
  const Transport transport;
  Walk(schedule, index, transport, nullptr).run(visit);
}

}  // namespace sluice::pipeline
