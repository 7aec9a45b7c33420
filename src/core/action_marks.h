// action_marks: reports which action a thread runs or queues work for, so that a profiler can label it. A null
// ActionMarks* means that no profiler is on; it costs one branch.
// Threads: each calls leave() once for every enter() and enter_layer(), innermost first. Nothing throws.
#pragma once

#include <string>

#include "core/ids.h"
#include "core/recorder.h"

namespace sluice {

struct ActionTag {
  Phase phase;
  ReplicaId replica;
  StageId stage = kNoStage;
  MicroBatchId micro_batch = kNoMicroBatch;

  bool operator==(const ActionTag&) const = default;
};

class ActionMarks {
 public:
  virtual ~ActionMarks() = default;
  virtual void enter(const ActionTag& action) noexcept = 0;
  // Marks a layer of the current action until the matching leave().
  virtual void enter_layer(const std::string& name) noexcept = 0;
  virtual void leave() noexcept = 0;
};

// Marks one layer of the current action for the object's lifetime.
class LayerMark {
 public:
  LayerMark(ActionMarks* marks, const std::string& name) : marks_(marks) {
    if (marks_ != nullptr) marks_->enter_layer(name);
  }
  ~LayerMark() {
    if (marks_ != nullptr) marks_->leave();
  }
  LayerMark(const LayerMark&) = delete;
  LayerMark& operator=(const LayerMark&) = delete;

 private:
  ActionMarks* marks_;
};

}  // namespace sluice
