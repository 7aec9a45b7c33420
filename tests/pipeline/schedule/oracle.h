// oracle: decides by running it whether a schedule is sound. It is the definition against which validate() is tested:
// devices walk their lists, results travel in first-in first-out queues per (source, target, payload), both parts of a
// pair have their inputs before either runs, and at the end each wanted action ran once.
// A queue holds `receive_buffers` messages, besides the one that its receiver waits for. A device goes on when the
// results of its unit have left it. A reduction of tied stages waits until the other devices are at theirs.
// Written without the helpers of the schedule library, so that a mistake in them shows.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/progress.h"

namespace sluice::pipeline::test {

class Oracle {
 public:
  explicit Oracle(const Schedule& schedule, Transport transport = {})
      : schedule_(schedule), transport_(std::move(transport)), devices_(schedule.devices.size()) {}

  [[nodiscard]] bool completes() {
    if (!find_owners() || !pairs_are_sound()) return false;
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t device = 0; device < devices_.size(); ++device) moved = go_on(device) || moved;
    }
    for (std::size_t device = 0; device < devices_.size(); ++device) {
      if (devices_[device].at != schedule_.devices[device].size()) return false;
    }
    return ran_everything_once();
  }

 private:
  using Key = std::tuple<int, int, char>;  // source device, target device, 'a' or 'g'
  using Message = std::pair<int, int>;     // receiving stage, micro-batch

  struct Device {
    std::size_t at = 0;                             // begin of its unit
    std::set<std::pair<Key, Message>> taken;        // inputs of the unit that it has
    bool has_run = false;                           // the unit; its results may still be here
    std::vector<std::pair<Key, Message>> outgoing;  // those
  };

  bool find_owners() {
    for (std::size_t device = 0; device < schedule_.devices.size(); ++device) {
      if (schedule_.devices[device].empty()) return false;
      for (const auto& action : schedule_.devices[device]) {
        const auto [entry, fresh] = owners_.emplace(index(action.stage), static_cast<int>(device));
        if (!fresh && entry->second != static_cast<int>(device)) return false;
      }
    }
    return true;
  }

  [[nodiscard]] bool pairs_are_sound() const {
    for (const auto& actions : schedule_.devices) {
      for (std::size_t i = 0; i < actions.size(); ++i) {
        if (!actions[i].overlaps_next) continue;
        if (actions[i].op != Op::kForward || i + 1 == actions.size() || actions[i + 1].overlaps_next) return false;
        if (actions[i + 1].op != Op::kBackward && actions[i + 1].op != Op::kInputGradient) return false;
      }
    }
    return true;
  }

  [[nodiscard]] std::vector<Action> unit_of(std::size_t device) const {
    const auto& actions = schedule_.devices[device];
    const std::size_t at = devices_[device].at;
    std::vector<Action> unit{actions[at]};
    if (actions[at].overlaps_next) unit.push_back(actions[at + 1]);
    return unit;
  }

  // Whether anything changed.
  bool go_on(std::size_t which) {
    Device& device = devices_[which];
    if (device.at == schedule_.devices[which].size()) return false;
    const auto unit = unit_of(which);
    if (device.has_run) {
      const bool sent = std::erase_if(device.outgoing, [&](const auto& each) { return send(each); }) > 0;
      if (!device.outgoing.empty()) return sent;
      device = {.at = device.at + unit.size(), .taken = {}, .has_run = false, .outgoing = {}};
      return true;
    }
    bool moved = false;
    for (const auto& action : unit) {
      moved = take_input(action, device) || moved;
      if (action.op == Op::kReduceGradient) moved = arrived_.insert(index(action.stage)).second || moved;
    }
    if (!std::ranges::all_of(unit, [&](const Action& action) { return is_ready(action, device); })) return moved;
    for (const auto& action : unit) finish(action, device);
    device.has_run = true;
    return true;
  }

  [[nodiscard]] int count(Op op, int stage, int mb) const {
    const auto found = ran_.find({op, stage, mb});
    return found == ran_.end() ? 0 : found->second;
  }
  [[nodiscard]] int gradients(int stage, int mb) const {
    return count(Op::kBackward, stage, mb) + count(Op::kInputGradient, stage, mb);
  }

  // -1: from nowhere.
  [[nodiscard]] int from_stage(const Action& action) const {
    const int stage = index(action.stage);
    if (action.op == Op::kForward) return stage - 1;
    const bool receives = action.op == Op::kBackward || action.op == Op::kInputGradient;
    return receives && stage + 1 < schedule_.stages ? stage + 1 : -1;
  }

  // The message from another device that it needs.
  [[nodiscard]] std::optional<std::pair<Key, Message>> wanted(const Action& action) const {
    const int from = from_stage(action);
    const int stage = index(action.stage);
    if (from < 0 || owners_.count(from) == 0 || owners_.at(from) == owners_.at(stage)) return std::nullopt;
    const Key key{owners_.at(from), owners_.at(stage), action.op == Op::kForward ? 'a' : 'g'};
    return std::pair{key, Message{stage, index(action.micro_batch)}};
  }

  bool take_input(const Action& action, Device& device) {
    const auto message = wanted(action);
    if (!message || device.taken.count(*message) > 0) return false;
    auto& queue = queues_[message->first];
    if (queue.empty() || queue.front() != message->second) return false;
    queue.pop_front();
    device.taken.insert(*message);
    return true;
  }

  bool send(const std::pair<Key, Message>& message) {
    auto& queue = queues_[message.first];
    if (!transport_.receive_buffers || static_cast<int>(queue.size()) < *transport_.receive_buffers) {
      queue.push_back(message.second);
      return true;
    }
    const auto target = static_cast<std::size_t>(std::get<1>(message.first));
    Device& receiver = devices_[target];
    if (!queue.empty() || receiver.has_run || receiver.at == schedule_.devices[target].size()) return false;
    const auto unit = unit_of(target);
    const bool waits = std::ranges::any_of(unit, [&](const Action& action) { return wanted(action) == message; });
    return waits && receiver.taken.insert(message).second;
  }

  [[nodiscard]] bool own_input_is_there(const Action& action) const {
    const int stage = index(action.stage);
    const int mb = index(action.micro_batch);
    if (action.op == Op::kWeightGradient) return count(Op::kInputGradient, stage, mb) > 0;
    if (action.op == Op::kReduceGradient) {
      for (int each = 0; each < schedule_.micro_batches; ++each) {
        if (count(Op::kBackward, stage, each) + count(Op::kWeightGradient, stage, each) == 0) return false;
      }
      return tied_have_arrived(stage);
    }
    return action.op == Op::kForward || count(Op::kForward, stage, mb) > 0;
  }

  [[nodiscard]] bool tied_have_arrived(int stage) const {
    for (const auto& group : transport_.tied) {
      if (std::ranges::find(group, StageId{stage}) == group.end()) continue;
      for (const StageId other : group) {
        const auto owner = owners_.find(index(other));
        if (owner == owners_.end()) return false;
        if (owner->second != owners_.at(stage) && arrived_.count(index(other)) == 0) return false;
      }
    }
    return true;
  }

  [[nodiscard]] bool is_ready(const Action& action, const Device& device) const {
    if (!own_input_is_there(action)) return false;
    const int from = from_stage(action);
    if (from < 0) return true;
    if (owners_.count(from) == 0) return false;
    if (const auto message = wanted(action)) return device.taken.count(*message) > 0;
    const int mb = index(action.micro_batch);
    return (action.op == Op::kForward ? count(Op::kForward, from, mb) : gradients(from, mb)) > 0;
  }

  void finish(const Action& action, Device& device) {
    const int stage = index(action.stage);
    const int mb = index(action.micro_batch);
    ++ran_[{action.op, stage, mb}];
    if (action.op == Op::kWeightGradient || action.op == Op::kReduceGradient) return;
    const int to = action.op == Op::kForward ? stage + 1 : stage - 1;
    const auto target = owners_.find(to);
    if (target == owners_.end() || target->second == owners_.at(stage)) return;
    const Key key{owners_.at(stage), target->second, action.op == Op::kForward ? 'a' : 'g'};
    device.outgoing.push_back({key, {to, mb}});
  }

  [[nodiscard]] bool ran_everything_once() const {
    bool trains = false;
    bool reduces = !transport_.tied.empty();
    for (const auto& [key, times] : ran_) {
      if (times != 1 || !exists(key)) return false;
      trains = trains || std::get<Op>(key) != Op::kForward;
      reduces = reduces || std::get<Op>(key) == Op::kReduceGradient;
    }
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      if (reduces && count(Op::kReduceGradient, stage, 0) != 1) return false;
      for (int mb = 0; mb < schedule_.micro_batches; ++mb) {
        if (!ran_once(stage, mb, trains)) return false;
      }
    }
    return true;
  }

  using Ran = std::tuple<Op, int, int>;  // operation, stage, micro-batch

  [[nodiscard]] bool exists(const Ran& ran) const {
    const auto& [op, stage, mb] = ran;
    const int last_mb = op == Op::kReduceGradient ? 0 : schedule_.micro_batches - 1;
    return stage >= 0 && stage < schedule_.stages && mb >= 0 && mb <= last_mb;
  }

  [[nodiscard]] bool ran_once(int stage, int mb, bool trains) const {
    if (count(Op::kForward, stage, mb) != 1) return false;
    const int weights = count(Op::kBackward, stage, mb) + count(Op::kWeightGradient, stage, mb);
    return !trains || (gradients(stage, mb) == 1 && weights == 1);
  }

  const Schedule& schedule_;
  Transport transport_;
  std::vector<Device> devices_;
  std::map<int, int> owners_;
  std::map<Ran, int> ran_;
  std::map<Key, std::deque<Message>> queues_;
  std::set<int> arrived_;  // stages whose device has come to their reduction
};

}  // namespace sluice::pipeline::test
