// mutants: every schedule that is one mistake away from a given one.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline::test {

struct Mutant {
  std::string kind;  // "drop", "duplicate", ...
  std::string what;  // operations that took part, as in "F-W"
  Schedule schedule;
};

class Mutator {
 public:
  explicit Mutator(const Schedule& schedule) : schedule_(schedule) {}

  [[nodiscard]] std::vector<Mutant> all() && {
    for (std::size_t device = 0; device < schedule_.devices.size(); ++device) {
      for (std::size_t i = 0; i < schedule_.devices[device].size(); ++i) {
        drop(device, i);
        duplicate(device, i);
        retarget(device, i);
        move(device, i);
        swap(device, i);
        swap_with_later_devices(device, i);
        toggle_pair(device, i);
      }
    }
    return std::move(mutants_);
  }

 private:
  std::vector<Action>& add(std::string kind, std::size_t device, std::string what = {}) {
    return mutants_.emplace_back(Mutant{std::move(kind), std::move(what), schedule_}).schedule.devices[device];
  }

  static void insert(std::vector<Action>& actions, std::size_t at, Action action) {
    actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(at), action);
  }

  static void erase(std::vector<Action>& actions, std::size_t at) {
    actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void drop(std::size_t device, std::size_t i) { erase(add("drop", device), i); }

  // A second copy at every position of every device.
  void duplicate(std::size_t device, std::size_t i) {
    const Action copy = schedule_.devices[device][i];
    for (std::size_t to = 0; to < schedule_.devices.size(); ++to) {
      for (std::size_t at = 0; at <= schedule_.devices[to].size(); ++at) insert(add("duplicate", to), at, copy);
    }
  }

  // Another stage, micro-batch or operation, also those that do not exist.
  void retarget(std::size_t device, std::size_t i) {
    const Action original = schedule_.devices[device][i];
    const auto change = [&](Action changed) {
      if (changed != original) add("retarget", device)[i] = changed;
    };
    for (int stage = -1; stage <= schedule_.stages; ++stage)
      change({original.op, static_cast<StageId>(stage), original.micro_batch, original.overlaps_next});
    for (int mb = -1; mb <= schedule_.micro_batches; ++mb)
      change({original.op, original.stage, static_cast<MicroBatchId>(mb), original.overlaps_next});
    for (const Op op : {Op::kForward, Op::kBackward, Op::kInputGradient, Op::kWeightGradient, Op::kReduceGradient})
      change({op, original.stage, original.micro_batch, original.overlaps_next});
  }

  // To every position of every other device.
  void move(std::size_t device, std::size_t i) {
    const Action moved = schedule_.devices[device][i];
    for (std::size_t to = 0; to < schedule_.devices.size(); ++to) {
      for (std::size_t at = 0; to != device && at <= schedule_.devices[to].size(); ++at) {
        insert(add("move", to), at, moved);
        erase(mutants_.back().schedule.devices[device], i);
      }
    }
  }

  // With every later action of the device; which positions are pairs stays.
  void swap(std::size_t device, std::size_t i) {
    const auto& actions = schedule_.devices[device];
    for (std::size_t j = i + 1; j < actions.size(); ++j) {
      auto& changed = add("swap", device, ops(actions[i], actions[j]));
      std::swap(changed[i], changed[j]);
      std::swap(changed[i].overlaps_next, changed[j].overlaps_next);
    }
  }

  // With every action of every later device; which positions are pairs stays.
  void swap_with_later_devices(std::size_t device, std::size_t i) {
    for (std::size_t to = device + 1; to < schedule_.devices.size(); ++to) {
      for (std::size_t j = 0; j < schedule_.devices[to].size(); ++j) {
        Action& here = add("swap devices", device)[i];
        Action& there = mutants_.back().schedule.devices[to][j];
        std::swap(here, there);
        std::swap(here.overlaps_next, there.overlaps_next);
      }
    }
  }

  void toggle_pair(std::size_t device, std::size_t i) {
    auto& changed = add(schedule_.devices[device][i].overlaps_next ? "part a pair" : "pair with next", device);
    changed[i].overlaps_next = !changed[i].overlaps_next;
  }

  static std::string ops(const Action& a, const Action& b) {
    std::vector<std::string_view> letters{letter(a.op), letter(b.op)};
    std::ranges::sort(letters);
    return std::string(letters[0]) + "-" + std::string(letters[1]);
  }

  const Schedule& schedule_;
  std::vector<Mutant> mutants_;
};

}  // namespace sluice::pipeline::test
