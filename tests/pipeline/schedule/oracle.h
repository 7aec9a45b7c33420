// oracle: decides by running it whether a schedule is sound. It is the definition against which validate() is tested:
// devices walk their lists, results travel in first-in first-out queues per (source, target, payload), both parts of a
// pair have their inputs before either runs, and at the end each wanted action ran once.
// Written without the helpers of the schedule library, so that a mistake in them shows.
#pragma once

#include <deque>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline::test {

class Oracle {
 public:
  explicit Oracle(const Schedule& schedule) : schedule_(schedule) {}

  [[nodiscard]] bool completes() {
    if (!find_owners() || !pairs_are_sound()) return false;
    std::vector<std::size_t> next(schedule_.devices.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t device = 0; device < next.size(); ++device) {
        const auto& actions = schedule_.devices[device];
        if (next[device] == actions.size() || !try_run(actions, next[device])) continue;
        next[device] += actions[next[device]].overlaps_next ? 2 : 1;
        moved = true;
      }
    }
    for (std::size_t device = 0; device < next.size(); ++device) {
      if (next[device] != schedule_.devices[device].size()) return false;
    }
    return ran_everything_once();
  }

 private:
  using Key = std::tuple<int, int, char>;  // source device, target device, 'a' or 'g'
  using Message = std::pair<int, int>;     // receiving stage, micro-batch

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

  bool try_run(const std::vector<Action>& actions, std::size_t at) {
    const bool is_pair = actions[at].overlaps_next;
    if (!is_ready(actions[at]) || (is_pair && !is_ready(actions[at + 1]))) return false;
    take_input(actions[at]);
    if (is_pair) take_input(actions[at + 1]);
    finish(actions[at]);
    if (is_pair) finish(actions[at + 1]);
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

  [[nodiscard]] Key queue_into(const Action& action, int from) const {
    return {owners_.at(from), owners_.at(index(action.stage)), action.op == Op::kForward ? 'a' : 'g'};
  }

  [[nodiscard]] bool own_input_is_there(const Action& action) const {
    const int stage = index(action.stage);
    const int mb = index(action.micro_batch);
    if (action.op == Op::kWeightGradient) return count(Op::kInputGradient, stage, mb) > 0;
    if (action.op == Op::kReduceGradient) {
      for (int each = 0; each < schedule_.micro_batches; ++each) {
        if (count(Op::kBackward, stage, each) + count(Op::kWeightGradient, stage, each) == 0) return false;
      }
      return true;
    }
    return action.op == Op::kForward || count(Op::kForward, stage, mb) > 0;
  }

  [[nodiscard]] bool is_ready(const Action& action) const {
    if (!own_input_is_there(action)) return false;
    const int from = from_stage(action);
    if (from < 0) return true;
    if (owners_.count(from) == 0 || owners_.count(index(action.stage)) == 0) return false;
    const int mb = index(action.micro_batch);
    if (owners_.at(from) == owners_.at(index(action.stage)))
      return (action.op == Op::kForward ? count(Op::kForward, from, mb) : gradients(from, mb)) > 0;
    const auto queue = queues_.find(queue_into(action, from));
    return queue != queues_.end() && !queue->second.empty() &&
           queue->second.front() == Message{index(action.stage), mb};
  }

  void take_input(const Action& action) {
    const int from = from_stage(action);
    if (from >= 0 && owners_.at(from) != owners_.at(index(action.stage))) queues_[queue_into(action, from)].pop_front();
  }

  void finish(const Action& action) {
    const int stage = index(action.stage);
    const int mb = index(action.micro_batch);
    ++ran_[{action.op, stage, mb}];
    if (action.op == Op::kWeightGradient || action.op == Op::kReduceGradient) return;
    const int to = action.op == Op::kForward ? stage + 1 : stage - 1;
    const auto target = owners_.find(to);
    if (target != owners_.end() && target->second != owners_.at(stage))
      queues_[{owners_.at(stage), target->second, action.op == Op::kForward ? 'a' : 'g'}].emplace_back(to, mb);
  }

  [[nodiscard]] bool ran_everything_once() const {
    bool trains = false;
    bool reduces = false;
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
  std::map<int, int> owners_;
  std::map<Ran, int> ran_;
  std::map<Key, std::deque<Message>> queues_;
};

}  // namespace sluice::pipeline::test
