// action_index: the position of each action of a schedule, and which actions it waits for.
#pragma once

#include <cstddef>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

struct ActionPosition {
  int device = -1;  // -1: no such action
  int position = -1;

  [[nodiscard]] explicit operator bool() const { return device >= 0; }
  bool operator==(const ActionPosition&) const = default;
};

class ActionIndex {
 public:
  // Requires: ids in range; no duplicate actions; one owner per stage. `schedule` must outlive the index.
  explicit ActionIndex(const Schedule& schedule);

  [[nodiscard]] ActionPosition find_gradient(StageId stage, MicroBatchId micro_batch) const;
  [[nodiscard]] ActionPosition find_last(const Action& action) const;
  [[nodiscard]] const Action& at(ActionPosition where) const;
  // -1: the stage has no actions.
  [[nodiscard]] int owner(StageId stage) const { return owners_[static_cast<std::size_t>(index(stage))]; }

  // The action whose result this one receives; false at the ends of the pipeline and for W and REDUCE_GRAD.
  [[nodiscard]] ActionPosition source(const Action& action) const;
  [[nodiscard]] ActionPosition receiver(const Action& action) const;
  // The action of the same stage that must come before: F for B and I, I for W.
  [[nodiscard]] ActionPosition own_input(const Action& action) const;

  [[nodiscard]] static Payload payload(const Action& sent);

 private:
  struct Entry {
    ActionPosition forward;
    ActionPosition gradient;  // B or I
    ActionPosition last;      // B or W
  };

  [[nodiscard]] std::size_t entry_index(StageId stage, MicroBatchId micro_batch) const;
  [[nodiscard]] const Entry& entry(StageId stage, MicroBatchId micro_batch) const {
    return entries_[entry_index(stage, micro_batch)];
  }

  const Schedule& schedule_;
  std::vector<Entry> entries_;  // [stage][micro-batch]
  std::vector<int> owners_;     // [stage]
};

}  // namespace sluice::pipeline
