// action_index: where each action of a schedule stands, and what it waits for.
// Not here: whether the schedule is sound; but to build one, each (stage, micro-batch) must be complete (validate.h).
#pragma once

#include <cstddef>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

struct ActionPosition {
  int device = -1;  // -1: nowhere
  int position = -1;

  [[nodiscard]] explicit operator bool() const { return device >= 0; }
  bool operator==(const ActionPosition&) const = default;
};

class ActionIndex {
 public:
  // Requires: ids in range; of each (stage, micro-batch) at most one F and one B or one I and one W; a stage has one
  // owner. `schedule` must outlive the index.
  explicit ActionIndex(const Schedule& schedule);

  // Where the stage's backward of a micro-batch stands that makes the gradient of its input: its B or I.
  [[nodiscard]] ActionPosition find_gradient(StageId stage, MicroBatchId micro_batch) const;
  // Where the last action of the same stage and micro-batch stands: its B or W; nowhere where there is none.
  [[nodiscard]] ActionPosition find_last(const Action& action) const;
  [[nodiscard]] const Action& at(ActionPosition where) const;
  // -1: of a stage without actions.
  [[nodiscard]] int owner(StageId stage) const { return owners_[static_cast<std::size_t>(index(stage))]; }

  // The action of the neighbouring stage whose result this one receives; nowhere at the two ends of the pipeline, and
  // for W and REDUCE_GRAD, which need nothing from another stage.
  [[nodiscard]] ActionPosition source(const Action& action) const;
  // The action of the neighbouring stage that receives this one's result.
  [[nodiscard]] ActionPosition receiver(const Action& action) const;
  // The action of the same stage that must be over: F for B and I, I for W.
  [[nodiscard]] ActionPosition own_input(const Action& action) const;

  // What F sends is an activation, what B and I send a gradient.
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
